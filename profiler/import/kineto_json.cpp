#include "profiler/import/kineto_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "profiler/import/decimal.h"
#include "profiler/import/json_stream.h"
#include "profiler/import/kineto_event.h"
#include "profiler/import/operator_shapes.h"
#include "profiler/import/range_steps.h"
#include "profiler/import/recomputed_work.h"
#include "profiler/import/shown_text.h"
#include "profiler/import/trace_files.h"
#include "profiler/record_details.h"

namespace moetune::profiler {
namespace {

/// What is done with events of a category.
enum class Use : uint8_t {
  count,
  kernel,
  copy,
  fill,
  call,
  sync,
  range,
  memory,
  stacks,
  operation,  ///< of the framework: read where it tells the work of its kernels, or their pass
};

struct CategoryRow {
  std::string_view name;
  Use use;
};

// The capitalised ones are those of 2020. What is only counted stands here so that counting is
// cheap.
constexpr CategoryRow kCategories[] = {
    {"cpu_op", Use::operation},
    {"python_function", Use::stacks},
    {"ac2g", Use::count},
    {"kernel", Use::kernel},
    {"cuda_runtime", Use::call},
    {"cuda_driver", Use::call},
    {"gpu_memcpy", Use::copy},
    {"gpu_memset", Use::fill},
    {"user_annotation", Use::range},
    {"gpu_user_annotation", Use::count},
    {"cuda_sync", Use::sync},
    {"cpu_instant_event", Use::memory},
    {"fwdbwd", Use::count},
    {"overhead", Use::count},
    {"async_cpu_to_gpu", Use::count},
    {"hip_runtime", Use::call},
    {"Trace", Use::count},
    {"Kernel", Use::kernel},
    {"Memcpy", Use::copy},
    {"Memset", Use::fill},
    {"Runtime", Use::call},
    {"Driver", Use::call},
};

struct TypeRow {
  std::string_view name;
  int64_t bytes;
};

constexpr TypeRow kTypes[] = {
    {"Float", 4},
    {"BFloat16", 2},
    {"Half", 2},
    {"Double", 8},
    {"Long", 8},
    {"Int", 4},
    {"Short", 2},
    {"Byte", 1},
    {"Char", 1},
    {"Bool", 1},
    {"ComplexFloat", 8},
    {"ComplexDouble", 16},
    {"Float8_e4m3fn", 1},
    {"Float8_e5m2", 1},
    {"Float8_e4m3fnuz", 1},
    {"Float8_e5m2fnuz", 1},
};

int64_t bytes_of_type(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.bytes;
  }
  return 0;
}

struct PathRow {
  std::string_view name;
  CopyPath path;
};

constexpr PathRow kPaths[] = {
    {"HtoD", CopyPath::to_device}, {"DtoH", CopyPath::to_host},   {"DtoD", CopyPath::on_device},
    {"PtoP", CopyPath::peer},      {"HtoH", CopyPath::on_host},   {"HtoA", CopyPath::to_device},
    {"AtoH", CopyPath::to_host},   {"AtoA", CopyPath::on_device}, {"AtoD", CopyPath::on_device},
    {"DtoA", CopyPath::on_device},
};

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// "HtoD" of "Memcpy HtoD (Pinned -> Device)": only the name says the direction.
std::string_view path_in_name(std::string_view name) {
  std::string_view rest = name;
  if (rest.starts_with("Memcpy ") && rest.size() > 7 && is_word(rest[7])) rest.remove_prefix(7);
  const auto end = std::find_if_not(rest.begin(), rest.end(), is_word);
  const std::string_view word = rest.substr(0, static_cast<size_t>(end - rest.begin()));
  return word.empty() ? name : word;
}

/// N of "ProfilerStep#N".
std::optional<int64_t> step_in_name(std::string_view name) {
  constexpr std::string_view kWord = "ProfilerStep";
  if (!name.starts_with(kWord)) return std::nullopt;
  name.remove_prefix(kWord.size());
  const auto pass_blanks = [&] {
    while (!name.empty() && std::isspace(static_cast<unsigned char>(name.front())) != 0) {
      name.remove_prefix(1);
    }
  };
  pass_blanks();
  if (!name.starts_with('#')) return std::nullopt;
  name.remove_prefix(1);
  pass_blanks();
  const bool is_number =
      !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
  return is_number ? whole_number(name) : std::nullopt;
}

/// What stands beside the events.
struct RunFacts : JsonFieldSink {
  std::string_view key;
  TraceFacts* facts = nullptr;
  // Of files that we have written anew (export/chrome_json.h):
  bool is_ours = false;
  int64_t num_ranks = 0;
  int64_t origin_ns = 0;
  int64_t peak_allocated_bytes = 0;
  int64_t peak_reserved_bytes = 0;

