#include "profiler/export/timeline_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "profiler/export/rate_counter.h"
#include "profiler/record_details.h"

namespace moetune::profiler {
namespace {

int64_t row_of(int32_t stream) { return static_cast<int64_t>(stream) + 1; }

std::vector<TimelineArg> arguments(const StepTrace& trace, const TraceRecord& record) {
  std::vector<TimelineArg> args;
  for_each_detail(record, [&](const char* key, const auto& value, int64_t absent) {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, base::InternedString>) {
      if (!value.empty()) args.push_back({key, value.text()});
    } else if constexpr (std::is_same_v<Value, bool>) {
      if (value) args.push_back({key, true});
    } else if constexpr (std::is_same_v<Value, std::array<int32_t, 3>>) {
      if (value != Value()) args.push_back({key, std::vector<int64_t>(value.begin(), value.end())});
    } else {
      if (value != absent) args.push_back({key, static_cast<int64_t>(value)});
    }
  });
  const auto waits = further_waits_of(trace, record.id);
  if (!waits.empty()) {
    std::vector<int64_t> producers;
    for (const FurtherWait& wait : waits) producers.push_back(wait.producer_id);
    args.push_back({kDetailOfFurtherProducers, std::move(producers)});
  }
  // A slice cannot end before it starts; what does is drawn without length.
  if (record.end_ns < record.start_ns) args.push_back({kDetailOfEnd, record.end_ns});
  return args;
}

/// Per rank over all its steps.
void tell_counters(TimelineSink& sink, const std::vector<StepTrace>& traces) {
  struct Rates {
    RateCounter flops;
    RateCounter sent;
  };
  std::map<int32_t, Rates> ranks;
  for (const StepTrace& trace : traces) {
    Rates& rates = ranks[trace.rank];
    for (const TraceRecord& record : trace.records) {
      rates.flops.add(record.start_ns, record.end_ns, record.flops);
      if (record.kind != RecordKind::collective && record.kind != RecordKind::p2p) continue;
      // Data moves at the end, after the last of the ranks has arrived.
      const int64_t start_ns = record.transfer_ns > 0
                                   ? std::max(record.start_ns, record.end_ns - record.transfer_ns)
                                   : record.start_ns;
      rates.sent.add(start_ns, record.end_ns, record.bytes);
    }
  }
  for (const auto& [rank, rates] : ranks) {
    rates.flops.tell(sink, rank, "FLOP/s");
    rates.sent.tell(sink, rank, "communication B/s");
  }
}

void tell_rows(TimelineSink& sink, const std::vector<StepTrace>& traces,
               const TimelineOptions& options) {
  std::map<int32_t, std::set<int32_t>> streams;
  for (const StepTrace& trace : traces) {
    auto& of_rank = streams[trace.rank];
    of_rank.insert(kHostStream);
    for (const TraceRecord& record : trace.records) of_rank.insert(record.stream);
  }
  for (const auto& [rank, of_rank] : streams) {
    sink.rank(rank, fmt::format("rank {}", rank));
    for (const int32_t stream : of_rank) {
      const auto named = options.stream_names.find(stream);
      sink.row(rank, row_of(stream),
               stream == kHostStream                 ? "host"
               : named != options.stream_names.end() ? named->second
                                                     : fmt::format("stream {}", stream));
    }
  }
}

class StepTeller {
 public:
  explicit StepTeller(TimelineSink& sink) : sink_(sink) {}

  void tell(const StepTrace& trace) {
    slice({trace.rank,
           row_of(kHostStream),
           fmt::format("step {}", trace.step),
           "step",
           trace.start_ns,
           trace.end_ns,
           {{"step", static_cast<int64_t>(trace.step)}}});
    slices_.clear();
    last_graph_launch_ns_ = std::numeric_limits<int64_t>::min();
    for (const TraceRecord& record : trace.records) tell(trace, record);
    tell_waits(trace);
  }

 private:
  size_t slice(TimelineSlice slice) {
    slice.end_ns = std::max(slice.start_ns, slice.end_ns);
    sink_.slice(slice);
    return num_slices_++;
  }

  void tell(const StepTrace& trace, const TraceRecord& record) {
    const size_t own = slice({trace.rank, row_of(record.stream), record.name, name_of(record.kind),
                              record.start_ns, record.end_ns, arguments(trace, record)});
    slices_[record.id] = {own, &record};
    // The operations of a graph share one launch: it is drawn once.
    const bool is_same_launch =
        record.graph_id != 0 && record.launch_start_ns == last_graph_launch_ns_;
    if (record.graph_id != 0) last_graph_launch_ns_ = record.launch_start_ns;
    if (record.stream == kHostStream || record.launch_end_ns <= record.launch_start_ns ||
        is_same_launch) {
      return;
    }
    const size_t launch =
        slice({trace.rank,
               row_of(kHostStream),
               record.graph_id != 0 ? "launch graph" : "launch " + record.name.text(),
               "launch",
               record.launch_start_ns,
               record.launch_end_ns,
               {{"id", record.id}}});
    sink_.flow({"launches",
                {launch, trace.rank, row_of(kHostStream), record.launch_start_ns},
                {own, trace.rank, row_of(record.stream), record.start_ns}});
  }

  /// From what had to end before a record could start, where that ran on another stream.
  void tell_waits(const StepTrace& trace) {
    for (const TraceRecord& record : trace.records) {
      tell_wait(trace, record, record.producer_id);
      for (const FurtherWait& wait : further_waits_of(trace, record.id)) {
        if (wait.producer_id != record.producer_id) tell_wait(trace, record, wait.producer_id);
      }
    }
  }

  void tell_wait(const StepTrace& trace, const TraceRecord& record, int64_t producer_id) {
    const auto found = slices_.find(producer_id);
    if (producer_id == kNoRecord || found == slices_.end()) return;
    const TraceRecord& producer = *found->second.record;
    if (producer.stream == record.stream) return;
    // The last moment that is still within the slice; of a message that is still on its way, the
    // one in which its memory was free.
    const bool is_message = producer.kind == RecordKind::p2p;
    const int64_t last_ns =
        std::max(producer.start_ns,
                 std::min(producer.end_ns - 1, is_message ? record.start_ns : producer.end_ns));
    sink_.flow({"waits for",
                {found->second.slice, trace.rank, row_of(producer.stream), last_ns},
                {slices_.at(record.id).slice, trace.rank, row_of(record.stream), record.start_ns}});
  }

  struct Told {
    size_t slice = 0;
    const TraceRecord* record = nullptr;
  };
  TimelineSink& sink_;
  size_t num_slices_ = 0;
  std::map<int64_t, Told> slices_;  // of this step, by the record's id
  int64_t last_graph_launch_ns_ = 0;
};

}  // namespace

int64_t origin_of(const std::vector<StepTrace>& traces) {
  int64_t origin_ns = traces.empty() ? 0 : std::numeric_limits<int64_t>::max();
  for (const StepTrace& trace : traces) origin_ns = std::min(origin_ns, trace.start_ns);
  return origin_ns;
}

void tell_timeline(const std::vector<StepTrace>& traces, const TimelineOptions& options,
                   TimelineSink& sink) {
  tell_rows(sink, traces, options);
  StepTeller teller(sink);
  for (const StepTrace& trace : traces) teller.tell(trace);
  tell_counters(sink, traces);
}

}  // namespace moetune::profiler
