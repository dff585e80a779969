// The wall that limits a trial, and the evidence for it in sentences for people.
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

/// Facts from the memory ledgers of all ranks. Bytes are those of the fullest rank.
struct MemoryFacts {
  int64_t peak_bytes = 0;
  int64_t capacity_bytes = 0;  ///< 0: unlimited
  bool is_oom = false;
  std::string oom_reason;  ///< which allocation on which rank
};

struct WallOptions {
  /// Least recoverable share of a wall.
  double threshold_ratio = base::kLeastBindingRatio;
};

/// One fact: a number for machines, a sentence for people.
struct Evidence {
  std::string name;
  double value = 0;
  std::string unit;  ///< "ratio", "ns", "bytes", "count"
  std::string text;
};

/// Upper bound of the gain if one wall's time vanished. Not a forecast; the bounds of different
/// walls do not add up.
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
  std::string name;  ///< as base::name_of; blocking parts by group
  int64_t ns = 0;
  double ratio = 0;
};

/// The verdict on one trial.
struct WallEvidence {
  Wall wall = Wall::compute;
  /// The group that blocks longest, "pp" for the bubble; empty if nothing blocks.
  std::string dominant_group;
  double dominant_ratio = 0;  ///< share of the step that dominant_group blocks
  std::string summary;        ///< one sentence
  std::vector<Evidence> evidence;
  std::array<WallBound, kNumWalls> bounds;  ///< indexed by Wall
  /// Compute first, ratios sum to 1; empty when no step ran.
  std::vector<StepShare> shares;
  /// The rank that spends least of the step in waiting for participants and in bubbles.
  int32_t slowest_rank = -1;
  int64_t num_ranks = 0;
  int64_t step_ns = 0;  ///< mean over ranks of the traced step

  /// Share of the step in compute, without recomputation; 0 if no step ran.
  [[nodiscard]] double compute_ratio() const { return shares.empty() ? 0.0 : shares.front().ratio; }
  /// Of a part that has no group; 0 if no step ran.
  [[nodiscard]] double ratio_of(base::StepPart part) const;
};

/// Finds the wall of one step. `budgets`: one per rank. Throws base::Error without budgets, unless
/// is_oom. Rules, in this order:
///  1. Out of memory: the wall is memory.
///  2. The recoverable time of a wall is the sum of the parts of the step that base::step_parts
///  books
///     to it. For memory that is recomputation, which is only needed for lack of memory. The bubble
///     is a share of its own with dominant_group "pp", as its remedies are not those of the
///     network.
///  3. If no mean share reaches options.threshold_ratio, the wall is compute. Otherwise it is the
///  one
///     with the largest share; of equal ones communication before host before memory.
WallEvidence classify_wall(const std::vector<StepBudget>& budgets, const MemoryFacts& memory,
                           const WallOptions& options = {});

}  // namespace moetune::profiler
