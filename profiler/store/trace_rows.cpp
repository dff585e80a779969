// Traces of trials in the database: their windows as rows, their records as blobs (trace_blob.h),
// written and read with the texts that they name.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "kernels/base/error.h"
#include "profiler/store/db.h"
#include "profiler/store/internal.h"
#include "profiler/store/trace_blob.h"
#include "profiler/store/trace_columns.h"

namespace moetune::store {
namespace {

using profiler::StepTrace;
using profiler::TraceRecord;

/// Ids in StringIds, looked up once per text.
class StringTable {
 public:
  explicit StringTable(Database& database)
      : insert_(database, "INSERT OR IGNORE INTO StringIds (value) VALUES (?)"),
        select_(database, "SELECT id FROM StringIds WHERE value = ?") {}

  int64_t id_of(const std::string& text) {
    const auto [at, is_new] = ids_.try_emplace(text, 0);
    if (is_new) {
      insert_.bind(1, text).run();
      select_.bind(1, text);
      select_.step();
      at->second = select_.get_int(0);
      select_.reset();
    }
    return at->second;
  }

 private:
  Statement insert_;
  Statement select_;
  std::unordered_map<std::string, int64_t> ids_;
};

/// And back.
class StringsById {
 public:
  explicit StringsById(Database& database)
      : database_(database), select_(database, "SELECT value FROM StringIds WHERE id = ?") {}

  const std::string& text_of(int64_t id) {
    const auto [at, is_new] = texts_.try_emplace(id);
    if (is_new) {
      select_.bind(1, id);
      MOETUNE_CHECK(select_.step(),
                    "{}: the trace is damaged: it names the text {}, which is not "
                    "there",
                    database_.path(), id);
      at->second = select_.get_text(0);
      select_.reset();
    }
    return at->second;
  }

