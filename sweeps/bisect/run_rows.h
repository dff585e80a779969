// Converts measurements to rows of the store and back.
#pragma once

#include <optional>
#include <string>

#include "profiler/store/store.h"
#include "sweeps/bisect/vocabulary.h"

namespace moetune::sweeps {

store::BisectRunRow row_of(const CommitRun& run, int position, const std::string& key,
                           const std::string& purpose);
/// Ignores values that do not parse: anybody may have edited the database.
CommitRun run_of(const store::BisectRunRow& row);

/// A measurement by another hunt, perhaps of another metric; empty if it lacks this metric.
std::optional<CommitRun> run_of_other(const store::BisectRunRow& row, const std::string& metric);

}  // namespace moetune::sweeps