  void take(const JsonField& field) override {
    if (key == "distributedInfo" && field.depth == 1) {
      if (field.key == "rank") {
        facts->rank = whole_number(field.text);
        if (facts->rank.value_or(0) < 0) facts->rank.reset();  // "not distributed"
      }
      if (field.key == "world_size") facts->world_size = whole_number(field.text);
    }
    if (key == "otherData" && field.depth == 1) {
      if (field.key == "writer") is_ours = field.text == kImportedTraceWriter;
      if (field.key == "num_ranks") num_ranks = whole_number(field.text).value_or(0);
      if (field.key == "origin_ns") origin_ns = whole_number(field.text).value_or(0);
      if (field.key == kPeakAllocatedKey) {
        peak_allocated_bytes = whole_number(field.text).value_or(0);
      }
      if (field.key == kPeakReservedKey) {
        peak_reserved_bytes = whole_number(field.text).value_or(0);
      }
    }
    constexpr size_t kMaxDevices = 1024;
    if (key == "deviceProperties" && field.depth == 2 && field.key == "name" && field.is_text &&
        facts->device_names.size() < kMaxDevices) {
      facts->device_names.push_back(shown_text(field.text, 200));
    }
  }
};

/// The numbers of a list.
struct Numbers : JsonFieldSink {
  std::vector<int64_t> all;

  void take(const JsonField& field) override {
    if (const auto number = whole_number(field.text)) all.push_back(*number);
  }
};

class KinetoReader {
 public:
  explicit KinetoReader(const std::string& path) : json_(open_bytes(path), path) {
    trace_.facts.file = path;
    trace_.facts.format = "kineto";
  }

  ImportedTrace read() {
    if (json_.peek() == '[') {
      read_events();
    } else {
      read_document();
    }
    json_.expect_end();
    int64_t& base_ns = trace_.facts.base_time_ns;
    if (base_ns != 0 && __builtin_sub_overflow(base_ns, origin_ns_, &base_ns)) base_ns = 0;
    count_categories();
    if (num_unread_ids_ > 0) {
      trace_.facts.notes.push_back(fmt::format(
          "{} of {} device operations have a correlation id that does not fit into 32 bits: the "
          "calls that launched them are not known",
          num_unread_ids_, trace_.ops.size()));
    }
    trace_.finish();
    if (trace_.steps.empty()) trace_.steps = steps_in_ranges(trace_.ranges, trace_.names);
    shapes_.give_to(trace_);
    passes_.give_to(trace_);
    name_threads();
    TraceFacts& facts = trace_.facts;
    if (!facts.rank) {
      const int64_t rank = rank_in_name(facts.file);
      if (rank >= 0) facts.rank = rank;
      facts.is_rank_guessed = rank >= 0;
    }
    return std::move(trace_);
  }

 private:
  void read_document() {
    if (json_.peek() != '{') json_.fail("a trace begins with '{' or '['");
    json_.enter();
    bool has_events = false;
    for (std::string_view key; json_.next_key(key);) {
      if (key == "traceEvents") {
        if (has_events) json_.fail("traceEvents stands there twice");
        if (json_.peek() != '[') json_.fail("traceEvents is no list");
        has_events = true;
        read_events();
      } else {
        read_fact(std::string(key));
      }
    }
    if (!has_events) {
      throw base::UsageError(fmt::format(
          "{}: has no traceEvents: it is no trace of PyTorch's profiler", json_.path()));
    }
  }

