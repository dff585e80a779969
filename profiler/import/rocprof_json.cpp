#include "profiler/import/rocprof_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <unordered_map>
#include <utility>

#include "kernels/base/error.h"
#include "profiler/import/decimal.h"
#include "profiler/import/json_fields.h"
#include "profiler/import/json_stream.h"
#include "profiler/import/rank_traces.h"
#include "profiler/import/shown_text.h"

namespace moetune::profiler {
namespace {

constexpr std::string_view kTool = "rocprofiler-sdk-tool";

/// What is done with the records of a list.
enum class Records : uint8_t { count, dispatch, copy, call, marker, range };

struct ListRow {
  std::string_view name;
  Records records;
};
constexpr ListRow kLists[] = {
    {"kernel_dispatch", Records::dispatch},
    {"memory_copy", Records::copy},
    {"hip_api", Records::call},
    {"marker_api", Records::marker},
    {"rccl_api", Records::range},
};

/// By the number of a copy's operation, which is the SDK's.
struct CopyOperation {
  const char* path;
  CopyPath kind;
  bool is_from_device;  ///< runs on the device that it comes from
};
constexpr CopyOperation kCopyOperations[] = {
    {"Unknown", CopyPath::other, false},  {"HtoH", CopyPath::on_host, false},
    {"HtoD", CopyPath::to_device, false}, {"DtoH", CopyPath::to_host, true},
    {"DtoD", CopyPath::on_device, true},
};

/// Operations whose record lasts from the beginning of a range to its end.
constexpr std::string_view kRangeOperations[] = {"roctxRangePushA", "roctxRangeStartA",
                                                 "roctxThreadRangeA", "roctxProcessRangeA"};

/// A record as text, empty where it has no such member.
struct RocprofRecord : JsonFieldSink {
  std::string_view kind, operation, thread, start, end, bytes;
  std::string_view correlation, agent, source, target, queue, kernel;
  std::array<std::string_view, 3> grid, block;

  void clear() { *this = RocprofRecord(); }
  void take(const JsonField& field) override;
};

struct RocprofMember {
  std::string_view parent;
  std::string_view key;
  std::string_view RocprofRecord::*member;
};
constexpr RocprofMember kRocprofMembers[] = {
    {"", "kind", &RocprofRecord::kind},
    {"", "operation", &RocprofRecord::operation},
    {"", "thread_id", &RocprofRecord::thread},
    {"", "start_timestamp", &RocprofRecord::start},
    {"", "end_timestamp", &RocprofRecord::end},
    {"", "bytes", &RocprofRecord::bytes},
    {"correlation_id", "internal", &RocprofRecord::correlation},
    {"agent_id", "handle", &RocprofRecord::agent},
    {"src_agent_id", "handle", &RocprofRecord::source},
    {"dst_agent_id", "handle", &RocprofRecord::target},
    {"queue_id", "handle", &RocprofRecord::queue},
    {"dispatch_info", "kernel_id", &RocprofRecord::kernel},
};

void RocprofRecord::take(const JsonField& field) {
  for (const RocprofMember& row : kRocprofMembers) {
    if (row.key == field.key && row.parent == field.parent) {
      this->*row.member = field.text;
      return;
    }
  }
  if (field.key.size() != 1 || field.key[0] < 'x' || field.key[0] > 'z') return;
  const auto axis = static_cast<size_t>(field.key[0] - 'x');
  if (field.parent == "grid_size") grid[axis] = field.text;
  if (field.parent == "workgroup_size") block[axis] = field.text;
}

/// The members of an object that are wanted, by the key of what they stand in and their own.
struct Members : JsonFieldSink {
  explicit Members(std::initializer_list<std::pair<std::string_view, std::string_view>> keys_in)
      : keys(keys_in), values(keys_in.size()) {}
  void take(const JsonField& field) override {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == std::pair(field.parent, field.key)) values[i] = field.text;
    }
  }

  std::vector<std::pair<std::string_view, std::string_view>> keys;
  std::vector<std::string> values;  ///< empty where there is none
};

/// Texts of a list, such as the operations of a kind.
struct Texts : JsonFieldSink {
  void take(const JsonField& field) override {
    if (field.key.empty()) {
      texts.emplace_back(field.text);
    } else if (field.key == "kind") {
      kind = field.text;
    }
  }
  std::string kind;
  std::vector<std::string> texts;
};

