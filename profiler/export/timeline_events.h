// The events of a timeline of step traces: rows, slices, arrows and counters. tell_timeline()
// passes them one after another to a sink. Each format is a sink and writes all events, so that all
// formats have the same contents. The traces of other tools are passed by imported_events.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "profiler/record.h"

namespace moetune::profiler {

struct TimelineOptions {
  std::string trace_name = "moetune";
  /// Row titles by stream number; others are called "stream N".
  std::map<int32_t, std::string> stream_names;
};

/// A named value of a slice.
struct TimelineArg {
  const char* key;
  std::variant<int64_t, bool, std::string, std::vector<int64_t>> value;
};

/// Rows of a rank are numbered from 0: the host, or its threads, first, then the streams in order.
struct TimelineSlice {
  int32_t rank = 0;
  int64_t row = 0;
  std::string name;
  const char* category = "";
  int64_t start_ns = 0;
  int64_t end_ns = 0;  ///< never before start_ns
  std::vector<TimelineArg> args;
};

/// An arrow between two slices, which are numbered from 0 in the order of the calls.
struct TimelineFlow {
  /// A moment within a slice: where the arrow begins or ends.
  struct Place {
    size_t slice = 0;
    int32_t rank = 0;
    int64_t row = 0;
    int64_t ns = 0;
  };
  const char* name = "";
  Place from;
  Place to;
};

class TimelineSink {
 public:
  virtual ~TimelineSink() = default;
  virtual void rank(int32_t rank, const std::string& name) = 0;
  virtual void row(int32_t rank, int64_t row, const std::string& name) = 0;
  virtual void slice(const TimelineSlice& slice) = 0;
  virtual void flow(const TimelineFlow& flow) = 0;
  /// The counter has this value from `ns` on.
  virtual void counter(int32_t rank, const char* name, int64_t ns, double value) = 0;
};

/// The earliest start of all steps; 0 where there is none.
int64_t origin_of(const std::vector<StepTrace>& traces);

/// Tells a process per rank, a row per stream and one for the host (its launches and its waits);
/// arrows from each launch to what it launched and from an operation to all of other streams that
/// had to wait for it; per rank the counters "FLOP/s" and "communication B/s", as if each operation
/// went on evenly from its start to its end. A step is a slice "step N" of the host's row, before
/// those of its records. Slices of records have the category name_of(kind).
void tell_timeline(const std::vector<StepTrace>& traces, const TimelineOptions& options,
                   TimelineSink& sink);

}  // namespace moetune::profiler
