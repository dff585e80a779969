// Writing the records of a trial: what a shard held, metrics, texts, predictions (internal.h).
#include <string_view>

#include "kernels/base/error.h"
#include "profiler/store/db.h"
#include "profiler/store/internal.h"
#include "profiler/store/metrics.h"

namespace moetune::store {
namespace {

void write_memory(Database& database, int64_t trial_id, const std::vector<ShardMemory>& memories) {
  // The row may be there already with its prediction.
  Statement statement(database,
                      "INSERT INTO memory_peak (trial_id, rank, \"group\", bytes, peak_allocation) "
                      "VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET bytes = excluded.bytes, "
                      "peak_allocation = excluded.peak_allocation");
  const auto write = [&](int rank, const char* group, int64_t bytes,
                         const std::string& allocation) {
    statement.bind_all(trial_id, rank, group, bytes, allocation).run();
  };
  for (const ShardMemory& memory : memories) {
    for (int i = 0; i < profiler::kNumMemoryGroups; ++i) {
      write(memory.rank, profiler::name_of(static_cast<profiler::MemoryGroup>(i)),
            memory.peak_by_group[static_cast<size_t>(i)], "");
    }
    write(memory.rank, "total", memory.peak_bytes, memory.peak_allocation);
    write(memory.rank, "capacity", memory.capacity_bytes, "");
  }
}

}  // namespace

void ingest_shard(Database& database, int64_t trial_id, const ShardContents& contents,
                  bool keeps_trace) {
  // Losses are global, so every process of a run writes the same steps: the first one stays.
  Statement step(database,
                 "INSERT INTO step (trial_id, step, is_warmup, is_traced, step_ns, loss, aux_loss, "
                 "z_loss, grad_norm, lr) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                 "ON CONFLICT DO NOTHING");
  for (const ShardStep& s : contents.steps) {
    step.bind_all(trial_id, s.step, s.is_warmup, s.is_traced, s.step_ns, s.loss, s.aux_loss,
                  s.z_loss, s.grad_norm, s.lr)
        .run();
  }
  Statement op(database,
               "INSERT INTO op (trial_id, rank, name, count, flops, bytes, duration_ns) "
               "VALUES (?, ?, ?, ?, ?, ?, ?)");
  for (const ShardOp& o : contents.ops) {
    op.bind_all(trial_id, o.rank, o.name, o.count, o.flops, o.bytes, o.duration_ns).run();
  }
  write_memory(database, trial_id, contents.memory);
  write_metrics(database, trial_id, contents.metrics);
  append_texts(database, trial_id, contents.texts);
  if (keeps_trace) {
    write_traces(database, trial_id, contents.traces);
  }
}

void write_metrics(Database& database, int64_t trial_id, const std::vector<MetricRow>& metrics) {
  Statement statement(database,
                      "INSERT OR REPLACE INTO metric (trial_id, rank, name, unit, value) "
                      "VALUES (?, ?, ?, ?, ?)");
  for (const MetricRow& metric : metrics) {
    statement
        .bind_all(trial_id, metric.rank, metric.name, metric_info(metric.name).unit, metric.value)
        .run();
  }
}

void append_texts(Database& database, int64_t trial_id, const std::vector<NamedText>& texts) {
  Statement statement(
      database,
      "INSERT INTO trial_log (trial_id, ordinal, name, value) VALUES (?1, "
      "(SELECT coalesce(max(ordinal), 0) + 1 FROM trial_log WHERE trial_id = ?1), ?2, ?3)");
  for (const NamedText& text : texts) {
    statement.bind_all(trial_id, text.name, text.value).run();
  }
}

void write_knobs(Database& database, int64_t trial_id, const std::vector<NamedText>& knobs) {
  Statement statement(
      database, "INSERT INTO trial_knob (trial_id, ordinal, name, value) VALUES (?, ?, ?, ?)");
  for (size_t i = 0; i < knobs.size(); ++i) {
    statement.bind_all(trial_id, static_cast<int64_t>(i), knobs[i].name, knobs[i].value).run();
  }
}

void write_predictions(Database& database, int64_t trial_id,
                       const std::vector<PredictionRow>& predictions) {
  Statement statement(database,
                      "INSERT INTO prediction (trial_id, name, value, grade) VALUES (?, ?, ?, ?)");
  for (const PredictionRow& prediction : predictions) {
    statement.bind_all(trial_id, prediction.name, prediction.value, prediction.grade).run();
  }
}

void write_memory_predictions(Database& database, int64_t trial_id,
                              const std::vector<MemoryPrediction>& memory) {
  Statement statement(database,
                      "INSERT INTO memory_peak (trial_id, rank, \"group\", predicted_bytes) "
                      "VALUES (?, ?, ?, ?)");
  for (const MemoryPrediction& row : memory) {
    statement.bind_all(trial_id, row.rank, row.group, row.predicted_bytes).run();
  }
}

}  // namespace moetune::store
