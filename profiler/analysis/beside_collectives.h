// Work that runs beside collectives, which take multiprocessors and bandwidth from it.
#pragma once

#include "profiler/analysis/alike_work.h"
#include "profiler/analysis/replayed_run.h"
#include "profiler/analysis/shorter_durations.h"
#include "profiler/analysis/step_verdict.h"
#include "profiler/analysis/work_traits.h"

namespace moetune::profiler {

/// Work beside a collective as it would be without one. What alike work of the rank takes there
/// longer than alone (or, where none runs alone, than as near to the roofline as the rank's other
/// work that is bound alike) is spread over the time in which collectives cover it. Where no size
/// is known, work that is covered for the most part takes as long as work of the rank that may be
/// of the same size (alone_ns); from what that loses follows what the rest loses.
ShorterDurations without_collectives(const ReplayedRun& run, const AlikeWork& alike,
                                     const WorkTraits& traits, const StepFacts& facts);

}  // namespace moetune::profiler