/// The members of `rocprofiler-sdk-tool` are one object a process.
class RocprofReader {
 public:
  explicit RocprofReader(const std::string& path) : json_(open_bytes(path), path) {}

  std::vector<ImportedTrace> read() {
    if (json_.peek() != '{') json_.fail("a trace begins with '{'");
    json_.enter();
    for (std::string_view key; json_.next_key(key);) {
      if (key != kTool || json_.peek() != '[') {
        json_.skip();
        continue;
      }
      json_.enter();
      while (json_.next_element()) {
        if (json_.peek() != '{') json_.fail("a process is an object");
        read_process();
      }
    }
    json_.expect_end();
    if (traces_.empty()) {
      throw base::UsageError(
          fmt::format("{}: holds no device work: no kernel or copy was recorded", json_.path()));
    }
    count_ranks(traces_);
    return std::move(traces_);
  }

 private:
  void read_process() {
    process_.emplace(json_.path());
    facts_ = TraceFacts();
    facts_.file = json_.path();
    facts_.format = "rocprofiler-sdk";
    pid_ = 0;
    operations_.clear();
    markers_.clear();
    json_.enter();
    for (std::string_view key; json_.next_key(key);) {
      const std::string name(key);
      if (name == "metadata") {
        read_metadata();
      } else if (name == "agents") {
        each_element([&](std::string_view agent) { read_agent(agent); });
      } else if (name == "kernel_symbols") {
        each_element([&](std::string_view symbol) { read_symbol(symbol); });
      } else if (name == "strings") {
        each_member([&](const std::string& key_of) { read_strings(key_of); });
      } else if (name == "buffer_records") {
        each_member([&](const std::string& key_of) { read_list(key_of); });
      } else {
        json_.skip();
      }
    }
    finish_process();
  }

  void finish_process() {
    for (const auto& [id, operation] : operations_) {
      if (process_->call_refs.contains(id)) {
        process_->call_refs.explain(id, process_->names.intern(operation));
      }
    }
    read_held_ranges();
    process_->resolve_names();
    if (process_->num_ranks() == 0) return;
    if (facts_.num_of["hip_api"] == 0) {
      facts_.notes.emplace_back("calls of HIP were not recorded (rocprofv3 --hip-trace)");
    }
    for (const auto& [list, number] : facts_.num_of) facts_.num_events += number;
    for (ImportedTrace& trace : process_->finish(facts_)) traces_.push_back(std::move(trace));
    if (traces_.size() > RankTraces::kMaxRanks) {
      throw base::UsageError(fmt::format("{}: has more than {} devices, which no trace has",
                                         json_.path(), RankTraces::kMaxRanks));
    }
  }

  /// Nothing is read of a member that has another form.
  template <typename Read>
  void each_element(const Read& read) {
    if (json_.peek() != '[') return json_.skip();
    json_.enter();
    while (json_.next_element()) {
      const char first = json_.peek();
      if (first == '{' || first == '[') {
        read(json_.value());
      } else {
        json_.skip();
      }
    }
  }
  template <typename Read>
  void each_member(const Read& read) {
    if (json_.peek() != '{') return json_.skip();
    json_.enter();
    for (std::string_view key; json_.next_key(key);) read(std::string(key));
  }

  void parse(std::string_view value, JsonFieldSink& sink, std::string_view what) {
    const std::string error = fields_.parse(value, sink);
    if (!error.empty()) {
      throw base::UsageError(fmt::format("{}: byte {}: {}: {}", json_.path(),
                                         json_.offset() - static_cast<int64_t>(value.size()), what,
                                         error));
    }
  }

  void read_metadata() {
    if (json_.peek() != '{') return json_.skip();
    Members members{{"", "pid"}};
    parse(json_.value(), members, "metadata");
    pid_ = whole_number(members.values[0]).value_or(0);
  }

  void read_agent(std::string_view agent) {
    Members members{{"id", "handle"}, {"", "type"}, {"", "name"}};
    parse(agent, members, "an agent");
    constexpr std::string_view kGpu = "2";
    constexpr size_t kMostDevices = 1024;
    if (members.values[1] != kGpu || facts_.device_names.size() >= kMostDevices) return;
    facts_.device_names.push_back(shown_text(members.values[2], 200));
  }

