// The sentences of a verdict, apart from the arithmetic that decides it.
#pragma once

#include <string>

#include "profiler/analysis/wall.h"

namespace moetune::profiler {

/// What is said about the group that blocks longest.
struct DominantGroup {
  std::string group;
  std::string op;           ///< name of the record that blocked longest
  int64_t transfer_ns = 0;  ///< means over ranks
  int64_t wait_ns = 0;
  int64_t volume_ns = 0;
  int64_t exposed_ns = 0;
  bool is_bubble = false;  ///< waiting is pipeline bubble
};

std::string wall_summary(const WallEvidence& verdict, const DominantGroup& dominant,
                         const MemoryFacts& memory, const WallOptions& options);
std::string bound_text(const WallBound& bound, int64_t num_ranks, int32_t slowest_rank);
/// The three numbers of communication in one sentence.
std::string dominant_text(const DominantGroup& dominant, int64_t step_ns);

}  // namespace moetune::profiler
