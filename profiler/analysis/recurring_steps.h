// Steps of a trace that nobody marked: a program that does the same in each step launches the same
// kernels in the same order again and again.
#pragma once

#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// The trace's steps where it has some. Otherwise the periods of its kernels in the order of their
/// launches, counted from 0, each from its first launch to the next one's: the smallest period by
/// which every kernel has the name of the one before (found by the prefix function of Knuth, Morris
/// & Pratt 1977), if there are at least 3 whole ones of at least 8 kernels. A trace that begins
/// within a step has periods that begin there, too. Layers of one step do not pass for steps, since
/// other kernels stand before and behind them. Empty where there is no such period.
std::vector<ImportedStep> recurring_steps(const ImportedTrace& trace);

}  // namespace moetune::profiler
