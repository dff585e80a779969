// The counterfactual of imported traces: their steps, replayed without one cause after another
// (step_verdict.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/step_verdict.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

struct ImportedReplay {
  /// Verdict of the step with the median ceiling, among the steps with the most frequent label.
  StepVerdict verdict;
  double low_ratio = 0;   ///< smallest ceiling of that label over all steps
  double high_ratio = 0;  ///< largest one
  int num_steps = 0;      ///< steps that were replayed
  int num_agreeing = 0;   ///< replayed steps with that label
  /// Largest relative difference between a recorded step and its replay with nothing dropped.
  double error_ratio = 0;
};

/// Replays some of the run's steps, evenly spaced; fewer if they are large. Empty if there is no
/// device work, or too much of it in one step. `verdict.rank` is an index into `traces`, as in its
/// text().
/// Recomputation is memory's doing only where `memory` shows that it was short.
std::optional<ImportedReplay> replay_imported(std::span<const ImportedTrace> traces,
                                              const CollectiveMatching& matching,
                                              const MemoryFacts& memory = {});

/// Sets what the records of one step wait for on other streams where their traces do not say it and
/// the replay infers it from the order of ends and starts. `communicators`: of the same
/// ImportedSteps.
void infer_producers(std::vector<StepTrace>& traces, const GroupInstances& communicators);

}  // namespace moetune::profiler
