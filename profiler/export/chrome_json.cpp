// One process for each rank, one thread for each stream, arrows for dependencies, counters for
// rates. Format: "Trace Event Format", Google, section "JSON Object Format".
#include "profiler/export/chrome_json.h"

#include <fmt/format.h>

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "profiler/export/imported_events.h"
#include "profiler/record_details.h"

namespace moetune::profiler {
namespace {

using nlohmann::json;

/// Names come from traces that may not be ours: invalid UTF-8 is replaced, not thrown at.
std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// A decimal: a double holds microseconds since 1970 only to a quarter of one.
std::string microseconds(int64_t ns) {
  const auto bits = static_cast<uint64_t>(ns);
  const uint64_t length_ns = ns < 0 ? 0 - bits : bits;
  return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", length_ns / 1000, length_ns % 1000);
}

class ChromeWriter : public TimelineSink {
 public:
  ChromeWriter(std::ostream& out, int64_t origin_ns) : out_(out), origin_ns_(origin_ns) {}

  void rank(int32_t rank, const std::string& name) override {
    metadata("process_name", rank, 0, {{"name", name}});
    metadata("process_sort_index", rank, 0, {{"sort_index", rank}});
  }

  void row(int32_t rank, int64_t row, const std::string& name) override {
    metadata("thread_name", rank, row, {{"name", name}});
    metadata("thread_sort_index", rank, row, {{"sort_index", row}});
  }

  void slice(const TimelineSlice& slice) override {
    json args = json::object();
    for (const TimelineArg& arg : slice.args) {
      std::visit([&](const auto& value) { args[arg.key] = value; }, arg.value);
    }
    event({{"ph", "X"},
           {"name", slice.name},
           {"cat", slice.category},
           {"pid", slice.rank},
           {"tid", slice.row},
           {"args", std::move(args)}},
          {{"ts", slice.start_ns - origin_ns_}, {"dur", slice.end_ns - slice.start_ns}});
  }

  /// Viewers bind the ends of an arrow to the slices that are there at these moments.
  void flow(const TimelineFlow& flow) override {
    ++num_flows_;
    const auto end = [&](const char* phase, const TimelineFlow::Place& place) {
      return json{{"ph", phase},   {"id", num_flows_},  {"name", flow.name},
                  {"cat", "flow"}, {"pid", place.rank}, {"tid", place.row}};
    };
    event(end("s", flow.from), {{"ts", flow.from.ns - origin_ns_}});
    json last = end("f", flow.to);
    last["bp"] = "e";
    event(last, {{"ts", flow.to.ns - origin_ns_}});
  }

  void counter(int32_t rank, const char* name, int64_t ns, double value) override {
    event({{"ph", "C"}, {"name", name}, {"pid", rank}, {"args", {{"value", value}}}},
          {{"ts", ns - origin_ns_}});
  }

 private:
  /// `times_ns` are members, too.
  void event(const json& members,
             std::initializer_list<std::pair<const char*, int64_t>> times_ns = {}) {
    std::string text = text_of(members);
    text.pop_back();
    for (const auto& [key, ns] : times_ns) {
      text += fmt::format(",\"{}\":{}", key, microseconds(ns));
    }
    out_ << (is_first_ ? "\n" : ",\n") << text << '}';
    is_first_ = false;
  }

  void metadata(const char* kind, int32_t rank, int64_t row, const json& args) {
    event({{"ph", "M"}, {"name", kind}, {"pid", rank}, {"tid", row}, {"args", args}});
  }

  std::ostream& out_;
  int64_t origin_ns_;
  int64_t num_flows_ = 0;
  bool is_first_ = true;
};

/// What of a file with one rank is true of the whole file, as PyTorch's profiler writes it.
json facts_of(const TraceFacts& facts, int64_t origin_ns) {
  json members = json::object();
  members["schemaVersion"] = 1;
  if (facts.rank && !facts.is_rank_guessed) {
    members["distributedInfo"]["rank"] = *facts.rank;
    if (facts.world_size) members["distributedInfo"]["world_size"] = *facts.world_size;
  }
  int64_t base_ns = 0;
  if (facts.base_time_ns != 0 && !__builtin_add_overflow(facts.base_time_ns, origin_ns, &base_ns)) {
    members["baseTimeNanoseconds"] = base_ns;
  }
  if (facts.has_stacks) members["with_stack"] = 1;
  return members;
}

json devices_of(const TraceFacts& facts) {
  json devices = json::array();
  for (size_t i = 0; i < facts.device_names.size(); ++i) {
    devices.push_back({{"id", i}, {"name", facts.device_names[i]}});
  }
  return devices;
}

/// Their rows have other numbers, in the order of the table.
json threads_of(const ImportedTrace& trace) {
  json ids = json::array();
  for (const ImportedThread& thread : trace.threads) {
    ids.push_back(thread.process);
    ids.push_back(thread.id);
  }
  return ids;
}

/// Members of an object, each with a comma behind it.
std::string members_text(const json& members) {
  std::string text;
  for (const auto& [key, value] : members.items()) {
    text += text_of(key) + ':' + text_of(value) + ',';
  }
  return text;
}

}  // namespace

void write_chrome_json(std::ostream& out, const std::vector<StepTrace>& traces,
                       const TimelineOptions& options) {
  const int64_t origin_ns = origin_of(traces);
  // Before the events: a reader knows it then.
  out << R"({"displayTimeUnit":"ns","otherData":)"
      << text_of({{"writer", kOwnTraceWriter}, {"origin_ns", origin_ns}}) << R"(,"traceName":)"
      << text_of(options.trace_name) << R"(,"traceEvents":[)";
  ChromeWriter writer(out, origin_ns);
  tell_timeline(traces, options, writer);
  out << "\n]}\n";
}

void write_imported_chrome_json(std::ostream& out, std::span<const ImportedTrace> traces,
                                const std::string& trace_name) {
  // The rest of a path says more than the file does: who made it, and where.
  const std::string name = trace_name.substr(trace_name.rfind('/') + 1);
  const int64_t origin_ns = start_of_imported(traces);
  json own = {
      {"writer", kImportedTraceWriter}, {"num_ranks", traces.size()}, {"origin_ns", origin_ns}};
  const auto add_peak = [&](const char* key, int64_t bytes) {
    if (bytes > 0) own[key] = bytes;
  };
  if (traces.size() == 1) {
    add_peak(kPeakAllocatedKey, traces[0].facts.peak_allocated_bytes);
    add_peak(kPeakReservedKey, traces[0].facts.peak_reserved_bytes);
  }
  out << R"({"displayTimeUnit":"ns","otherData":)" << text_of(own) << ',';
  if (traces.size() == 1) out << members_text(facts_of(traces[0].facts, origin_ns));
  out << R"("traceName":)" << text_of(name) << R"(,"traceEvents":[)";
  ChromeWriter writer(out, origin_ns);
  tell_imported(traces, writer);
  out << "\n]";
  // Names of a thousand devices would keep the events out of sight of who looks what a file is.
  if (traces.size() == 1) {
    out << R"(,"deviceProperties":)" << text_of(devices_of(traces[0].facts));
    out << ',' << text_of(kHostThreadsKey) << ':' << text_of(threads_of(traces[0]));
  }
  out << "}\n";
}

}  // namespace moetune::profiler
