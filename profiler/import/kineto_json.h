// Traces of PyTorch's profiler (Kineto), and of others that write Chrome JSON with its categories.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// An object with traceEvents, or the bare list of events.
bool is_kineto_json(std::string_view head);

/// One trace. Rules:
///  - Device work: complete events ("ph": "X") of the categories kernel, gpu_memcpy and gpu_memset,
///    whatever arguments others carry. Its call has the same correlation.
///  - ts and dur are microseconds in decimals and become integer nanoseconds by their digits. A
///    negative dur counts as 0 and is counted.
///  - Steps are the host's annotations "ProfilerStep#N".
///  - Times of a file that we wrote ourselves (export/chrome_json.h) come back on the clock that
///  they
///    had; one that shows several ranks to viewers is refused.
///  - The rank is that of distributedInfo, else that of the file's name, else unknown.
/// Throws base::UsageError as TraceFileFormat::read.
std::vector<ImportedTrace> read_kineto_json(const std::string& path);

}  // namespace moetune::profiler
