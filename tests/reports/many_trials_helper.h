// A runs database with any number of trials, as a long search leaves it: written straight into the
// tables in one transaction, as so many commits of the Store would take minutes. For the test of
// the page's size and for the benchmark of the report.
#pragma once

#include <string>

namespace moetune::tests {

/// Creates `path`: one sweep of `num_trials` trials (at least 10) with knobs, predictions, memory
/// and metrics of each of 8 ranks, texts and decisions. Three in five ran to the end, and all of
/// these have a budget. The records of a traced step are those of the winner alone.
/// `mark` is put in front of every text that a stranger could have written.
void make_many_trials(const std::string& path, int num_trials, const std::string& mark = "");

}  // namespace moetune::tests