  void read_fact(const std::string& key) {
    TraceFacts& facts = trace_.facts;
    if (key == "distributedInfo" || key == "deviceProperties" || key == "otherData") {
      if (json_.peek() != '{' && json_.peek() != '[') return json_.skip();
      RunFacts sink;
      sink.key = key;
      sink.facts = &facts;
      const std::string_view value = json_.value();
      if (key != "otherData") return parse(value, sink, key);
      // Anybody may write anything there: what cannot be parsed is not ours.
      if (fields_.parse(value, sink).empty() && sink.is_ours) take_own(sink);
    } else if (key == "baseTimeNanoseconds") {
      facts.base_time_ns = whole_number(json_.value()).value_or(0);
    } else if (key == kHostThreadsKey && is_ours_ && json_.peek() == '[') {
      Numbers numbers;
      parse(json_.value(), numbers, key);
      thread_ids_ = std::move(numbers.all);
    } else if (key == "schemaVersion") {
      facts.version = std::string(json_.value().substr(0, 20));
    } else if (key == "with_stack") {
      facts.has_stacks = json_.value() == "1" || facts.has_stacks;
    } else {
      json_.skip();
    }
  }

  /// In a file of ours a host thread has the number of its row; what it was called stands beside
  /// the events.
  void name_threads() {
    RowTable<ImportedThread> named;
    for (const ImportedThread& thread : trace_.threads) {
      const auto at = 2 * static_cast<size_t>(std::max<int64_t>(0, thread.id));
      if (thread.id < 0 || thread.id > 65'535 || at + 1 >= thread_ids_.size()) return;
      named.row_of({thread_ids_[at], thread_ids_[at + 1]});
    }
    if (named.size() == trace_.threads.size()) trace_.threads = std::move(named);
  }

  /// Times of the file count from its origin; work and peaks are in no other file.
  void take_own(const RunFacts& own) {
    if (own.num_ranks > 1) {
      throw base::UsageError(
          fmt::format("{}: shows the traces of {} ranks to viewers, expected the file that "
                      "`moetune trace` made it from",
                      json_.path(), own.num_ranks));
    }
    if (own.origin_ns > kMostImportedNs || own.origin_ns < -kMostImportedNs)
      json_.fail("origin_ns is no time");
    if (trace_.facts.num_events == 0) origin_ns_ = own.origin_ns;  // else some were read without it
    is_ours_ = true;
    TraceFacts& facts = trace_.facts;
    facts.peak_allocated_bytes = std::max(facts.peak_allocated_bytes, own.peak_allocated_bytes);
    facts.peak_reserved_bytes = std::max(facts.peak_reserved_bytes, own.peak_reserved_bytes);
  }

  void parse(std::string_view value, JsonFieldSink& sink, std::string_view what) {
    const std::string error = fields_.parse(value, sink);
    if (!error.empty()) {
      throw base::UsageError(fmt::format("{}: byte {}: {}: {}", json_.path(),
                                         json_.offset() - static_cast<int64_t>(value.size()), what,
                                         error));
    }
  }

  void read_events() {
    json_.enter();
    while (json_.next_element()) {
      const std::string_view text = json_.value();
      ++trace_.facts.num_events;
      const KinetoHead head = head_of_event(text);
      const Use use = use_of(head.category);
      const bool is_wanted = use == Use::memory ? head.phase == "i" : head.phase == "X";
      if (use == Use::count || !is_wanted) continue;
      if (use == Use::stacks) {
        trace_.facts.has_stacks = true;
        continue;
      }
      if (use == Use::operation && !tells_work_or_pass(text)) continue;
      event_.clear();
      parse(text, event_, "an event");
      if (use == Use::operation) {
        read_operation(text);
      } else {
        read_event(use);
      }
    }
  }

  /// The first text that is called "name", without its escapes: known before the event is read.
  static std::string_view name_in(std::string_view event) {
    constexpr std::string_view kKey = "\"name\"";
    const size_t at = event.find(kKey);
    if (at == std::string_view::npos) return {};
    event.remove_prefix(at + kKey.size());
    const size_t start = event.find_first_not_of(" \n\r\t:");
    if (start == std::string_view::npos || event[start] != '"') return {};
    event.remove_prefix(start + 1);
    return event.substr(0, event.find('"'));
  }

  /// Whether an operator is worth reading; its event is parsed only then.
  static bool tells_work_or_pass(std::string_view event) {
    const std::string_view name = name_in(event);
    if (may_have_work(name) || name.starts_with(kGradientRange)) return true;
    constexpr std::string_view kRecorded = "Sequence number\"";
    for (size_t at = event.find('S'); at != std::string_view::npos; at = event.find('S', at + 1)) {
      if (event.substr(at).starts_with(kRecorded)) return true;
    }
    return false;
  }

  void read_operation(std::string_view text) {
    const std::optional<OperatorWork> work = work_of_operator(event_.name, text);
    const bool is_gradient = event_.name.starts_with(kGradientRange);
    // What a gradient runs has the thread of the forward pass.
    const bool is_recorded =
        number_or(event_.autograd_sequence, -1) >= 0 && number_or(event_.forward_thread, -1) == 0;
    if (!work && !is_gradient && !is_recorded) return;
    OperatorShapes::Operator one;
    if (event_.ts.empty() || event_.dur.empty() || !read_times(one.start_ns, one.end_ns)) return;
    const RecomputedWork::Range range = {thread_said(), one.start_ns, one.end_ns};
    if (is_gradient) {
      passes_.add_gradient(range, event_.name.substr(kGradientRange.size()));
    } else if (is_recorded) {
      passes_.add_recorded(range, event_.name);
    }
    if (!work) return;
    one.work = *work;
    one.external_id = id_of(event_.external_id);
    one.thread = thread();
    shapes_.add(one);
  }

  Use use_of(std::string_view category) {
    for (size_t row = 0; row < std::size(kCategories); ++row) {
      if (kCategories[row].name == category) {
        ++num_of_[row];
        return kCategories[row].use;
      }
    }
    ++num_others_;
    return Use::count;
  }

  void count_categories() {
    for (size_t row = 0; row < std::size(kCategories); ++row) {
      if (num_of_[row] > 0) trace_.facts.num_of[std::string(kCategories[row].name)] = num_of_[row];
    }
    if (num_others_ > 0) trace_.facts.num_of["others"] = num_others_;
  }

  [[noreturn]] void fail(std::string_view key, std::string_view value, const char* expected) {
    throw base::UsageError(fmt::format("{}: event {} ('{}'): {} is '{}', expected {}", json_.path(),
                                       trace_.facts.num_events, shown_text(event_.name, 60), key,
                                       shown_text(value, 40), expected));
  }

  /// Nanoseconds of a time in microseconds.
  int64_t time_ns(std::string_view key, std::string_view value) {
    const std::optional<int64_t> ns = scaled_decimal(value, 3);
    if (!ns || *ns > kMostImportedNs || *ns < -kMostImportedNs) {
      fail(key, value, "microseconds that fit into 64 bits as nanoseconds");
    }
    return *ns;
  }

  /// False where it has no times.
  bool read_times(int64_t& start_ns, int64_t& end_ns) {
    if (event_.ts.empty() || event_.dur.empty()) {
      ++trace_.facts.num_incomplete;
      return false;
    }
    start_ns = time_ns("ts", event_.ts) + origin_ns_;
    if (start_ns > kMostImportedNs || start_ns < -kMostImportedNs) {
      fail("ts", event_.ts, "microseconds that fit into 64 bits as nanoseconds");
    }
    int64_t duration_ns = time_ns("dur", event_.dur);
    if (duration_ns < 0) {
      ++trace_.facts.num_clipped;
      duration_ns = 0;
    }
    end_ns = start_ns + duration_ns;
    return true;
  }

  static uint32_t id_of(std::string_view text) {
    const int64_t id = whole_number(text).value_or(0);
    return id > 0 && id < kNoRow ? static_cast<uint32_t>(id) : 0;
  }
  /// An id that is none of a tool's, who count in 32 bits.
  static bool is_too_large(std::string_view text) {
    const bool is_number = !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
      return std::isdigit(c) != 0;
    });
    return is_number && whole_number(text).value_or(kNoRow) >= kNoRow;
  }
  static int64_t number_or(std::string_view text, int64_t otherwise) {
    return text.empty() ? otherwise : whole_number(text).value_or(otherwise);
  }
  static int32_t small_or(std::string_view text, int32_t otherwise) {
    const int64_t value = number_or(text, otherwise);
    return value < 0 || value > INT32_MAX ? otherwise : static_cast<int32_t>(value);
  }
  uint32_t name_or_none(std::string_view text) {
    return text.empty() ? kNoRow : trace_.names.intern(text);
  }
  [[nodiscard]] ImportedThread thread_said() const {
    return {number_or(event_.pid, 0), number_or(event_.tid, 0)};
  }
  uint16_t thread() { return trace_.thread_row(thread_said()); }

