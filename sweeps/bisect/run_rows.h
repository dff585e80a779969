// Measurements as rows of the store.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/store/store.h"
#include "sweeps/bisect/commit_runner.h"

namespace moetune::sweeps {

store::BisectRunRow row_of(const CommitRun& run, int position, const std::string& key,
                           const std::string& purpose);
/// The database may have been edited by anybody: what does not parse is as if it were not there.
CommitRun run_of(const store::BisectRunRow& row);

/// A measurement that another hunt has made, perhaps of another metric; none when it says nothing
/// of this one.
std::optional<CommitRun> run_of_other(const store::BisectRunRow& row, const std::string& metric);

/// When a run ended, as the store wrote it, and how long it took.
struct RunTime {
  std::string ended_at;
  double seconds = 0.0;
};

/// Of runs in the order of time: whether a long pause, in which the machine may have become
/// another, lies between a run and now.
std::vector<bool> are_old(const std::vector<RunTime>& runs);

}  // namespace moetune::sweeps
