// How a run ended: which of the failures in its logs is the root, and whether there was one at all.
#pragma once

#include <string>
#include <vector>

#include "sweeps/runs/run_facts.h"

namespace moetune::sweeps {

/// What each of the logs says of the attempt that counts.
using AttemptParts = std::vector<const Attempt*>;

/// Fills status, reason, root and failures; the steps and sizes of the facts have to be there.
void judge_run(const AttemptParts& parts, const RunOptions& options, RunFacts& facts);

/// How the starts before the last of each log had ended, where they had failed; a few sentences.
std::vector<std::string> earlier_endings(const std::vector<ForeignLog>& logs);

}  // namespace moetune::sweeps