  void read_symbol(std::string_view symbol) {
    Members members{{"", "kernel_id"}, {"", "formatted_kernel_name"}, {"", "kernel_name"}};
    parse(symbol, members, "a kernel symbol");
    const std::optional<int64_t> id = whole_number(members.values[0]);
    const std::string& name = members.values[1].empty() ? members.values[2] : members.values[1];
    if (id && !name.empty()) process_->refs.explain(*id, process_->names.intern(name));
  }

  void read_strings(const std::string& key) {
    if (key == "buffer_records") {
      int64_t kind = 0;
      each_element([&](std::string_view row) {
        Texts texts;
        parse(row, texts, "the operations of a kind");
        for (size_t i = 0; i < texts.texts.size(); ++i) {
          operations_[operation_id(kind, static_cast<int64_t>(i))] = std::move(texts.texts[i]);
        }
        ++kind;
      });
    } else if (key == "marker_api") {
      each_element([&](std::string_view row) {
        Members members{{"", "key"}, {"", "value"}};
        parse(row, members, "a marker");
        const std::optional<int64_t> id = whole_number(members.values[0]);
        if (id) markers_[*id] = process_->names.intern(members.values[1]);
      });
    } else if (key == "att_filenames") {
      bool has_files = false;
      if (json_.peek() != '[') return json_.skip();
      json_.enter();
      while (json_.next_element()) {
        json_.skip();
        has_files = true;
      }
      if (has_files) {
        facts_.notes.emplace_back(
            "advanced thread trace was on, which slows kernels and may run them one by one");
      }
    } else {
      json_.skip();
    }
  }

  static int64_t operation_id(int64_t kind, int64_t operation) {
    return (kind & 0xFFFF) << 32 | (operation & 0xFFFFFFFF);
  }

  void read_list(const std::string& key) {
    const auto row = std::ranges::find(kLists, std::string_view(key), &ListRow::name);
    const Records records = row == std::end(kLists) ? Records::count : row->records;
    int64_t num_records = 0;
    if (json_.peek() != '[') return json_.skip();
    json_.enter();
    while (json_.next_element()) {
      ++num_records;
      if (records == Records::count || json_.peek() != '{') {
        json_.skip();
        continue;
      }
      const std::string_view text = json_.value();
      record_.clear();
      parse(text, record_, key);
      read_record(records);
    }
    // Names of lists come from the file, too; those that are not known are few, or are none.
    if (num_records > 0 && facts_.num_of.size() < 64) {
      facts_.num_of[key.substr(0, 64)] += num_records;
    }
  }

  void read_record(Records records) {
    switch (records) {
      case Records::dispatch:
        return read_dispatch();
      case Records::copy:
        return read_copy();
      case Records::call:
        return read_call();
      case Records::marker:
      case Records::range:
        return hold_range(records);
      case Records::count:
        return;
    }
  }

  [[noreturn]] void refuse(std::string_view key, std::string_view value) {
    throw base::UsageError(
        fmt::format("{}: byte {}: {} is '{}', expected whole nanoseconds below 2^61", json_.path(),
                    json_.offset(), key, shown_text(value, 40)));
  }
  int64_t time_ns(std::string_view key, std::string_view value) {
    const std::optional<int64_t> ns = whole_number(value);
    if (!ns || *ns > kMostImportedNs || *ns < -kMostImportedNs) refuse(key, value);
    return *ns;
  }
  /// False where it has no times.
  bool read_times(int64_t& start_ns, int64_t& end_ns) {
    if (record_.start.empty() || record_.end.empty()) {
      ++facts_.num_incomplete;
      return false;
    }
    start_ns = time_ns("start_timestamp", record_.start);
    const int64_t end = time_ns("end_timestamp", record_.end);
    facts_.num_clipped += end < start_ns;
    end_ns = std::max(start_ns, end);
    return true;
  }
  static int64_t number_or(std::string_view text, int64_t otherwise) {
    return text.empty() ? otherwise : whole_number(text).value_or(otherwise);
  }
  static uint32_t id_of(std::string_view text) {
    const int64_t id = number_or(text, 0);
    return id > 0 && id < kNoRow ? static_cast<uint32_t>(id) : 0;
  }
  uint16_t thread() {
    return process_->process(0).host.thread_row({pid_, number_or(record_.thread, 0)});
  }

