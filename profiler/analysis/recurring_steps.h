// Steps of a trace that nobody marked: a program that does the same in each step launches the same
// kernels in the same order again and again.
#pragma once

#include <span>
#include <vector>

#include "profiler/analysis/matched_collectives.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// The trace's steps where it has some. Otherwise the periods of its kernels in the order of their
/// launches, counted from 0, each from its first launch to the next one's: the smallest period by
/// which every kernel has the name of the one before (found by the prefix function of Knuth, Morris
/// & Pratt 1977), if there are at least 3 whole ones of at least 8 kernels. A trace that begins
/// within a step has periods that begin there, too. Layers of one step do not pass for steps, since
/// other kernels stand before and behind them. Empty where there is no such period.
std::vector<ImportedStep> recurring_steps(const ImportedTrace& trace);

/// By trace: the steps that are marked, if any trace has some; otherwise the periods of each. The
/// k-th periods of several ranks are taken for one step only where all ranks have equally many and
/// whatever communication was matched was launched in one period by all that took part. Else those
/// are, numbered alike, that begin with the same launch: where all ranks have at least two periods
/// of the same length, one has three, and every matched collective stands at the same place of it.
/// Where messages were matched, and where nothing was, there are no steps then.
std::vector<std::vector<ImportedStep>> steps_of_ranks(std::span<const ImportedTrace> traces,
                                                      const CollectiveMatching& matching);

}  // namespace moetune::profiler
