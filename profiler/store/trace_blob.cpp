// Layout of a blob: its version, then for each column its length in bytes and the packed numbers.
// The first three columns have a number for each trace: step, rank, records; the others one for
// each record, in the order of for_each_column.
#include "profiler/store/trace_blob.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "kernels/base/error.h"
#include "profiler/store/column_codec.h"
#include "profiler/store/trace_columns.h"

namespace moetune::store {
namespace {

using profiler::TraceRecord;

constexpr char kBlobVersion = 1;
constexpr size_t kNumTraceColumns = 3;
constexpr size_t kLengthBytes = 4;

/// What a member of the next record is expected to be. Columns are asked in their order, so that a
/// record's members before the one in question are known. The expectations are part of the format.
class Expected {
 public:
  /// A trace begins.
  void begin() { last_.id = -1; }

  /// `field` is a member of `record`, whose name has the id `name`.
  [[nodiscard]] int64_t of(const TraceRecord& record, int64_t name, const void* field) {
    if (field == &record.id) return sum_of(last_.id, 1);
    // The host launches without a pause, and each launch costs what the last one did.
    if (field == &record.launch_start_ns) return last_.launch_end_ns;
    if (field == &record.launch_end_ns) {
      return sum_of(record.launch_start_ns,
                    difference_of(last_.launch_end_ns, last_.launch_start_ns));
    }
    // A stream goes on where it is, or waits for the launch.
    if (field == &record.start_ns) {
      return std::max(record.launch_end_ns, stream_ends_ns_[record.stream]);
    }
    if (field == &record.producer_id) return record.id;
    const Seen& alike = last_of_name_[name];
    if (field == &record.end_ns) return sum_of(record.start_ns, alike.duration_ns);
    if (field == &record.bytes) return alike.bytes;
    if (field == &record.flops) return alike.flops;
    if (field == &record.transfer_ns) return alike.transfer_ns;
    if (field == &record.sequence) return sum_of(alike.sequence, alike.sequence == -1 ? 0 : 1);
    return 0;  // small ones, in patterns that zstd finds
  }

  void take(const TraceRecord& record, int64_t name) {
    last_ = {record.id, record.launch_start_ns, record.launch_end_ns};
    last_of_name_[name] = {difference_of(record.end_ns, record.start_ns), record.bytes,
                           record.flops, record.transfer_ns, record.sequence};
    stream_ends_ns_[record.stream] = record.end_ns;
  }

 private:
  struct Last {
    int64_t id = -1;
    int64_t launch_start_ns = 0;
    int64_t launch_end_ns = 0;
  };
  struct Seen {
    int64_t duration_ns = 0;
    int64_t bytes = 0;
    int64_t flops = 0;
    int64_t transfer_ns = 0;
    int64_t sequence = -1;
  };
  Last last_;
  std::unordered_map<int64_t, Seen> last_of_name_;
  std::unordered_map<int32_t, int64_t> stream_ends_ns_;
};

/// How many columns a record has.
size_t num_record_columns() {
  size_t count = 0;
  const TraceRecord record;
  for_each_column(record, [&](const char*, const auto&) { ++count; });
  return count;
}

void append(std::string& blob, const ColumnWriter& column) {
  const std::string packed = column.packed();
  for (size_t i = 0; i < kLengthBytes; ++i) {
    blob += static_cast<char>(packed.size() >> (8 * i));
  }
  blob += packed;
}

/// Splits a blob into its columns.
class BlobColumns {
 public:
  BlobColumns(std::string_view blob, const std::string& where) : rest_(blob), where_(where) {
    if (rest_.empty() || rest_[0] != kBlobVersion) fail("is of a version that is not known");
    rest_.remove_prefix(1);
  }
  ColumnReader next(size_t max_numbers) {
    if (rest_.size() < kLengthBytes) fail("ends early");
    size_t length = 0;
    for (size_t i = 0; i < kLengthBytes; ++i) {
      length |= static_cast<size_t>(static_cast<unsigned char>(rest_[i])) << (8 * i);
    }
    rest_.remove_prefix(kLengthBytes);
    if (length > rest_.size()) fail("ends early");
    ColumnReader column(rest_.substr(0, length), max_numbers, where_);
    rest_.remove_prefix(length);
    return column;
  }
  void expect_end() const {
    if (!rest_.empty()) fail("holds too much");
  }
  [[noreturn]] void fail(const char* what) const {
    throw base::Error(fmt::format("{}: the trace is damaged: it {}", where_, what));
  }