  void read_event(Use use) {
    switch (use) {
      case Use::kernel:
        return read_op(ActivityKind::kernel);
      case Use::copy:
        return read_op(ActivityKind::copy);
      case Use::fill:
        return read_op(ActivityKind::fill);
      case Use::call:
        return read_call();
      case Use::sync:
        return read_sync();
      case Use::range:
        return read_range();
      case Use::memory:
        return read_memory();
      case Use::count:
      case Use::stacks:
      case Use::operation:
        return;
    }
  }

  void read_op(ActivityKind kind) {
    ImportedOp op;
    if (!read_times(op.start_ns, op.end_ns)) return;
    op.kind = kind;
    op.correlation = id_of(event_.correlation);
    if (op.correlation == 0 && is_too_large(event_.correlation)) ++num_unread_ids_;
    op.name = trace_.names.intern(event_.name);
    op.stream =
        trace_.stream_row({number_or(event_.device.empty() ? event_.pid : event_.device, -1),
                           number_or(event_.stream.empty() ? event_.tid : event_.stream, -1)});
    op.bytes = std::max<int64_t>(0, number_or(event_.bytes, 0));
    if (kind == ActivityKind::kernel) {
      op.detail = read_shape();
      read_comm(op);
      if (is_ours_) read_work();
      shapes_.see_kernel(op.correlation, id_of(event_.external_id));
    } else if (kind == ActivityKind::copy) {
      const std::string_view path = path_in_name(event_.name);
      op.detail = trace_.names.intern(path);
      for (const PathRow& row : kPaths) {
        if (row.name == path) op.path = row.path;
      }
    }
    // Our files have no operators, which tell it otherwise.
    if (is_ours_ && event_.recomputed == "true") {
      trace_.recomputed.push_back(static_cast<uint32_t>(trace_.ops.size()));
    }
    trace_.ops.add(op);
  }

