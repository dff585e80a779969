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
/// and its waits); arrows (flows) from each launch to what it launched and from an operation to one
/// of another stream that had to wait for it; per rank the counters "FLOP/s" and "communication
/// B/s", as if each operation went on evenly from its start to its end. Times are microseconds with
/// fractions, from the earliest start of all steps on.
void write_chrome_json(std::ostream& out, const std::vector<StepTrace>& traces,
                       const ChromeJsonOptions& options = {});

}  // namespace moetune::profiler
