// Which wall a trial stands at, and the evidence that says so: the sentences an engineer forwards
// to a colleague.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/step_parts.h"
#include "profiler/analysis/budget.h"

namespace moetune::profiler {

using base::kNumWalls;
using base::Wall;

/// What the ledgers of all ranks say; bytes of the fullest rank.
struct MemoryFacts {
  int64_t peak_bytes = 0;
  int64_t capacity_bytes = 0;  ///< 0: unlimited
  bool is_oom = false;
  std::string oom_reason;  ///< which allocation on which rank
};

struct WallOptions {
  /// A recoverable share below this does not make a wall.
  double threshold_ratio = base::kLeastBindingRatio;
};

/// One fact: a number for machines, a sentence for people.
struct Evidence {
  std::string name;
  double value = 0;
  std::string unit;  ///< "ratio", "ns", "bytes", "count"
  std::string text;
};

/// What would be gained at most if one wall's time vanished. A ceiling, never a forecast; ceilings
/// of different walls do not add.
struct WallBound {
  Wall wall = Wall::compute;
  int64_t mean_ns = 0;     ///< recoverable time R, mean over ranks
  int64_t slowest_ns = 0;  ///< R of the slowest rank
  double mean_ratio = 0;   ///< mean_ns / step
  double slowest_ratio = 0;
  double gain_ceiling_ratio = 0;  ///< T / (T - R) - 1 with the mean R
};

/// A part of the step, mean over ranks.
struct StepShare {
  std::string name;  ///< as base::name_of(StepPart) says; what blocks, by group
  int64_t ns = 0;
  double ratio = 0;
};

/// The verdict on one trial.
struct WallEvidence {
  Wall wall = Wall::compute;
  std::string dominant_group;  ///< communication: the group that blocks longest ("pp" for bubble);
                               ///< else of the same meaning, empty when nothing blocks
  double dominant_ratio = 0;   ///< its share of the step
  std::string summary;         ///< one sentence
  std::vector<Evidence> evidence;
  std::array<WallBound, kNumWalls> bounds;  ///< indexed by Wall
  /// Compute first, ratios sum to 1; empty when no step ran.
  std::vector<StepShare> shares;
  int32_t slowest_rank =
      -1;  ///< most of the step neither waiting for a participant nor in a bubble
  int64_t num_ranks = 0;
  int64_t step_ns = 0;  ///< mean over ranks of the traced step

  /// Share of the step that computes what is needed; 0 when no step ran.
  [[nodiscard]] double compute_ratio() const { return shares.empty() ? 0.0 : shares.front().ratio; }
};

/// Rules, in this order:
///  1. out of memory: memory.
///  2. recoverable time per rank: the parts of the step that base::step_parts books to the wall.
///  Memory: recomputation, which exists only
///     because memory is short. The bubble has its own share, and its dominant_group is "pp": its
///     remedies are not those of the network.
///  3. when no mean share reaches options.threshold_ratio: compute. Otherwise the largest; when
///  equal, communication
///     before host before memory.
/// Without budgets and without is_oom there is nothing to judge: throws base::Error. `budgets`: one
/// per rank, one step.
WallEvidence classify_wall(const std::vector<StepBudget>& budgets, const MemoryFacts& memory,
                           const WallOptions& options = {});

}  // namespace moetune::profiler
