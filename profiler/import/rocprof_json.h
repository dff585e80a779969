// Traces of AMD's rocprofv3, from the JSON that it writes by rocprofiler-sdk.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// An object that begins with the list "rocprofiler-sdk-tool".
bool is_rocprof_json(std::string_view head);

/// One trace for each device (agent) of each process, in the order of the file and then of agents.
/// Rules:
///  - A dispatch is a kernel. What runs in order is its queue: the stream_id beside it may be
///    another for every dispatch.
///  - Copies are those of memory_copy; copies and fills that were kernels stay kernels.
///  - Calls of HIP join by the internal correlation id; where they were not recorded (--hip-trace)
///    no op has a launch.
///  - Ranges are those of rocTX and of RCCL's calls, and steps ranges called so (range_steps.h).
///  - Times are nanoseconds of the host's monotonic clock.
/// Throws base::UsageError as TraceFileFormat::read, also where there is no device work.
std::vector<ImportedTrace> read_rocprof_json(const std::string& path);

}  // namespace moetune::profiler