  /// Of the operation that is read. Its operator, which says the shapes, is not in our files.
  void read_work() {
    const int64_t flops = number_or(event_.flops, -1);
    const int64_t bytes = number_or(event_.least_bytes, -1);
    if (flops < 0 || bytes < 0) return;
    trace_.works.push_back(
        {flops, bytes, static_cast<uint32_t>(trace_.ops.size()), event_.eight_bit == "true"});
  }

  uint32_t read_shape() {
    LaunchShape shape;
    for (size_t axis = 0; axis < 3; ++axis) {
      shape.grid[axis] = id_of(event_.grid[axis]);
      shape.block[axis] = id_of(event_.block[axis]);
    }
    shape.graph = id_of(event_.graph);
    shape.graph_node = static_cast<uint64_t>(std::max<int64_t>(0, number_or(event_.graph_node, 0)));
    return shape == LaunchShape() ? kNoRow : trace_.shapes.row_of(shape);
  }

  void read_comm(ImportedOp& op) {
    if (event_.collective.empty() && event_.group.empty()) return;
    CommCall comm;
    comm.group = name_or_none(event_.group);
    comm.description = name_or_none(event_.description);
    comm.members = name_or_none(event_.members);
    comm.collective = name_or_none(event_.collective);
    comm.dtype = name_or_none(event_.dtype);
    comm.group_size = small_or(event_.group_size, -1);
    // A file may say both, of which one is the rank itself.
    const bool is_receive = event_.collective == "recv";
    const auto& other = is_receive ? event_.source_rank : event_.destination_rank;
    const auto& own = is_receive ? event_.destination_rank : event_.source_rank;
    comm.peer = small_or(other, small_or(own, -1));
    comm.in_nelems = number_or(event_.in_nelems, 0);
    comm.out_nelems = number_or(event_.out_nelems, 0);
    comm.sequence = number_or(event_.sequence, -1);
    constexpr int64_t kMostElements = int64_t{1} << 58;
    const int64_t nelems = std::max(comm.in_nelems, comm.out_nelems);
    if (nelems > 0 && nelems < kMostElements) op.bytes = nelems * bytes_of_type(event_.dtype);
    op.comm = static_cast<uint32_t>(trace_.comms.size());
    trace_.comms.push_back(comm);
  }