 private:
  Database& database_;
  Statement select_;
  std::unordered_map<int64_t, std::string> texts_;
};

/// In program order, with ids that are there once. Throws ConstraintError.
StepTrace in_order(const Database& database, const StepTrace& trace) {
  StepTrace sorted = trace;
  std::ranges::stable_sort(sorted.records, {}, &TraceRecord::id);
  profiler::sort_further_waits(sorted);
  const auto twice = std::ranges::adjacent_find(sorted.records, {}, &TraceRecord::id);
  if (twice != sorted.records.end()) {
    throw ConstraintError(fmt::format("{}: step {} of rank {} has the record {} twice",
                                      database.path(), trace.step, trace.rank, twice->id));
  }
  return sorted;
}

int64_t num_records_of(Database& database, int64_t trial_id) {
  Statement sum(database,
                "SELECT coalesce(sum(num_records), 0) FROM trace_blob WHERE trial_id = ?");
  sum.bind(1, trial_id);
  sum.step();
  return sum.get_int(0);
}

/// Of a step in order: more waits than are read back become a note.
void bound_waits(Database& database, int64_t trial_id, StepTrace& trace) {
  const auto most = static_cast<size_t>(kMaxWaitsPerRecord) * trace.records.size();
  if (trace.further_waits.size() <= most) return;
  append_texts(database, trial_id,
               {{"trace_note",
                 fmt::format("of step {} of rank {} only the latest wait of each record is stored: "
                             "there are {} further ones",
                             trace.step, trace.rank, trace.further_waits.size())}});
  trace.further_waits.clear();
}

/// One more part of the trial's trace; more records than it may have become a note.
void write_records(Database& database, int64_t trial_id, const std::vector<StepTrace>& traces) {
  int64_t num_records = 0;
  for (const StepTrace& trace : traces) num_records += static_cast<int64_t>(trace.records.size());
  if (num_records == 0) return;
  if (num_records + num_records_of(database, trial_id) > kMaxTraceRecords) {
    append_texts(
        database, trial_id,
        {{"trace_note", fmt::format("{} records of a process are not stored: a trial keeps "
                                    "at most {}",
                                    num_records, kMaxTraceRecords)}});
    return;
  }
  StringTable strings(database);
  Statement blob(
      database,
      "INSERT INTO trace_blob (trial_id, part, num_records, columns) VALUES (?1, "
      "(SELECT coalesce(max(part), 0) + 1 FROM trace_blob WHERE trial_id = ?1), ?2, ?3)");
  const std::string columns =
      pack_traces(traces, [&](const std::string& text) { return strings.id_of(text); });
  blob.bind_all(trial_id, num_records).bind_blob(3, columns).run();
}

/// All that the trial's blobs hold, by step and rank.
std::map<std::pair<int32_t, int32_t>, StepTrace> records_of(Database& database, int64_t trial_id) {
  std::map<std::pair<int32_t, int32_t>, StepTrace> traces;
  StringsById strings(database);
  int64_t num_records = 0;
  size_t text_bytes = 0;
  // One text may be every record's name: what all of them come to is bounded, too.
  const auto text_of = [&](int64_t id) -> const std::string& {
    const std::string& text = strings.text_of(id);
    text_bytes += text.size();
    MOETUNE_CHECK(text_bytes <= kMaxTextBytes,
                  "{}: the trace of trial {} has names of more than {} bytes", database.path(),
                  trial_id, kMaxTextBytes);
    return text;
  };
  Statement blobs(database, "SELECT columns FROM trace_blob WHERE trial_id = ? ORDER BY part");
  blobs.bind(1, trial_id);
  while (blobs.step()) {
    for (StepTrace& trace : unpack_traces(blobs.blob_view(0), database.path(), text_of)) {
      num_records += static_cast<int64_t>(trace.records.size());
      MOETUNE_CHECK(num_records <= kMaxTraceRecords,
                    "{}: the trace of trial {} has more than {} "
                    "records",
                    database.path(), trial_id, kMaxTraceRecords);
      const std::pair key(trace.step, trace.rank);
      MOETUNE_CHECK(traces.emplace(key, std::move(trace)).second,
                    "{}: the trace is damaged: step {} of rank {} is there twice", database.path(),
                    key.first, key.second);
    }
  }
  return traces;
}

}  // namespace

void write_traces(Database& database, int64_t trial_id, const std::vector<StepTrace>& traces) {
  Statement window(database,
                   "INSERT INTO trace_step (trial_id, step, rank, start, \"end\") "
                   "VALUES (?, ?, ?, ?, ?)");
  std::vector<StepTrace> sorted;
  for (const StepTrace& trace : traces) {
    window.bind_all(trial_id, trace.step, trace.rank, trace.start_ns, trace.end_ns).run();
    sorted.push_back(in_order(database, trace));
    bound_waits(database, trial_id, sorted.back());
  }
  write_records(database, trial_id, sorted);
}

std::vector<StepTrace> read_traces_of(Database& database, int64_t trial_id) {
  auto records = records_of(database, trial_id);
  std::vector<StepTrace> traces;
  Statement windows(database,
                    "SELECT step, rank, start, \"end\" FROM trace_step WHERE trial_id = ? "
                    "ORDER BY step, rank");
  windows.bind(1, trial_id);
  while (windows.step()) {
    Columns w(windows);
    StepTrace trace;
    trace.step = w.small();
    trace.rank = w.small();
    trace.start_ns = w.integer();
    trace.end_ns = w.integer();
    if (auto found = records.extract({trace.step, trace.rank})) {
      trace.records = std::move(found.mapped().records);
      trace.further_waits = std::move(found.mapped().further_waits);
    }
    traces.push_back(std::move(trace));
  }
  MOETUNE_CHECK(records.empty(), "{}: the trace is damaged: it has records of a step without a row",
                database.path());
  return traces;
}

void unpack_last_step(Database& database, int64_t trial_id) {
  database.execute(create_unpacked());
  database.execute("DELETE FROM temp.trace_record");
  const auto traces = records_of(database, trial_id);
  if (traces.empty()) return;
  const int32_t last = traces.rbegin()->first.first;
  Statement insert(database, insert_into_unpacked());
  for (const auto& [key, trace] : traces) {
    if (trace.step != last) continue;
    for (const TraceRecord& record : trace.records) {
      insert.bind_all(record.step, record.rank);
      bind_columns(insert, 3, record, [](const std::string& text) { return text; });
      insert.run();
    }
  }
}

void pack_version_4(Database& database) {
  Statement trials(database, "SELECT DISTINCT trial_id FROM trace_step ORDER BY trial_id");
  std::vector<int64_t> ids;
  while (trials.step()) ids.push_back(trials.get_int(0));
  Statement windows(database,
                    "SELECT step, rank FROM trace_step WHERE trial_id = ? ORDER BY step, rank");
  Statement records(database, select_from_version_4());
  for (const int64_t trial_id : ids) {
    std::vector<StepTrace> traces;
    windows.bind(1, trial_id);
    while (windows.step()) {
      Columns w(windows);
      StepTrace& trace = traces.emplace_back();
      trace.step = w.small();
      trace.rank = w.small();
      records.bind_all(trial_id, trace.step, trace.rank);
      while (records.step()) {
        Columns c(records);
        read_columns<ColumnSet::first>(c, database.path(), trace.records.emplace_back());
      }
      records.reset();
    }
    windows.reset();
    write_records(database, trial_id, traces);
  }
}

}  // namespace moetune::store
