// The counterfactual of imported traces: their steps, replayed without one cause after another
// (step_verdict.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "profiler/analysis/critical_path.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/steps_verdict.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

struct ImportedReplay : StepsVerdict {
  bool are_parts = false;  ///< of a trace without steps (trace_parts.h), instead of steps
  size_t num_parts = 0;    ///< or steps, of which some were replayed
  /// Largest relative difference between a recorded step and its replay with nothing dropped.
  double error_ratio = 0;
};

/// Replays some of the run's steps, evenly spaced; fewer if they are large. Of large traces without
/// steps these are parts (trace_parts.h). Empty if there is no device work, or too much of it in
/// one step. `verdict.rank` is an index into `traces`, as in its text(). Recomputation is memory's
/// doing only where `memory` shows that it was short.
/// `shares`: by label, of the time (StepFacts::shares).
std::optional<ImportedReplay> replay_imported(
    std::span<const ImportedTrace> traces, const CollectiveMatching& matching,
    const MemoryFacts& memory = {},
    const std::optional<std::array<double, kNumWalls>>& shares = {});

/// Sets what the records of one step wait for on other streams where their traces do not say it and
/// the replay infers it from the order of ends and starts. `communicators`: of the same
/// ImportedSteps.
void infer_producers(std::vector<StepTrace>& traces, const GroupInstances& communicators);

/// The critical path of one step across its ranks, which are indices of traces; empty with more
/// work than can be followed. Throws base::Error where a trace contradicts itself.
CriticalPath path_of_imported(const std::vector<StepTrace>& traces,
                              const GroupInstances& communicators);

}  // namespace moetune::profiler
