// How long the sequences of a plan may be.
#pragma once

#include <cstdint>

#include "tuner/planner/run.h"

namespace moetune::sweeps {

/// Largest number of tokens in a sequence, and in all sequences of a micro-batch.
inline constexpr int64_t kMostTokens = int64_t{1} << 28;
/// Throws base::UsageError if a run has more.
void check_tokens(const tuner::planner::PlanRun& run);

}  // namespace moetune::sweeps
