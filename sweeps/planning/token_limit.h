// How long the sequences of a plan may be.
#pragma once

#include <cstdint>

#include "tuner/planner/run.h"

namespace moetune::sweeps {

/// Of a sequence, and of the sequences of a micro-batch together.
inline constexpr int64_t kMostTokens = int64_t{1} << 28;
/// Throws base::UsageError where a run has more.
void check_tokens(const tuner::planner::PlanRun& run);

}  // namespace moetune::sweeps
