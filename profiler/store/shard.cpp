// Writes a shard while the ranks run. Statements are prepared once, a commit is one append to the
// write-ahead log.
#include "profiler/store/shard.h"

#include <filesystem>
#include <mutex>
#include <optional>

#include "kernels/base/error.h"
#include "profiler/store/db.h"
#include "profiler/store/internal.h"
#include "profiler/store/metrics.h"
#include "profiler/store/schema.h"
#include "profiler/store/trace_columns.h"

namespace moetune::store {
namespace {

using File = ShardWriter::File;

OpenMode checked_mode(const std::string& path, File file) {
  if (file == File::gone_on_with) return OpenMode::read_write;
  if (std::filesystem::exists(path)) {
    throw base::Error(fmt::format("{}: the shard exists already; each trial needs its own", path));
  }
  return OpenMode::read_write_create;
}

// Opened before the statements are prepared, which need the tables.
struct ShardFile {
  ShardFile(const std::string& path, File file) : database(path, checked_mode(path, file)) {
    // WAL with synchronous = off: a commit never waits for the disk. What is committed is in the
    // operating system's hands and survives the death of this process; a loss of power may take it,
    // and then the trial is simply run again.
    database.execute("PRAGMA journal_mode = wal; PRAGMA synchronous = off;");
    if (file == File::created) create_shard(database);
  }
  Database database;
};

}  // namespace

struct ShardWriter::Impl {
  Impl(const std::string& path, File how)
      : file(path, how),
        step(file.database, "INSERT INTO step VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        trace_step(file.database, "INSERT INTO trace_step VALUES (?, ?, ?, ?)"),
        trace_record(file.database, insert_into_shard()),
        trace_wait(file.database, "INSERT INTO trace_wait VALUES (?, ?, ?, ?)"),
        memory(file.database, "INSERT INTO memory VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
        op(file.database, "INSERT INTO op VALUES (?, ?, ?, ?, ?, ?)"),
        work(file.database, "INSERT INTO work VALUES (?, ?, ?, ?, ?)"),
        metric(file.database, "INSERT INTO metric VALUES (?, ?, ?)"),
        text(file.database, "INSERT INTO text VALUES (?, ?)") {}

  /// The transaction opens with the first row after a commit.
  void begin() {
    if (!transaction) {
      transaction.emplace(file.database);
    }
  }

  std::mutex mutex;  // the ranks of a process are threads
  ShardFile file;
  Statement step;
  Statement trace_step;
  Statement trace_record;
  Statement trace_wait;
  Statement memory;
  Statement op;
  Statement work;
  Statement metric;
  Statement text;
  std::optional<Transaction> transaction;
};

ShardWriter::ShardWriter(const std::string& path, File file)
    : impl_(std::make_unique<Impl>(path, file)) {}

ShardWriter::~ShardWriter() = default;

void ShardWriter::add_step(const ShardStep& step) {
  const std::lock_guard lock(impl_->mutex);
  impl_->begin();
  impl_->step
      .bind_all(step.step, step.is_warmup, step.is_traced, step.step_ns, step.loss, step.aux_loss,
                step.z_loss, step.grad_norm, step.lr)
      .run();
}

void ShardWriter::add_trace(const profiler::StepTrace& trace) {
  const std::lock_guard lock(impl_->mutex);
  impl_->begin();
  impl_->trace_step.bind_all(trace.step, trace.rank, trace.start_ns, trace.end_ns).run();
  for (const profiler::TraceRecord& record : trace.records) {
    impl_->trace_record.bind_all(trace.step, trace.rank);
    bind_columns(impl_->trace_record, 3, record, [](const std::string& text) { return text; });
    impl_->trace_record.run();
  }
  for (const profiler::FurtherWait& wait : trace.further_waits) {
    impl_->trace_wait.bind_all(trace.step, trace.rank, wait.record_id, wait.producer_id).run();
  }
}

void ShardWriter::add_memory(const ShardMemory& memory) {
  const std::lock_guard lock(impl_->mutex);
  impl_->begin();
  Statement& statement = impl_->memory;
  statement.bind_all(memory.rank, memory.peak_bytes, memory.capacity_bytes);
  int index = 3;
  for (const int64_t bytes : memory.peak_by_group) {
    statement.bind(++index, bytes);
  }
  statement.bind(++index, memory.peak_allocation).run();
}

void ShardWriter::add_op(const ShardOp& op) {
  const std::lock_guard lock(impl_->mutex);
  impl_->begin();
  impl_->op.bind_all(op.rank, op.name, op.count, op.flops, op.bytes, op.duration_ns).run();
}

void ShardWriter::add_work(const ShardWork& work) {
  const std::lock_guard lock(impl_->mutex);
  impl_->begin();
  impl_->work
      .bind_all(work.step, work.rank, list_text(work.durations_ns), list_text(work.routed_rows),
                list_text(work.probe_ns))
      .run();
}

void ShardWriter::add_metric(int rank, const std::string& name, double value) {
  metric_info(name);
  const std::lock_guard lock(impl_->mutex);
  impl_->begin();
  impl_->metric.bind_all(rank, name, value).run();
}

void ShardWriter::add_text(const std::string& key, const std::string& value) {
  const std::lock_guard lock(impl_->mutex);
  impl_->begin();
  impl_->text.bind_all(key, value).run();
}

void ShardWriter::commit() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->transaction) {
    impl_->transaction->commit();
    impl_->transaction.reset();
  }
}

void ShardWriter::copy_to(const std::string& path) {
  const std::lock_guard lock(impl_->mutex);
  MOETUNE_CHECK(!impl_->transaction, "only what is committed is copied");
  Statement(impl_->file.database, "VACUUM INTO ?").bind_all(path).run();
}

}  // namespace moetune::store
