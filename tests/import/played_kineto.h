// Played steps of emulated clusters as PyTorch's profiler would have recorded them: so verdicts on
// imported traces are judged by faults of known kind, too. Of what our records know, files of that
// profiler do not have layers, micro-batches, FLOPs, and what a synchronisation waited for;
// recomputation is marked as the importer marks it by autograd's operators, which are left out;
// waits between streams are calls, and events of their own if it was told to record
// them (enable_cuda_sync_events).
#pragma once

#include <string>
#include <vector>

#include "profiler/analysis/overlap.h"
#include "profiler/imported_trace.h"
#include "profiler/record.h"

namespace moetune::tests {

/// One trace for each rank, with events for waits. A step is one "ProfilerStep#3", from its start
/// until the host is done with it.
std::vector<profiler::ImportedTrace> as_recorded(const std::vector<profiler::StepTrace>& step,
                                                 const profiler::GroupInstances& communicators);

/// The same, each written as a file of Kineto's form into `folder`, in place of what was written
/// there before, and imported again.
std::vector<profiler::ImportedTrace> through_kineto(const std::vector<profiler::StepTrace>& step,
                                                    const profiler::GroupInstances& communicators,
                                                    const std::string& folder);

/// As the same run is recorded without events for waits.
void forget_waits(std::vector<profiler::ImportedTrace>& traces);
/// As it is recorded where about so many of a hundred calls that launch kernels are lost.
void forget_launches(std::vector<profiler::ImportedTrace>& traces, int percent);

}  // namespace moetune::tests
