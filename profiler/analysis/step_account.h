// Where a traced step of all ranks goes: the shares of its parts, the communication that blocks
// longest, and the sentences that say so. It is an account, no verdict: what would be gained
// without a part, only a replay tells (step_verdict.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/step_parts.h"
#include "profiler/analysis/budget.h"
#include "profiler/analysis/wall.h"

namespace moetune::profiler {

/// A part of the step, mean over ranks.
struct StepShare {
  std::string name;  ///< as base::name_of; blocking parts by group
  int64_t ns = 0;
  double ratio = 0;
};

struct StepAccount {
  /// Compute first, ratios sum to 1.
  std::vector<StepShare> shares;
  /// The group that blocks longest, "pp" for the bubble; empty if nothing blocks.
  std::string dominant_group;
  double dominant_ratio = 0;  ///< share of the step that dominant_group blocks
  /// The rank that spends least of the step in waiting for participants and in bubbles.
  int32_t slowest_rank = -1;
  int64_t num_ranks = 0;
  int64_t step_ns = 0;  ///< mean over ranks
  std::vector<Evidence> evidence;

  /// Of a part that has no group.
  [[nodiscard]] double ratio_of(base::StepPart part) const;
};

/// `budgets`: of one step, one a rank. Throws base::Error without any.
StepAccount account_of(const std::vector<StepBudget>& budgets);

}  // namespace moetune::profiler