  void read_dispatch() {
    ImportedOp op;
    if (!read_times(op.start_ns, op.end_ns)) return;
    RankTraces::Rank& rank = process_->rank(0, number_or(record_.agent, -1));
    op.name = process_->by_ref(number_or(record_.kernel, -1));
    op.correlation = id_of(record_.correlation);
    op.stream = rank.trace.stream_row({rank.device, number_or(record_.queue, -1)});
    LaunchShape shape;
    for (size_t axis = 0; axis < 3; ++axis) {
      shape.block[axis] = id_of(record_.block[axis]);
      // The file counts threads here, not blocks.
      const uint64_t threads = id_of(record_.grid[axis]);
      const uint64_t each = std::max<uint64_t>(1, shape.block[axis]);
      shape.grid[axis] = static_cast<uint32_t>((threads + each - 1) / each);
    }
    if (shape != LaunchShape()) op.detail = rank.trace.shapes.row_of(shape);
    rank.trace.ops.add(op);
  }

  void read_copy() {
    ImportedOp op;
    if (!read_times(op.start_ns, op.end_ns)) return;
    const int64_t operation = number_or(record_.operation, 0);
    const bool is_known =
        operation >= 0 && operation < static_cast<int64_t>(std::size(kCopyOperations));
    const CopyOperation& row = kCopyOperations[is_known ? operation : 0];
    if (row.kind == CopyPath::on_host) return;  // of no device
    RankTraces::Rank& rank =
        process_->rank(0, number_or(row.is_from_device ? record_.source : record_.target, -1));
    op.kind = ActivityKind::copy;
    op.path = row.kind;
    op.name = process_->names.intern(fmt::format("Memcpy {}", row.path));
    op.detail = process_->names.intern(row.path);
    op.bytes = std::max<int64_t>(0, number_or(record_.bytes, 0));
    op.correlation = id_of(record_.correlation);
    op.stream = rank.trace.stream_row({rank.device, -1});  // the file does not say which queue
    rank.trace.ops.add(op);
  }

  void read_call() {
    HostCall call;
    if (!read_times(call.start_ns, call.end_ns)) return;
    call.name = process_->call_by_ref(
        operation_id(number_or(record_.kind, 0), number_or(record_.operation, 0)));
    call.correlation = id_of(record_.correlation);
    call.thread = thread();
    process_->process(0).host.calls.add(call);
  }

  /// Its name may stand further on in the file.
  struct HeldRange {
    HostRange range;
    int64_t operation = 0;
    int64_t marker = -1;  ///< of rocTX
  };
  void hold_range(Records records) {
    HeldRange held;
    if (!read_times(held.range.start_ns, held.range.end_ns)) return;
    held.range.thread = thread();
    held.operation = operation_id(number_or(record_.kind, 0), number_or(record_.operation, 0));
    if (records == Records::marker) held.marker = number_or(record_.correlation, -1);
    held_.push_back(held);
  }
  void read_held_ranges() {
    for (HeldRange& held : std::exchange(held_, {})) {
      const auto operation = operations_.find(held.operation);
      const std::string_view name =
          operation == operations_.end() ? std::string_view() : operation->second;
      if (held.marker < 0) {
        held.range.name = process_->names.intern(name);
      } else {
        const auto marker = markers_.find(held.marker);
        const bool is_range =
            std::ranges::find(kRangeOperations, name) != std::end(kRangeOperations);
        if (marker == markers_.end() || !is_range) continue;
        held.range.name = marker->second;
      }
      process_->process(0).host.ranges.add(held.range);
    }
  }

  JsonStream json_;
  JsonFields fields_;
  RocprofRecord record_;
  std::optional<RankTraces> process_;
  TraceFacts facts_;
  int64_t pid_ = 0;
  std::unordered_map<int64_t, std::string> operations_;
  std::unordered_map<int64_t, uint32_t> markers_;  // names, by the correlation id of the record
  std::vector<HeldRange> held_;
  std::vector<ImportedTrace> traces_;
};

}  // namespace

bool is_rocprof_json(std::string_view head) {
  const size_t at = head.find_first_not_of(" \n\r\t\xef\xbb\xbf");
  return at != std::string_view::npos && head[at] == '{' &&
         head.find('"' + std::string(kTool) + '"') != std::string_view::npos;
}

std::vector<ImportedTrace> read_rocprof_json(const std::string& path) {
  return RocprofReader(path).read();
}

}  // namespace moetune::profiler
