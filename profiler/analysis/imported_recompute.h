// Work of imported traces that computed activations a second time (ImportedTrace::recomputed): what
// time it took, and in which words that is told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/analysis/intervals.h"
#include "profiler/analysis/kernel_classes.h"
#include "profiler/analysis/wall.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Whether the device work of that row computed something again.
bool is_recomputed(const ImportedTrace& trace, uint32_t row);

/// When, of some work of a trace (rows of its ops), such work ran that does not communicate, and
/// nothing else computed.
IntervalSet recomputed_alone(const ImportedTrace& trace, const std::vector<uint32_t>& ops,
                             const WorkClasses& wide);

/// What recomputation costs, and to which label that counts: to memory where headroom shows that
/// memory was short, else to what the same work is otherwise. `share_ratio`: of the traced time, in
/// which nothing else computed; `saved_ratio`: of a step, that would be saved without it.
Evidence recompute_evidence(double share_ratio, double saved_ratio, const MemoryFacts& memory);

/// "76.0 GiB of 80.0 GiB"
std::string text_of_use(const MemoryFacts& memory);

}  // namespace moetune::profiler
