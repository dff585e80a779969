// Slices of records and of steps are read; launches, arrows and counters follow from them.
#include "profiler/import/step_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "kernels/base/error.h"
#include "profiler/import/byte_source.h"
#include "profiler/import/decimal.h"
#include "profiler/import/json_fields.h"
#include "profiler/import/json_members.h"
#include "profiler/import/json_stream.h"
#include "profiler/import/shown_text.h"
#include "profiler/record_details.h"

namespace moetune::profiler {
namespace {

constexpr size_t kShownBytes = 40;  // of a wrong value, in a message

/// An event's members, and those of its "args" by name, lists of numbers among them.
class EventFields : public JsonFieldSink {
 public:
  void take(const JsonField& field) override {
    if (field.depth == 1) {
      members_[std::string(field.key)] = std::string(field.text);
    } else if (field.depth == 2 && field.parent == "args") {
      args_[std::string(field.key)] = std::string(field.text);
    } else if (field.depth == 3 && field.key.empty()) {
      lists_[std::string(field.parent)].emplace_back(field.text);
    }
  }
  void clear() {
    members_.clear();
    args_.clear();
    lists_.clear();
  }
  /// Empty where it is missing.
  [[nodiscard]] const std::string& member(const char* name) const { return in(members_, name); }
  [[nodiscard]] const std::string& arg(const char* name) const { return in(args_, name); }
  [[nodiscard]] const std::vector<std::string>& list(const char* name) const {
    return in(lists_, name);
  }

 private:
  template <typename Value>
  using Fields = std::map<std::string, Value, std::less<>>;
  template <typename Value>
  static const Value& in(const Fields<Value>& fields, const char* name) {
    static const Value kNothing;
    const auto found = fields.find(name);
    return found == fields.end() ? kNothing : found->second;
  }
  Fields<std::string> members_;
  Fields<std::string> args_;
  Fields<std::vector<std::string>> lists_;
};

class OwnTraceReader {
 public:
  explicit OwnTraceReader(const std::string& path) : stream_(open_bytes(path), path) {}

  std::vector<StepTrace> read() {
    if (stream_.peek() != '{') refuse_foreign();
    stream_.enter();
    std::string_view key;
    while (stream_.next_key(key)) {
      if (key == "otherData") {
        read_origin();
      } else if (key == "traceEvents") {
        if (!origin_ns_) refuse_foreign();
        if (stream_.peek() != '[') stream_.fail("traceEvents is no list");
        stream_.enter();
        while (stream_.next_element()) read_event();
      } else {
        stream_.skip();
      }
    }
    stream_.expect_end();
    if (!origin_ns_) refuse_foreign();
    for (StepTrace& trace : traces_) sort_further_waits(trace);
    return std::move(traces_);
  }

 private:
  [[noreturn]] void refuse_foreign() const {
    throw base::UsageError(
        fmt::format("{}: is no trace that moetune wrote, expected what `moetune trace --format "
                    "chrome` writes",
                    stream_.path()));
  }

  void parse_value() {
    fields_.clear();
    const std::string problem = json_.parse(stream_.value(), fields_);
    if (!problem.empty()) stream_.fail(problem);
  }

  void read_origin() {
    if (stream_.peek() != '{') refuse_foreign();
    parse_value();
    if (fields_.member("writer") != kOwnTraceWriter) refuse_foreign();
    origin_ns_ = whole("origin_ns", fields_.member("origin_ns"));
  }

  void read_event() {
    if (stream_.peek() != '{') return stream_.skip();
    parse_value();
    if (fields_.member("ph") != "X") return;
    const std::string& category = fields_.member("cat");
    if (category == "step") return add_step();
    if (const auto kind = record_kind_of(category)) add_record(*kind);
  }

  void add_step() {
    StepTrace trace;
    trace.rank = small("pid", fields_.member("pid"));
    trace.step = small("step", fields_.arg("step"));
    std::tie(trace.start_ns, trace.end_ns) = times();
    const bool is_new = index_.emplace(std::pair(trace.rank, trace.step), traces_.size()).second;
    if (!is_new) {
      stream_.fail(fmt::format("step {} of rank {} comes twice", trace.step, trace.rank));
    }
    traces_.push_back(std::move(trace));
  }

