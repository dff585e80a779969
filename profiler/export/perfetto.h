// Traces as Perfetto's own files (protobuf), which ui.perfetto.dev and trace_processor open: a
// third as large as Chrome JSON, and arrows belong to slices instead of moments.
#pragma once

#include <ostream>
#include <span>
#include <vector>

#include "profiler/export/timeline_events.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Writes all events of tell_timeline(). A rank is a process whose pid is the rank + 1 (0 is idle),
/// its rows and counters are tracks of it. Slices on one track have to lie within each other there:
/// where they overlap otherwise, the row gets further tracks of its name. Times are nanoseconds
/// from the earliest start of all steps on. Slices and arrows are in the order of the events:
/// slices are numbered from 1 by their annotation "slice", arrows by their flow ids.
void write_perfetto(std::ostream& out, const std::vector<StepTrace>& traces,
                    const TimelineOptions& options = {});

/// The same with all that tell_imported tells.
void write_imported_perfetto(std::ostream& out, std::span<const ImportedTrace> traces);

}  // namespace moetune::profiler
