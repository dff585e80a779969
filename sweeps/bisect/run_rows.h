// Measurements as rows of the store.
#pragma once

#include <optional>
#include <string>

#include "profiler/store/store.h"
#include "sweeps/bisect/vocabulary.h"

namespace moetune::sweeps {

store::BisectRunRow row_of(const CommitRun& run, int position, const std::string& key,
                           const std::string& purpose);
/// The database may have been edited by anybody: what does not parse is as if it were not there.
CommitRun run_of(const store::BisectRunRow& row);

/// A measurement that another hunt has made, perhaps of another metric; none when it says nothing
/// of this one.
std::optional<CommitRun> run_of_other(const store::BisectRunRow& row, const std::string& metric);

}  // namespace moetune::sweeps
