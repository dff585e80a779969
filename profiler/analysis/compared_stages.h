// Stages of a pipeline beside each other: which one has more to compute?
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "profiler/analysis/replayed_run.h"
#include "profiler/analysis/work_traits.h"

namespace moetune::profiler {

/// Ranks that send each other messages are stages.
class ComparedStages {
 public:
  ComparedStages(const ReplayedRun& run, const WorkTraits& traits);

  /// By trace: what kernels of its stage would take, as a share of what they take, if all stages of
  /// its pipeline had as much to compute.
  [[nodiscard]] double even_share(uint32_t trace) const { return even_shares_[trace]; }
  [[nodiscard]] bool are_even() const;

  /// A rank of the stage that computes longest: of several pipelines, that of the first. None where
  /// two stages of a pipeline compute equally long.
  [[nodiscard]] std::optional<uint32_t> slowest() const;

 private:
  std::vector<double> even_shares_;
  std::vector<double> work_ns_;     ///< by trace
  std::vector<int32_t> pipelines_;  ///< by trace; -1: it sends no messages
};

}  // namespace moetune::profiler
