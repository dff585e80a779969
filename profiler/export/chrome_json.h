// Traces for other tools' timelines: Chrome's trace event format, which chrome://tracing and
// Perfetto open, and which we read back (import/step_traces.h).
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "profiler/export/timeline_events.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Writes one JSON object with all events of tell_timeline(). Times are decimals of
/// microseconds, to the nanosecond, from the earliest start of all steps on; "otherData" says which
/// moment of the run's clock that is. Records can be read back unchanged, except that bytes that
/// are not UTF-8 are replaced.
void write_chrome_json(std::ostream& out, const std::vector<StepTrace>& traces,
                       const TimelineOptions& options = {});

/// The same with all that tell_imported tells, in the words of PyTorch's profiler. A file of one
/// trace is imported again as it was: times, names, calls, threads, streams, communication, work of
/// kernels, the memory's peak, rank and devices (graphs that ran as a whole are kernels). One of
/// several is for viewers alone, and says so. Of a path, `trace_name`, only the last part is
/// written.
void write_imported_chrome_json(std::ostream& out, std::span<const ImportedTrace> traces,
                                const std::string& trace_name);

}  // namespace moetune::profiler
