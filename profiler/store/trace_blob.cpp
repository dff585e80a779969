// Layout of a blob: its version, then for each column its length in bytes and the packed numbers; a
// length of 0 stands for numbers that are all 0. The first four columns have a number for each
// trace: step, rank, records, further waits; the next ones one for each record, in the order of
// for_each_column; the last two one for each further wait: its record and its producer. Version 1
// has neither further waits nor lengths of 0, and of the columns of records the first ones.
#include "profiler/store/trace_blob.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "kernels/base/error.h"
#include "profiler/store/column_codec.h"
#include "profiler/store/trace_columns.h"

namespace moetune::store {
namespace {

using profiler::StepTrace;
using profiler::TraceRecord;

constexpr char kFirstBlobVersion = 1;
constexpr char kBlobVersion = 2;
constexpr size_t kNumTraceColumns = 4;
constexpr size_t kNumWaitColumns = 2;
constexpr size_t kLengthBytes = 4;
/// A trace has a row of its own in the database, and these are no more than that.
constexpr size_t kMaxTraces = 1U << 20U;
constexpr const char* kWrongWaits = "has a wrong number of waits";

/// Ids of a record's texts. That of a kernel is 0 where it is empty, so that it costs nothing.
struct TextIds {
  int64_t name = 0;
  int64_t group = 0;
  int64_t kernel = 0;
};

/// What a member of the next record is expected to be. Columns are asked in their order, so that a
/// record's members before the one in question are known. The expectations are part of the format.
class Expected {
 public:
  /// A trace begins.
  void begin() { last_.id = -1; }

  /// `field` is a member of `record`.
  [[nodiscard]] int64_t of(const TraceRecord& record, const TextIds& texts, const void* field) {
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
    if (field == &record.thread) return last_.thread;
    if (field == &record.device) return record.stream < 0 ? -1 : last_.device;
    if (field == &record.communicator) return communicator_of(texts);
    const Seen& alike = last_of_name_[texts.name];
    if (field == &record.end_ns) return sum_of(record.start_ns, alike.duration_ns);
    if (field == &record.bytes) return alike.bytes;
    if (field == &record.flops) return alike.flops;
    if (field == &record.transfer_ns) return alike.transfer_ns;
    if (field == &record.sequence) return sum_of(alike.sequence, alike.sequence == -1 ? 0 : 1);
    if (field == &record.kernel) return alike.kernel;
    if (field == &record.peer) return alike.peer;
    for (size_t i = 0; i < record.grid.size(); ++i) {
      if (field == &record.grid[i]) return alike.grid[i];
      if (field == &record.block[i]) return alike.block[i];
    }
    return 0;  // small ones, in patterns that zstd finds
  }

  void take(const TraceRecord& record, const TextIds& texts) {
    last_ = {record.id, record.launch_start_ns, record.launch_end_ns, record.thread,
             record.stream < 0 ? last_.device : record.device};
    last_of_name_[texts.name] = {difference_of(record.end_ns, record.start_ns),
                                 record.bytes,
                                 record.flops,
                                 record.transfer_ns,
                                 record.sequence,
                                 texts.kernel,
                                 record.grid,
                                 record.block,
                                 record.peer};
    stream_ends_ns_[record.stream] = record.end_ns;
    if (!record.group.empty()) communicators_[texts.group] = record.communicator;
  }

 private:
  struct Last {
    int64_t id = -1;
    int64_t launch_start_ns = 0;
    int64_t launch_end_ns = 0;
    int32_t thread = -1;
    int32_t device = -1;
  };
  struct Seen {
    int64_t duration_ns = 0;
    int64_t bytes = 0;
    int64_t flops = 0;
    int64_t transfer_ns = 0;
    int64_t sequence = -1;
    int64_t kernel = 0;
    std::array<int32_t, 3> grid = {};
    std::array<int32_t, 3> block = {};
    int32_t peer = -1;
  };

  [[nodiscard]] int64_t communicator_of(const TextIds& texts) const {
    const auto own = communicators_.find(texts.group);
    return own == communicators_.end() ? -1 : own->second;
  }

