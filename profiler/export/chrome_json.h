// Traces for other tools' timelines: Chrome's trace event format, which chrome://tracing and
// Perfetto open.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "profiler/record.h"

namespace moetune::profiler {

struct ChromeJsonOptions {
  std::string trace_name = "moetune";
  /// Row titles by stream number; others are called "stream N".
  std::map<int32_t, std::string> stream_names;
};

/// Writes one JSON object: a process per rank, a row per stream and one for the host (its launches
/// and its waits). Times are microseconds with fractions, from the earliest start of all steps on.
void write_chrome_json(std::ostream& out, const std::vector<StepTrace>& traces,
                       const ChromeJsonOptions& options = {});

}  // namespace moetune::profiler
