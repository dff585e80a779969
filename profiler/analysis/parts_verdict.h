// What holds a trace back that has no steps and is replayed in parts (trace_parts.h). A part is no
// step like the others: what one has at its end, another may not have at all, so they do not vote.
#pragma once

#include <span>

#include "profiler/analysis/steps_verdict.h"

namespace moetune::profiler {

/// As if the parts had been replayed as one. Not for no parts. Rules:
///  - Ratios are means of the parts', by their lengths.
///  - The label is chosen from these ceilings as that of a step is (judge_step).
///  - Its cause, rank and link are those of the part with that label that it makes longest; without
///    such a part it is the cause with the largest ceiling.
///  - The interval is that of the label's ceilings in the parts.
StepsVerdict verdict_of_parts(std::span<const StepVerdict> parts);

}  // namespace moetune::profiler
