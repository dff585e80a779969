// Reading a shard back (store.h: read_shard). The file was written by a process that may have died
// at any moment, or by somebody else: sizes, types and names are checked before they are believed.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

#include "kernels/base/error.h"
#include "profiler/store/db.h"
#include "profiler/store/internal.h"
#include "profiler/store/metrics.h"
#include "profiler/store/schema.h"
#include "profiler/store/store.h"
#include "profiler/store/trace_columns.h"

namespace moetune::store {
namespace {

/// Rows of one table, never more than the file has bytes: a damaged tree that points into itself
/// would not end.
class Rows {
 public:
  Rows(Database& database, std::string_view sql, int64_t max_rows)
      : database_(database), statement_(database, sql), rows_left_(max_rows) {}

  bool next() {
    column_ = 0;
    if (!statement_.step()) {
      return false;
    }
    MOETUNE_CHECK(--rows_left_ >= 0, "{}: the shard is damaged: a table does not end",
                  database_.path());
    return true;
  }
  int64_t integer() { return statement_.get_int(column_++); }
  double real() { return statement_.get_double(column_++); }
  std::string text() { return statement_.get_text(column_++); }
  bool boolean() { return integer() != 0; }
  int32_t small() {
    const int64_t value = integer();
    MOETUNE_CHECK(value >= std::numeric_limits<int32_t>::min() &&
                      value <= std::numeric_limits<int32_t>::max(),
                  "{}: the shard is damaged: {} = {} is out of range", database_.path(),
                  statement_.column_name(column_ - 1), value);
    return static_cast<int32_t>(value);
  }

 private:
  Database& database_;
  Statement statement_;
  int64_t rows_left_;
  int column_ = 0;
};

int64_t file_bytes(const std::string& path) {
  std::error_code error;
  int64_t bytes = 0;
  for (const char* suffix : {"", "-wal"}) {
    const auto size = std::filesystem::file_size(path + suffix, error);
    bytes += error ? 0 : static_cast<int64_t>(size);
  }
  return bytes;
}

void read_traces(Database& database, int64_t max_rows, ShardContents& contents) {
  std::map<std::pair<int32_t, int32_t>, size_t> index;
  Rows windows(database, "SELECT step, rank, start, \"end\" FROM trace_step ORDER BY step, rank",
               max_rows);
  while (windows.next()) {
    profiler::StepTrace trace;
    trace.step = windows.small();
    trace.rank = windows.small();
    trace.start_ns = windows.integer();
    trace.end_ns = windows.integer();
    const bool is_new =
        index.emplace(std::pair(trace.step, trace.rank), contents.traces.size()).second;
    MOETUNE_CHECK(is_new, "{}: the shard is damaged: step {} of rank {} was traced twice",
                  database.path(), trace.step, trace.rank);
    contents.traces.push_back(std::move(trace));
  }
  Rows rows(database, select_from_shard(), max_rows);
  while (rows.next()) {
    profiler::TraceRecord record;
    record.step = rows.small();
    record.rank = rows.small();
    read_columns(rows, database.path(), record);
    const auto at = index.find({record.step, record.rank});
    MOETUNE_CHECK(at != index.end(),
                  "{}: the shard is damaged: a record of step {}, rank {} has no step",
                  database.path(), record.step, record.rank);
    contents.traces[at->second].records.push_back(std::move(record));
  }
  Rows waits(database,
             "SELECT step, rank, correlationId, producer_id FROM trace_wait ORDER BY rowid",
             max_rows);
  while (waits.next()) {
    const int32_t step = waits.small();
    const auto at = index.find({step, waits.small()});
    MOETUNE_CHECK(at != index.end(), "{}: the shard is damaged: a wait of step {} has no step",
                  database.path(), step);
    const int64_t record_id = waits.integer();
    contents.traces[at->second].further_waits.push_back({record_id, waits.integer()});
  }
  for (profiler::StepTrace& trace : contents.traces) profiler::sort_further_waits(trace);
}

ShardContents read_contents(const std::string& path) {
  Database database(path, OpenMode::read_only);
  Transaction snapshot(database, Transaction::Kind::read);
  check_shard(database);
  const int64_t max_rows = file_bytes(path);
  ShardContents contents;
  contents.path = path;

  Rows steps(database, "SELECT * FROM step ORDER BY rowid", max_rows);
  while (steps.next()) {
    ShardStep step;
    step.step = steps.integer();
    step.is_warmup = steps.boolean();
    step.is_traced = steps.boolean();
    step.step_ns = steps.integer();
    step.loss = steps.real();
    step.aux_loss = steps.real();
    step.z_loss = steps.real();
    step.grad_norm = steps.real();
    step.lr = steps.real();
    contents.steps.push_back(step);
  }
  read_traces(database, max_rows, contents);
  Rows memories(database, "SELECT * FROM memory ORDER BY rowid", max_rows);
  while (memories.next()) {
    ShardMemory memory;
    memory.rank = memories.small();
    memory.peak_bytes = memories.integer();
    memory.capacity_bytes = memories.integer();
    for (int64_t& bytes : memory.peak_by_group) {
      bytes = memories.integer();
    }
    memory.peak_allocation = memories.text();
    contents.memory.push_back(std::move(memory));
  }
  Rows ops(database, "SELECT * FROM op ORDER BY rowid", max_rows);
  while (ops.next()) {
    ShardOp op;
    op.rank = ops.small();
    op.name = ops.text();
    op.count = ops.integer();
    op.flops = ops.integer();
    op.bytes = ops.integer();
    op.duration_ns = ops.integer();
    contents.ops.push_back(std::move(op));
  }
  Rows works(database, "SELECT * FROM work ORDER BY rowid", max_rows);
  while (works.next()) {
    ShardWork work;
    work.step = works.integer();
    work.rank = works.small();
    work.durations_ns = list_from(works.text());
    work.routed_rows = list_from(works.text());
    work.probe_ns = list_from(works.text());
    contents.work.push_back(std::move(work));
  }
  Rows metrics(database, "SELECT * FROM metric ORDER BY rowid", max_rows);
  while (metrics.next()) {
    MetricRow metric;
    metric.rank = metrics.small();
    metric.name = metrics.text();
    metric.value = metrics.real();
    metric_info(metric.name);
    contents.metrics.push_back(std::move(metric));
  }
  Rows texts(database, "SELECT * FROM text ORDER BY rowid", max_rows);
  while (texts.next()) {
    std::string name = texts.text();
    contents.texts.push_back({std::move(name), texts.text()});
  }
  return contents;
}

}  // namespace

std::string ShardContents::text(std::string_view name) const {
  const auto at = std::find_if(texts.rbegin(), texts.rend(),
                               [&](const NamedText& text) { return text.name == name; });
  return at == texts.rend() ? std::string() : at->value;
}

ShardContents read_shard(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    throw ShardError(fmt::format("{}: the shard is missing; the process wrote nothing", path));
  }
  try {
    return read_contents(path);
  } catch (const base::Error& error) {
    throw ShardError(error.what());
  }
}

std::optional<int64_t> committed_step(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    return std::nullopt;
  }
  try {
    Database database(path, OpenMode::read_only, 0);
    check_shard(database);
    Statement statement(database, "SELECT step FROM step ORDER BY rowid DESC LIMIT 1");
    return statement.step() ? std::optional(statement.get_int(0)) : std::nullopt;
  } catch (const base::Error&) {
    return std::nullopt;  // being created, or damaged: read_shard says so once the process has
                          // ended
  }
}

}  // namespace moetune::store
