// Traces for other tools' timelines: Chrome's trace event format, which chrome://tracing and
// Perfetto open, and which we read back (import/step_traces.h).
#pragma once

#include <ostream>
#include <vector>

#include "profiler/export/timeline_events.h"

namespace moetune::profiler {

/// Writes one JSON object with all events of tell_timeline(). Times are microseconds with
/// fractions, from the earliest start of all steps on; "otherData" says which moment of the run's
/// clock that is. Records can be read back unchanged, except that bytes that are not UTF-8 are
/// replaced.
void write_chrome_json(std::ostream& out, const std::vector<StepTrace>& traces,
                       const TimelineOptions& options = {});

}  // namespace moetune::profiler