 private:
  std::string_view rest_;
  const std::string& where_;
};

template <typename Number>
Number checked(int64_t value, const BlobColumns& columns) {
  if constexpr (std::is_same_v<Number, bool>) {
    if (value != 0 && value != 1) columns.fail("has a flag that is neither 0 nor 1");
    return value == 1;
  } else {
    if (value != static_cast<Number>(value)) columns.fail("has a number that is out of range");
    return static_cast<Number>(value);
  }
}

}  // namespace

std::string pack_traces(const std::vector<profiler::StepTrace>& traces, const IdOfText& id_of) {
  std::array<ColumnWriter, kNumTraceColumns> heads;
  std::vector<ColumnWriter> columns(num_record_columns());
  Expected expected;
  for (const profiler::StepTrace& trace : traces) {
    heads[0].add(trace.step);
    heads[1].add(trace.rank);
    heads[2].add(static_cast<int64_t>(trace.records.size()));
    expected.begin();
    for (const TraceRecord& record : trace.records) {
      const int64_t name = id_of(record.name);
      size_t i = 0;
      for_each_column(record, [&](const char*, const auto& field) {
        int64_t value = 0;
        if constexpr (std::is_same_v<std::decay_t<decltype(field)>, base::InternedString>) {
          value = &field == &record.name ? name : id_of(field);
        } else {
          value = static_cast<int64_t>(field);
        }
        columns[i++].add(difference_of(value, expected.of(record, name, &field)));
      });
      expected.take(record, name);
    }
  }
  std::string blob(1, kBlobVersion);
  for (const ColumnWriter& column : heads) append(blob, column);
  for (const ColumnWriter& column : columns) append(blob, column);
  return blob;
}

std::vector<profiler::StepTrace> unpack_traces(std::string_view blob, const std::string& where,
                                               const TextOfId& text_of) {
  BlobColumns parts(blob, where);
  // A trace has a row of its own in the database, and these are no more than that.
  constexpr size_t kMaxTraces = 1U << 20U;
  ColumnReader steps = parts.next(kMaxTraces);
  ColumnReader ranks = parts.next(kMaxTraces);
  std::vector<int64_t> counts;
  size_t num_records = 0;
  for (ColumnReader column = parts.next(kMaxTraces); !column.is_at_end();) {
    const int64_t count = counts.emplace_back(column.next());
    if (count < 0 || count > kMaxTraceRecords - static_cast<int64_t>(num_records)) {
      parts.fail("has a wrong number of records");
    }
    num_records += static_cast<size_t>(count);
  }
  std::vector<ColumnReader> columns;
  for (size_t i = num_record_columns(); i > 0; --i) columns.push_back(parts.next(num_records));
  parts.expect_end();

  std::vector<profiler::StepTrace> traces;
  Expected expected;
  for (const int64_t count : counts) {
    profiler::StepTrace& trace = traces.emplace_back();
    trace.step = checked<int32_t>(steps.next(), parts);
    trace.rank = checked<int32_t>(ranks.next(), parts);
    expected.begin();
    for (int64_t k = 0; k < count; ++k) {
      TraceRecord record;
      record.step = trace.step;
      record.rank = trace.rank;
      int64_t name = 0;
      size_t i = 0;
      for_each_column(record, [&](const char*, auto& field) {
        using Field = std::decay_t<decltype(field)>;
        const int64_t value = sum_of(columns[i++].next(), expected.of(record, name, &field));
        if constexpr (std::is_same_v<Field, base::InternedString>) {
          if (&field == &record.name) name = value;
          field = text_of(value);
        } else if constexpr (std::is_same_v<Field, profiler::RecordKind>) {
          field = checked_kind(value, where);
        } else {
          field = checked<Field>(value, parts);
        }
      });
      expected.take(record, name);
      trace.records.push_back(std::move(record));
    }
  }
  steps.expect_end();
  ranks.expect_end();
  for (const ColumnReader& column : columns) column.expect_end();
  return traces;
}

}  // namespace moetune::store
