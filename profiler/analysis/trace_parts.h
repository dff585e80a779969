// Traces without steps, cut into parts that can be replayed one by one: a replay of everything at
// once takes several times the memory of the traces themselves.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "profiler/analysis/matched_collectives.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Of a part each rank launches at least so much on average: steps of large models have thousands
/// of kernels, and a part should have several steps.
inline constexpr size_t kFewestPartOps = 5'000;
/// But of all ranks together no more: a replay takes some 290 bytes for each.
inline constexpr size_t kMostPartOps = 250'000;

/// Operations of all ranks.
struct PartSizes {
  size_t most_whole = std::numeric_limits<size_t>::max();  ///< traces with more are cut
  size_t part = std::numeric_limits<size_t>::max();        ///< about so many in each part
  /// What was recorded while some rank was not is left out, where clocks are known and that is more
  /// than a twentieth.
  bool is_together_only = false;
};

/// By trace: its parts, of about equal sizes (kFewestPartOps of each rank, if that is more, up to
/// kMostPartOps), numbered from 0 and as steps are: by launch, up to the next part's first launch.
/// The work of the rank with most is cut into equal numbers, that of others where their devices are
/// at the same moments, as far as clocks are known, else as far behind their own first work. Of
/// communication that was matched all ends are in one part, so a part may go on for longer on some
/// ranks; where there is no such place, two parts are one. Empty where one part is enough (all
/// of the traces), and where device work of a rank has no launches.
std::vector<std::vector<ImportedStep>> parts_of_ranks(std::span<const ImportedTrace> traces,
                                                      const CollectiveMatching& matching,
                                                      const PartSizes& sizes);

}  // namespace moetune::profiler
