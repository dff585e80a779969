// Ranks beside each other: which of them take longer for the same work, and which have more of the
// experts' rows.
#pragma once

#include "profiler/analysis/alike_work.h"
#include "profiler/analysis/replayed_run.h"
#include "profiler/analysis/shorter_durations.h"
#include "profiler/analysis/work_traits.h"

namespace moetune::profiler {

struct RankDurations {
  /// Alike work of the rank that does it fastest, where whole ranks are slower.
  ShorterDurations fastest;
  /// Work on experts' rows and their exchange, as if all ranks had as many. Where only such work of
  /// a rank is longer, and no record says how many rows these are: that as the mean of the ranks.
  ShorterDurations balanced;
};
RankDurations compare_ranks(const ReplayedRun& run, const AlikeWork& alike,
                            const WorkTraits& traits);

}  // namespace moetune::profiler
