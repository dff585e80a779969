// One process for each rank, one thread for each stream, arrows for dependencies, counters for
// memory. Format: "Trace Event Format", Google, section "JSON Object Format".
#include "profiler/export/chrome_json.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/base/error.h"

namespace moetune::profiler {
namespace {

using nlohmann::json;

/// Rows are numbered from 0: the host first, then the streams in order.
int64_t thread_id(int32_t stream) { return static_cast<int64_t>(stream) + 1; }

class Writer {
 public:
  Writer(std::ostream& out, int64_t origin_ns) : out_(out), origin_ns_(origin_ns) {}

  void event(const json& value) {
    // Names come from traces that may not be ours: invalid UTF-8 is replaced, not thrown at.
    out_ << (is_first_ ? "\n" : ",\n")
         << value.dump(-1, ' ', false, json::error_handler_t::replace);
    is_first_ = false;
  }

  void metadata(const char* kind, int32_t rank, int64_t row, const json& args) {
    event({{"ph", "M"}, {"name", kind}, {"pid", rank}, {"tid", row}, {"args", args}});
  }

  void slice(int32_t rank, int64_t row, const std::string& name, const char* category,
             int64_t start_ns, int64_t end_ns, json args) {
    event({{"ph", "X"},
           {"name", name},
           {"cat", category},
           {"pid", rank},
           {"tid", row},
           {"ts", microseconds(start_ns - origin_ns_)},
           {"dur", microseconds(std::max<int64_t>(0, end_ns - start_ns))},
           {"args", std::move(args)}});
  }

  /// A moment within a slice: where an arrow begins or ends.
  struct Place {
    int32_t rank;
    int64_t row;
    int64_t ns;
  };
  /// An arrow; viewers bind its ends to the slices that are there at these moments.
  void flow(const char* name, const Place& from, const Place& to) {
    ++num_flows_;
    event({{"ph", "s"},
           {"id", num_flows_},
           {"name", name},
           {"cat", "flow"},
           {"pid", from.rank},
           {"tid", from.row},
           {"ts", microseconds(from.ns - origin_ns_)}});
    event({{"ph", "f"},
           {"bp", "e"},
           {"id", num_flows_},
           {"name", name},
           {"cat", "flow"},
           {"pid", to.rank},
           {"tid", to.row},
           {"ts", microseconds(to.ns - origin_ns_)}});
  }

  void counter(int32_t rank, const char* name, int64_t ns, double value) {
    event({{"ph", "C"},
           {"name", name},
           {"pid", rank},
           {"ts", microseconds(ns - origin_ns_)},
           {"args", {{"value", value}}}});
  }

 private:
  static double microseconds(int64_t ns) { return static_cast<double>(ns) / 1e3; }

  std::ostream& out_;
  int64_t origin_ns_;
  int64_t num_flows_ = 0;
  bool is_first_ = true;
};

json arguments(const TraceRecord& record) {
  json args = {{"id", record.id}, {"step", record.step}};
  const auto add = [&](const char* key, int64_t value, int64_t absent) {
    if (value != absent) {
      args[key] = value;
    }
  };
  add("layer", record.layer, -1);
  add("micro_batch", record.micro_batch, -1);
  add("flops", record.flops, 0);
  add("bytes", record.bytes, 0);
  add("transfer_ns", record.transfer_ns, 0);
  add("sequence", record.sequence, -1);
  add("graph_id", record.graph_id, 0);
  add("producer_id", record.producer_id, kNoRecord);
  if (!record.group.empty()) {
    args["group"] = record.group;
  }
  if (record.is_recompute) {
    args["is_recompute"] = true;
  }
  return args;
}

/// Amounts that are spread evenly over intervals, as a rate that changes where one begins or ends.
class Rate {
 public:
  void add(int64_t start_ns, int64_t end_ns, int64_t amount) {
    if (amount <= 0 || end_ns <= start_ns) return;
    const double per_s = static_cast<double>(amount) / static_cast<double>(end_ns - start_ns) * 1e9;
    edges_[start_ns].per_s += per_s;
    edges_[start_ns].num_active += 1;
    edges_[end_ns].per_s -= per_s;
    edges_[end_ns].num_active -= 1;
  }

  void write(Writer& writer, int32_t rank, const char* name) const {
    Edge sum;
    for (const auto& [ns, edge] : edges_) {
      sum.per_s += edge.per_s;
      sum.num_active += edge.num_active;
      // Nothing left is zero, whatever rounding made of the sum.
      writer.counter(rank, name, ns, sum.num_active == 0 ? 0 : sum.per_s);
    }
  }

