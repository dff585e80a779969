// Traces with known answers: written by hand record by record, or at random through the virtual
// clock.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <utility>

#include "profiler/record.h"
#include "profiler/timeline.h"

namespace moetune::profiler {

/// Builds one step; ids follow the order of the calls.
class TraceBuilder {
 public:
  TraceBuilder(int64_t start_ns, int64_t end_ns, int32_t rank = 0) {
    trace_.rank = rank;
    trace_.start_ns = start_ns;
    trace_.end_ns = end_ns;
  }

  TraceRecord& add(RecordKind kind, const std::string& name, int32_t stream, int64_t launched_ns,
                   int64_t start_ns, int64_t end_ns) {
    TraceRecord record;
    record.id = static_cast<int64_t>(trace_.records.size());
    record.rank = trace_.rank;
    record.kind = kind;
    record.name = name;
    record.stream = stream;
    record.launch_start_ns = record.launch_end_ns = launched_ns;
    record.start_ns = start_ns;
    record.end_ns = end_ns;
    return trace_.records.emplace_back(std::move(record));
  }
  TraceRecord& kernel(const std::string& name, int32_t stream, int64_t launched_ns,
                      int64_t start_ns, int64_t end_ns, int64_t producer_id = kNoRecord) {
    TraceRecord& record = add(RecordKind::kernel, name, stream, launched_ns, start_ns, end_ns);
    record.producer_id = producer_id;
    return record;
  }
  TraceRecord& collective(const std::string& group, int32_t stream, int64_t launched_ns,
                          int64_t start_ns, int64_t end_ns, int64_t transfer_ns,
                          int64_t producer_id = kNoRecord) {
    TraceRecord& record =
        add(RecordKind::collective, group + "_op", stream, launched_ns, start_ns, end_ns);
    record.group = group;
    record.transfer_ns = transfer_ns;
    record.producer_id = producer_id;
    return record;
  }
  TraceRecord& host_sync(int64_t start_ns, int64_t end_ns, int64_t producer_id) {
    TraceRecord& record =
        add(RecordKind::host_sync, "sync", kHostStream, start_ns, start_ns, end_ns);
    record.producer_id = producer_id;
    return record;
  }

  [[nodiscard]] const StepTrace& trace() const { return trace_; }

 private:
  StepTrace trace_;
};

/// A random program on three streams with events, synchronisations and graphs, played by the
/// virtual clock: every gap of it has a cause that the trace holds.
inline StepTrace random_timeline_trace(std::mt19937_64& random) {
  const auto up_to = [&random](int64_t n) {
    return std::uniform_int_distribution<int64_t>(0, n)(random);
  };
  static constexpr std::array<const char*, 4> kNames = {"gemm.forward", "permute.forward",
                                                        "norm.backward", "attention"};
  static const std::array<std::string, 3> kGroups = {"ep", "dp", "pp"};
  constexpr int kStreams = 3;
  Timeline clock(ClockMode::virtual_modelled, 0, kStreams, {up_to(20), up_to(30), up_to(10)});
  clock.begin_step(0, TraceLevel::all);
  bool in_graph = false;
  const int64_t num_ops = up_to(60);
  for (int64_t i = 0; i < num_ops; ++i) {
    const auto stream = static_cast<int>(up_to(kStreams - 1));
    const auto other = static_cast<int>(up_to(kStreams - 1));
    while (up_to(2) == 0) {
      clock.wait_event(stream, clock.record_event(static_cast<int>(up_to(kStreams - 1))));
    }
    if (up_to(9) == 0 && !in_graph) clock.synchronize(clock.record_event(other), {"sync"});
    if (up_to(7) == 0) {
      if (in_graph) {
        clock.end_graph();
      } else {
        clock.begin_graph();
      }
      in_graph = !in_graph;
    }
    OpTag tag;
    tag.name = kNames[static_cast<size_t>(up_to(3))];
    tag.is_recompute = up_to(5) == 0;
    const int64_t start_ns = clock.launch(stream);
    const int64_t kind = up_to(5);
    if (kind == 0) {
      const int64_t transfer_ns = up_to(40);
      clock.finish_communication(stream, RecordKind::collective, tag,
                                 kGroups[static_cast<size_t>(up_to(2))], i, start_ns,
                                 start_ns + up_to(30) + transfer_ns, transfer_ns);
    } else {
      clock.finish(stream, kind == 1 ? RecordKind::memcpy : RecordKind::kernel, tag, start_ns,
                   up_to(50));
    }
  }
  return clock.end_step(clock.latest_ns() + up_to(1) * up_to(50));
}

/// Records that follow no rule but that they end after they start: what a broken import may hold.
inline StepTrace random_garbage_trace(std::mt19937_64& random) {
  const auto up_to = [&random](int64_t n) {
    return std::uniform_int_distribution<int64_t>(0, n)(random);
  };
  TraceBuilder builder(50, 50 + up_to(300));
  const int64_t num_records = up_to(20);
  for (int64_t i = 0; i < num_records; ++i) {
    const int64_t start_ns = up_to(400);
    TraceRecord& record =
        builder.add(static_cast<RecordKind>(up_to(4)), up_to(3) == 0 ? "permute" : "op",
                    static_cast<int32_t>(up_to(3)), up_to(400), start_ns, start_ns + up_to(80));
    record.producer_id = up_to(25) - 3;
    record.transfer_ns = up_to(200) - 50;
    record.group = up_to(1) == 0 ? "ep" : "pp";
    record.is_recompute = up_to(2) == 0;
    record.graph_id = static_cast<int32_t>(up_to(2));
  }
  return builder.trace();
}

}  // namespace moetune::profiler
