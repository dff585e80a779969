// What a timeline shows of the traces of other tools (imported_trace.h), told to the same writers
// as the steps of our own engine. Categories and arguments are those of PyTorch's profiler, so that
// Chrome JSON of it can be imported again, by us and by others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profiler/export/timeline_events.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// The earliest start of all that is told; 0 where there is nothing.
int64_t start_of_imported(std::span<const ImportedTrace> traces);

/// Whether there is anything to tell: device work, calls, or ranges.
bool has_events(std::span<const ImportedTrace> traces);

/// Whether importers take all times of what is written, which count from the earliest start. Those
/// of broken files may be centuries apart.
bool can_be_read_back(std::span<const ImportedTrace> traces);

/// By trace: the number of its process. That is its rank, unless a file does not say its rank or
/// two say the same: then they are counted.
std::vector<int32_t> shown_ranks(std::span<const ImportedTrace> traces);

/// Tells a process per trace, with a row for each host thread, behind them one for each stream and,
/// where the file has waits, those of streams and those of the host; an arrow from each call to
/// what it launched; per trace the counters "FLOP/s" (where shapes are known), "communication B/s"
/// and "copied B/s". A trace has to be finished. Not told are memory's peaks, which
/// chrome_json.h writes beside the events, and what an ImportedTrace does not keep, as operators
/// and stacks.
void tell_imported(std::span<const ImportedTrace> traces, TimelineSink& sink);

}  // namespace moetune::profiler
