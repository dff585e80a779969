// Which steps of several ranks' traces count where figures of one step are told: the mean of a rank
// is over the same steps as that of the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "profiler/analysis/intervals.h"
#include "profiler/analysis/launch_order.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Of `marked`, by start, the steps in which device work was launched. Of steps that overlap the
/// first is kept, and so it is of those with the same number: the file is wrong.
std::vector<ImportedStep> steps_with_work(const std::vector<ImportedStep>& marked,
                                          const std::vector<LaunchedWork>& work);

/// Of one rank.
struct CountedSteps {
  size_t num = 1;
  /// The host's time from the first one to the last; none where there are no steps, and all work is
  /// one.
  std::optional<Interval> host;
  bool has_launches = false;  ///< of device work, anywhere in the trace

  /// Whether work is part of them: it was launched in their time, or where there are no steps at
  /// all. A trace without launches is taken whole.
  [[nodiscard]] bool hold(const ImportedTrace& trace, const ImportedOp& op) const {
    if (!has_launches) return true;
    const HostCall* call = trace.launch_of(op);
    return call != nullptr &&
           (!host || (host->start_ns <= call->start_ns && call->start_ns < host->end_ns));
  }
};

/// By trace: from the first to the last of the steps (steps_of_ranks) with work on all ranks that
/// have device work, with whatever steps a rank has between them. Where no step is common, each
/// rank's own ones.
std::vector<CountedSteps> counted_steps(std::span<const ImportedTrace> traces,
                                        const CollectiveMatching& matching);

}  // namespace moetune::profiler