  void read_call() {
    HostCall call;
    if (!read_times(call.start_ns, call.end_ns)) return;
    call.name = trace_.names.intern(event_.name);
    call.correlation = id_of(event_.correlation);
    call.thread = thread();
    call.kind = call_kind_of(event_.name);
    trace_.calls.add(call);
  }

  void read_range() {
    HostRange range;
    if (!read_times(range.start_ns, range.end_ns)) return;
    if (const auto number = step_in_name(event_.name)) {
      trace_.steps.push_back({*number, range.start_ns, range.end_ns});
    }
    range.name = trace_.names.intern(event_.name);
    range.thread = thread();
    trace_.ranges.add(range);
  }

  void read_sync() {
    ImportedSync sync;
    if (!read_times(sync.start_ns, sync.end_ns)) return;
    constexpr std::pair<std::string_view, SyncKind> kKinds[] = {
        {"Stream Wait Event", SyncKind::stream_wait},
        {"Event Sync", SyncKind::event},
        {"Stream Sync", SyncKind::stream},
        {"Context Sync", SyncKind::device},
    };
    for (const auto& [name, kind] : kKinds) {
      if (event_.sync_kind == name) sync.kind = kind;
    }
    const int64_t device = number_or(event_.device.empty() ? event_.pid : event_.device, -1);
    const auto row = [&](std::string_view text) {
      const int64_t stream = number_or(text, -1);
      return stream < 0 ? kNoRow : trace_.stream_row({device, stream});
    };
    sync.stream = row(event_.stream);
    sync.producer_stream = row(event_.wait_stream);
    sync.correlation = id_of(event_.correlation);
    sync.record_correlation = id_of(event_.wait_correlation);
    sync.event = id_of(event_.wait_event);
    trace_.syncs.push_back(sync);
  }

  void read_memory() {
    if (event_.name != "[memory]" || event_.device_type != "1") return;
    TraceFacts& facts = trace_.facts;
    facts.peak_allocated_bytes =
        std::max(facts.peak_allocated_bytes, number_or(event_.total_allocated, 0));
    facts.peak_reserved_bytes =
        std::max(facts.peak_reserved_bytes, number_or(event_.total_reserved, 0));
  }

  JsonStream json_;
  JsonFields fields_;
  KinetoEvent event_;
  OperatorShapes shapes_;
  RecomputedWork passes_;
  ImportedTrace trace_;
  int64_t num_of_[std::size(kCategories)] = {};
  int64_t num_others_ = 0;
  int64_t origin_ns_ = 0;
  int64_t num_unread_ids_ = 0;  ///< of device operations
  bool is_ours_ = false;
  std::vector<int64_t> thread_ids_;  ///< of kHostThreadsKey
};

}  // namespace

bool is_kineto_json(std::string_view head) {
  const size_t at = head.find_first_not_of(" \n\r\t\xef\xbb\xbf");
  return at != std::string_view::npos && (head[at] == '{' || head[at] == '[');
}

std::vector<ImportedTrace> read_kineto_json(const std::string& path) {
  std::vector<ImportedTrace> traces;
  traces.push_back(KinetoReader(path).read());
  return traces;
}

}  // namespace moetune::profiler