  void add_record(RecordKind kind) {
    TraceRecord record;
    record.kind = kind;
    record.rank = small("pid", fields_.member("pid"));
    const int64_t row = whole("tid", fields_.member("tid"));
    if (row < 0 || row > std::numeric_limits<int32_t>::max()) stream_.fail("tid is no row of ours");
    record.stream = static_cast<int32_t>(row - 1);
    record.name = fields_.member("name");
    std::tie(record.start_ns, record.end_ns) = times();
    const std::string& end = fields_.arg(kDetailOfEnd);
    if (!end.empty()) record.end_ns = whole(kDetailOfEnd, end);
    for_each_detail(record, [&](const char* key, auto& field, int64_t) {
      using Field = std::decay_t<decltype(field)>;
      const std::string& text = fields_.arg(key);
      if constexpr (std::is_same_v<Field, std::array<int32_t, 3>>) {
        field = extents(key);
      } else if (text.empty()) {
        return;
      } else if constexpr (std::is_same_v<Field, base::InternedString>) {
        field = text;
      } else if constexpr (std::is_same_v<Field, bool>) {
        field = text == "true";
      } else if constexpr (std::is_same_v<Field, int32_t>) {
        field = small(key, text);
      } else {
        field = whole(key, text);
      }
    });
    const auto at = index_.find({record.rank, record.step});
    if (at == index_.end()) {
      stream_.fail(fmt::format("a record is of step {} of rank {}, which has not come", record.step,
                               record.rank));
    }
    StepTrace& trace = traces_[at->second];
    for (const std::string& id : fields_.list(kDetailOfFurtherProducers)) {
      trace.further_waits.push_back({record.id, whole(kDetailOfFurtherProducers, id)});
    }
    trace.records.push_back(std::move(record));
  }

  /// All 0 where the file says nothing.
  std::array<int32_t, 3> extents(const char* key) const {
    std::array<int32_t, 3> extents = {};
    const std::vector<std::string>& texts = fields_.list(key);
    if (texts.empty()) return extents;
    if (texts.size() != extents.size()) {
      stream_.fail(
          fmt::format("{} has {} numbers, expected {}", key, texts.size(), extents.size()));
    }
    for (size_t i = 0; i < extents.size(); ++i) extents[i] = small(key, texts[i]);
    return extents;
  }

  /// Of the slice, on the run's clock.
  std::pair<int64_t, int64_t> times() const {
    constexpr int kNsDigits = 3;  // of a microsecond
    const auto start_ns = scaled_decimal(fields_.member("ts"), kNsDigits);
    const auto length_ns = scaled_decimal(fields_.member("dur"), kNsDigits);
    std::pair<int64_t, int64_t> times;
    if (!start_ns || !length_ns || __builtin_add_overflow(*start_ns, *origin_ns_, &times.first) ||
        __builtin_add_overflow(times.first, *length_ns, &times.second)) {
      stream_.fail(fmt::format("ts {} and dur {} are no times",
                               shown_text(fields_.member("ts"), kShownBytes),
                               shown_text(fields_.member("dur"), kShownBytes)));
    }
    return times;
  }

  int64_t whole(const char* key, const std::string& text) const {
    const auto value = whole_number(text);
    if (!value) {
      stream_.fail(
          fmt::format("{} is '{}', expected a whole number", key, shown_text(text, kShownBytes)));
    }
    return *value;
  }

  int32_t small(const char* key, const std::string& text) const {
    const int64_t value = whole(key, text);
    if (value != static_cast<int32_t>(value)) {
      stream_.fail(fmt::format("{} is {}, expected a number of 32 bits", key, value));
    }
    return static_cast<int32_t>(value);
  }

  JsonStream stream_;
  JsonFields json_;
  EventFields fields_;
  std::optional<int64_t> origin_ns_;
  std::vector<StepTrace> traces_;
  std::map<std::pair<int32_t, int32_t>, size_t> index_;  // by rank and step
};

}  // namespace

bool is_step_traces(std::string_view head) {
  head.remove_prefix(std::min(head.find_first_not_of(" \n\r\t\xef\xbb\xbf"), head.size()));
  // Anybody's kernels may have the writer's name: it counts where a writer is named.
  for (JsonMembers members(head); members.next();) {
    if (members.key() != "otherData") continue;
    EventFields fields;
    return JsonFields().parse(members.value(), fields).empty() &&
           fields.member("writer") == kOwnTraceWriter;
  }
  return false;
}

std::vector<StepTrace> read_step_traces(const std::string& path) {
  return OwnTraceReader(path).read();
}

}  // namespace moetune::profiler