 private:
  struct Edge {
    double per_s = 0;
    int num_active = 0;
  };
  std::map<int64_t, Edge> edges_;
};

/// Per rank over all its steps.
void write_counters(Writer& writer, const std::vector<StepTrace>& traces) {
  struct Rates {
    Rate flops;
    Rate sent;
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
    rates.flops.write(writer, rank, "FLOP/s");
    rates.sent.write(writer, rank, "communication B/s");
  }
}

/// From what ended last before a record could start, where that ran on another stream.
void write_waits(Writer& writer, const StepTrace& trace) {
  std::map<int64_t, const TraceRecord*> by_id;
  for (const TraceRecord& record : trace.records) by_id[record.id] = &record;
  for (const TraceRecord& record : trace.records) {
    const auto found = by_id.find(record.producer_id);
    if (record.producer_id == kNoRecord || found == by_id.end()) continue;
    const TraceRecord& producer = *found->second;
    if (producer.stream == record.stream) continue;
    // The last moment that is still within the slice; of a message that is still on its way, the
    // one in which its memory was free.
    const bool is_message = producer.kind == RecordKind::p2p;
    const int64_t last_ns =
        std::max(producer.start_ns,
                 std::min(producer.end_ns - 1, is_message ? record.start_ns : producer.end_ns));
    writer.flow("waits for", {trace.rank, thread_id(producer.stream), last_ns},
                {trace.rank, thread_id(record.stream), record.start_ns});
  }
}

void write_rank_names(Writer& writer, const std::vector<StepTrace>& traces,
                      const ChromeJsonOptions& options) {
  std::map<int32_t, std::set<int32_t>> streams;
  for (const StepTrace& trace : traces) {
    auto& of_rank = streams[trace.rank];
    of_rank.insert(kHostStream);
    for (const TraceRecord& record : trace.records) {
      of_rank.insert(record.stream);
    }
  }
  for (const auto& [rank, of_rank] : streams) {
    writer.metadata("process_name", rank, 0, {{"name", fmt::format("rank {}", rank)}});
    writer.metadata("process_sort_index", rank, 0, {{"sort_index", rank}});
    for (const int32_t stream : of_rank) {
      const auto named = options.stream_names.find(stream);
      const std::string name = stream == kHostStream ? "host"
                               : named != options.stream_names.end()
                                   ? named->second
                                   : fmt::format("stream {}", stream);
      writer.metadata("thread_name", rank, thread_id(stream), {{"name", name}});
      writer.metadata("thread_sort_index", rank, thread_id(stream),
                      {{"sort_index", thread_id(stream)}});
    }
  }
}

}  // namespace

void write_chrome_json(std::ostream& out, const std::vector<StepTrace>& traces,
                       const ChromeJsonOptions& options) {
  int64_t origin_ns = traces.empty() ? 0 : std::numeric_limits<int64_t>::max();
  for (const StepTrace& trace : traces) {
    origin_ns = std::min(origin_ns, trace.start_ns);
  }
  out << R"({"displayTimeUnit":"ns","traceName":)"
      << json(options.trace_name).dump(-1, ' ', false, json::error_handler_t::replace)
      << R"(,"traceEvents":[)";
  Writer writer(out, origin_ns);
  write_rank_names(writer, traces, options);
  for (const StepTrace& trace : traces) {
    writer.slice(trace.rank, thread_id(kHostStream), fmt::format("step {}", trace.step), "step",
                 trace.start_ns, trace.end_ns, {{"step", trace.step}});
    int64_t last_graph_launch_ns = std::numeric_limits<int64_t>::min();
    for (const TraceRecord& record : trace.records) {
      writer.slice(trace.rank, thread_id(record.stream), record.name, name_of(record.kind),
                   record.start_ns, record.end_ns, arguments(record));
      // The operations of a graph share one launch: it is drawn once.
      const bool is_same_launch =
          record.graph_id != 0 && record.launch_start_ns == last_graph_launch_ns;
      if (record.graph_id != 0) {
        last_graph_launch_ns = record.launch_start_ns;
      }
      if (record.stream != kHostStream && record.launch_end_ns > record.launch_start_ns &&
          !is_same_launch) {
        writer.slice(trace.rank, thread_id(kHostStream),
                     record.graph_id != 0 ? std::string("launch graph") : "launch " + record.name,
                     "launch", record.launch_start_ns, record.launch_end_ns, {{"id", record.id}});
        writer.flow("launches", {trace.rank, thread_id(kHostStream), record.launch_start_ns},
                    {trace.rank, thread_id(record.stream), record.start_ns});
      }
    }
    write_waits(writer, trace);
  }
  write_counters(writer, traces);
  out << "\n]}\n";
}

}  // namespace moetune::profiler
