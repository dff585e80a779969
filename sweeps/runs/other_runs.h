// Logs that do not count: a folder may hold those of several jobs, and copies.
#pragma once

#include <string>
#include <vector>

#include "sweeps/runs/run_log.h"

namespace moetune::sweeps {

/// Removes the logs that contradict the one with the most steps: in who trains, the number of ranks
/// or the device; and copies of logs before them. Returns a sentence for each.
std::vector<std::string> remove_other_runs(std::vector<ForeignLog>& logs);

}  // namespace moetune::sweeps