  Last last_;
  std::unordered_map<int64_t, Seen> last_of_name_;
  std::unordered_map<int32_t, int64_t> stream_ends_ns_;
  std::unordered_map<int64_t, int64_t> communicators_;  ///< by group
};

/// How many columns a record has.
template <ColumnSet kSet>
size_t num_record_columns() {
  size_t count = 0;
  const TraceRecord record;
  for_each_column<kSet>(record, [&](const char*, const auto&) { ++count; });
  return count;
}

void append(std::string& blob, const std::string& packed) {
  for (size_t i = 0; i < kLengthBytes; ++i) {
    blob += static_cast<char>(packed.size() >> (8 * i));
  }
  blob += packed;
}

void append_if_any(std::string& blob, const ColumnWriter& column) {
  append(blob, column.is_all_zero() ? std::string() : column.packed());
}

/// Splits a blob into its columns.
class BlobColumns {
 public:
  BlobColumns(std::string_view blob, const std::string& where) : rest_(blob), where_(where) {
    if (rest_.empty() || rest_[0] < kFirstBlobVersion || rest_[0] > kBlobVersion) {
      fail("is of a version that is not known");
    }
    version_ = rest_[0];
    rest_.remove_prefix(1);
  }
  [[nodiscard]] bool is_of_first_version() const { return version_ == kFirstBlobVersion; }
  ColumnReader next(size_t max_numbers) {
    if (rest_.size() < kLengthBytes) fail("ends early");
    size_t length = 0;
    for (size_t i = 0; i < kLengthBytes; ++i) {
      length |= static_cast<size_t>(static_cast<unsigned char>(rest_[i])) << (8 * i);
    }
    rest_.remove_prefix(kLengthBytes);
    if (length > rest_.size()) fail("ends early");
    if (length == 0 && !is_of_first_version()) return ColumnReader();
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
  char version_ = 0;
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

/// `field` is a member of `record`, and `id` what is stored of it.
void take_id(const TraceRecord& record, const base::InternedString& field, int64_t id,
             TextIds& texts) {
  if (&field == &record.name) texts.name = id;
  if (&field == &record.group) texts.group = id;
  if (&field == &record.kernel) texts.kernel = id;
}

template <ColumnSet kSet>
TraceRecord unpack_record(std::vector<ColumnReader>& columns, Expected& expected,
                          const StepTrace& trace, const BlobColumns& parts,
                          const std::string& where, const TextOfId& text_of) {
  TraceRecord record;
  record.step = trace.step;
  record.rank = trace.rank;
  TextIds texts;
  size_t i = 0;
  for_each_column<kSet>(record, [&](const char*, auto& field) {
    using Field = std::decay_t<decltype(field)>;
    const int64_t value = sum_of(columns[i++].next(), expected.of(record, texts, &field));
    if constexpr (std::is_same_v<Field, base::InternedString>) {
      take_id(record, field, value, texts);
      if (&field != &record.kernel || value != 0) field = text_of(value);
    } else if constexpr (std::is_same_v<Field, profiler::RecordKind>) {
      field = checked_kind(value, where);
    } else {
      field = checked<Field>(value, parts);
    }
  });
  expected.take(record, texts);
  return record;
}

/// Numbers of each trace that count something; their sum is bounded.
std::vector<int64_t> unpack_counts(BlobColumns& parts, int64_t most, const char* problem) {
  std::vector<int64_t> counts;
  int64_t sum = 0;
  for (ColumnReader column = parts.next(kMaxTraces); !column.is_at_end();) {
    const int64_t count = counts.emplace_back(column.next());
    if (count < 0 || count > most - sum) parts.fail(problem);
    sum += count;
  }
  return counts;
}

template <ColumnSet kSet>
std::vector<StepTrace> unpack(BlobColumns& parts, const std::string& where,
                              const TextOfId& text_of) {
  ColumnReader steps = parts.next(kMaxTraces);
  ColumnReader ranks = parts.next(kMaxTraces);
  const std::vector<int64_t> counts =
      unpack_counts(parts, kMaxTraceRecords, "has a wrong number of records");
  const int64_t num_records = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  std::vector<int64_t> wait_counts(counts.size());
  if constexpr (kSet == ColumnSet::all) {
    wait_counts = unpack_counts(parts, kMaxWaitsPerRecord * num_records, kWrongWaits);
    if (wait_counts.size() != counts.size()) parts.fail(kWrongWaits);
  }
  std::vector<ColumnReader> columns;
  for (size_t i = num_record_columns<kSet>(); i > 0; --i) {
    columns.push_back(parts.next(static_cast<size_t>(num_records)));
  }
  std::vector<ColumnReader> waits;
  for (size_t i = 0; kSet == ColumnSet::all && i < kNumWaitColumns; ++i) {
    waits.push_back(parts.next(static_cast<size_t>(kMaxWaitsPerRecord * num_records)));
  }
  parts.expect_end();

  std::vector<StepTrace> traces;
  Expected expected;
  for (size_t t = 0; t < counts.size(); ++t) {
    StepTrace& trace = traces.emplace_back();
    trace.step = checked<int32_t>(steps.next(), parts);
    trace.rank = checked<int32_t>(ranks.next(), parts);
    expected.begin();
    for (int64_t k = 0; k < counts[t]; ++k) {
      trace.records.push_back(unpack_record<kSet>(columns, expected, trace, parts, where, text_of));
    }
    if constexpr (kSet == ColumnSet::all) {
      int64_t record_id = 0;
      for (int64_t k = 0; k < wait_counts[t]; ++k) {
        record_id = sum_of(record_id, waits[0].next());
        trace.further_waits.push_back({record_id, difference_of(record_id, waits[1].next())});
      }
      profiler::sort_further_waits(trace);
    }
  }
  steps.expect_end();
  ranks.expect_end();
  for (const ColumnReader& column : columns) column.expect_end();
  for (const ColumnReader& column : waits) column.expect_end();
  return traces;
}

}  // namespace

std::string pack_traces(const std::vector<StepTrace>& traces, const IdOfText& id_of) {
  std::array<ColumnWriter, kNumTraceColumns> heads;
  std::vector<ColumnWriter> columns(num_record_columns<ColumnSet::all>());
  std::array<ColumnWriter, kNumWaitColumns> waits;
  Expected expected;
  for (const StepTrace& trace : traces) {
    heads[0].add(trace.step);
    heads[1].add(trace.rank);
    heads[2].add(static_cast<int64_t>(trace.records.size()));
    heads[3].add(static_cast<int64_t>(trace.further_waits.size()));
    expected.begin();
    for (const TraceRecord& record : trace.records) {
      TextIds texts;
      size_t i = 0;
      for_each_column(record, [&](const char*, const auto& field) {
        int64_t value = 0;
        if constexpr (std::is_same_v<std::decay_t<decltype(field)>, base::InternedString>) {
          value = &field == &record.kernel && field.empty() ? 0 : id_of(field);
          take_id(record, field, value, texts);
        } else {
          value = static_cast<int64_t>(field);
        }
        columns[i++].add(difference_of(value, expected.of(record, texts, &field)));
      });
      expected.take(record, texts);
    }
    int64_t record_id = 0;
    for (const profiler::FurtherWait& wait : trace.further_waits) {
      waits[0].add(difference_of(wait.record_id, record_id));
      waits[1].add(difference_of(wait.record_id, wait.producer_id));
      record_id = wait.record_id;
    }
  }
  std::string blob(1, kBlobVersion);
  for (const ColumnWriter& column : heads) append(blob, column.packed());
  for (const ColumnWriter& column : columns) append_if_any(blob, column);
  for (const ColumnWriter& column : waits) append_if_any(blob, column);
  return blob;
}

std::vector<StepTrace> unpack_traces(std::string_view blob, const std::string& where,
                                     const TextOfId& text_of) {
  BlobColumns parts(blob, where);
  return parts.is_of_first_version() ? unpack<ColumnSet::first>(parts, where, text_of)
                                     : unpack<ColumnSet::all>(parts, where, text_of);
}

}  // namespace moetune::store
