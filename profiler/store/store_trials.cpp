// Writing trials: the lease, the commit point, and taking back what a dead tuner left (store.h).
#include <algorithm>
#include <array>

#include "kernels/base/error.h"
#include "profiler/store/db.h"
#include "profiler/store/internal.h"
#include "profiler/store/metrics.h"
#include "profiler/store/store.h"
#include "profiler/store/trial_statuses.h"

namespace moetune::store {
namespace {

constexpr auto kChildTables =
    std::to_array<const char*>({"trial_knob", "prediction", "metric", "step", "op", "memory_peak",
                                "trial_log", "trace_step", "trace_blob"});

std::string holder_text(const TrialRow& trial) {
  return fmt::format("trial {} is held by process {} on {}", trial.spec_hash, trial.lease.pid,
                     trial.lease.host);
}

int64_t insert_trial(Database& database, const TrialRow& trial, const std::string& status) {
  Statement insert(
      database,
      "INSERT INTO trial (sweep_id, ordinal, spec_hash, status, reason, phase, "
      "spec_json, predicted_peak_bytes, predicted_step_ns, started_at) VALUES (?, "
      "(SELECT coalesce(max(ordinal), 0) + 1 FROM trial WHERE sweep_id = ?), ?, ?, ?, ?, ?, ?, ?, "
      "?)");
  insert
      .bind_all(trial.sweep_id, trial.sweep_id, trial.spec_hash, status, trial.reason, trial.phase,
                trial.spec_json, trial.predicted_peak_bytes, trial.predicted_step_ns, now_utc())
      .run();
  return database.last_insert_rowid();
}

void set_baseline_of(Database& database, int64_t trial_id) {
  Statement(database,
            "UPDATE sweep SET baseline_trial = ?1 WHERE id = (SELECT sweep_id FROM trial WHERE "
            "id = ?1)")
      .bind(1, trial_id)
      .run();
}

void drop_children(Database& database, int64_t trial_id) {
  for (const char* table : kChildTables) {
    Statement(database, fmt::format("DELETE FROM {} WHERE trial_id = ?", table))
        .bind(1, trial_id)
        .run();
  }
}

/// Everything that a trial begins with; what an earlier run left under it goes.
void start_trial(Database& database, int64_t id, const TrialRow& trial,
                 const std::string& started_at, const std::vector<PredictionRow>& predictions,
                 const std::vector<MemoryPrediction>& memory) {
  drop_children(database, id);
  const Lease lease = current_lease();
  Statement(database,
            "UPDATE trial SET status = 'running', reason = '', phase = ?, "
            "spec_json = ?, predicted_peak_bytes = ?, predicted_step_ns = ?, started_at = ?, "
            "ended_at = NULL, duration_ns = NULL, wall = NULL, peak_bytes = NULL, step_ns = NULL, "
            "step_ns_low = NULL, step_ns_high = NULL, tokens_per_s = NULL, loss_final = NULL, "
            "lease_pid = ?, lease_host = ?, lease_start = ?, num_attempts = num_attempts + 1 "
            "WHERE id = ?")
      .bind_all(trial.phase, trial.spec_json, trial.predicted_peak_bytes, trial.predicted_step_ns,
                started_at, lease.pid, lease.host, lease.start, id)
      .run();
  if (trial.is_baseline) set_baseline_of(database, id);
  write_knobs(database, id, trial.knobs);
  write_predictions(database, id, predictions);
  write_memory_predictions(database, id, memory);
}

void check_metrics(const std::vector<MetricRow>& metrics) {
  for (const MetricRow& metric : metrics) {
    metric_info(metric.name);
  }
}

// Writes all of a shard or nothing of it. Only what the shard itself does wrong becomes a
// ShardError.
void ingest_or_roll_back(Database& database, int64_t trial_id, const ShardContents& contents,
                         bool keeps_trace) {
  database.execute("SAVEPOINT shard");
  try {
    ingest_shard(database, trial_id, contents, keeps_trace);
  } catch (const ConstraintError& error) {
    database.execute("ROLLBACK TO shard; RELEASE shard");
    throw ShardError(
        fmt::format("{}: the shard contradicts itself: {}", contents.path, error.what()));
  }
  database.execute("RELEASE shard");
}

std::string joined(const std::vector<std::string>& sentences) {
  return fmt::format("{}", fmt::join(sentences, "; "));
}

}  // namespace

bool is_final(std::string_view status) {
  return status != kTrialRunning && status != kTrialInterrupted;
}

int64_t Store::begin_trial(const TrialRow& trial, const std::vector<PredictionRow>& predictions,
                           const std::vector<MemoryPrediction>& memory) {
  Transaction transaction(*database_);
  int64_t id = 0;
  if (const auto existing = find_trial(trial.sweep_id, trial.spec_hash)) {
    // A pruned spec never ran; a later phase may find a reason to run it after all.
    if (is_final(existing->status) && existing->status != kTrialPruned) {
      throw base::Error(fmt::format("{}: trial {} is finished ({}) and is not run again", path(),
                                    trial.spec_hash, existing->status));
    }
    if (existing->status == kTrialRunning && is_alive(existing->lease)) {
      throw base::Error(fmt::format("{}: {}, which still runs; wait for it, or stop it", path(),
                                    holder_text(*existing)));
    }
    id = existing->id;
  } else {
    id = insert_trial(*database_, trial, std::string(kTrialRunning));
  }
  start_trial(*database_, id, trial, now_utc(), predictions, memory);
  transaction.commit();
  return id;
}

namespace {

/// The commit point's rows, within a transaction of the caller.
FinishOutcome end_trial(Database& database, int64_t trial_id, const TrialResult& result) {
  FinishOutcome outcome{result.status, result.reason, {}};
  std::optional<int64_t> peak_bytes = result.peak_bytes;
  std::optional<double> loss_final = result.loss_final;

  for (const ShardContents& contents : result.shards) {
    try {
      ingest_or_roll_back(database, trial_id, contents, result.keeps_trace);
    } catch (const ShardError& error) {
      outcome.shard_problems.push_back(error.what());
      continue;
    }
    if (!result.peak_bytes) {
      for (const ShardMemory& memory : contents.memory) {
        peak_bytes = std::max(peak_bytes.value_or(0), memory.peak_bytes);
      }
    }
    if (!loss_final && !contents.steps.empty()) {
      loss_final = contents.steps.back().loss;
    }
  }
  write_metrics(database, trial_id, result.metrics);
  append_texts(database, trial_id, result.texts);
  if (!outcome.shard_problems.empty()) {
    const std::string problems = joined(outcome.shard_problems);
    append_texts(database, trial_id, {{"shard_problem", problems}});
    if (outcome.status == "ok") {
      outcome.status = "failed";
      outcome.reason = problems;
    }
  }
  Statement flip(database,
                 "UPDATE trial SET status = ?, reason = ?, wall = ?, peak_bytes = ?, step_ns = ?, "
                 "step_ns_low = ?, step_ns_high = ?, tokens_per_s = ?, loss_final = ?, "
                 "ended_at = ?10, lease_pid = NULL, lease_host = NULL, lease_start = NULL, "
                 "duration_ns = CAST(round((julianday(?10) - julianday(started_at)) * 86400000) AS "
                 "INTEGER) * 1000000 WHERE id = ?11 AND status = 'running'");
  flip.bind_all(outcome.status, outcome.reason)
      .bind_text_or_null(3, result.wall)
      .bind(4, peak_bytes)
      .bind(5, result.step_ns)
      .bind(6, result.step_ns_low)
      .bind(7, result.step_ns_high)
      .bind(8, result.tokens_per_s)
      .bind(9, loss_final)
      .bind(10, now_utc())
      .bind(11, trial_id)
      .run();
  MOETUNE_CHECK(database.num_changes() == 1, "{}: trial {} is not running", database.path(),
                trial_id);
  // One that was stopped says nothing, whoever stopped it.
  if (is_final(outcome.status)) {
    Statement started(database, "SELECT started_at FROM trial WHERE id = ?");
    started.bind(1, trial_id);
    started.step();
    write_measurement(database, trial_id, started.get_text(0), result, outcome.status,
                      outcome.reason);
  }
  return outcome;
}

}  // namespace

FinishOutcome Store::finish_trial(int64_t trial_id, const TrialResult& result) {
  check_metrics(result.metrics);
  Transaction transaction(*database_);
  FinishOutcome outcome = end_trial(*database_, trial_id, result);
  transaction.commit();
  return outcome;
}

FinishOutcome Store::replace_trial(const TrialRow& trial,
                                   const std::vector<PredictionRow>& predictions,
                                   const std::vector<MemoryPrediction>& memory,
                                   const TrialResult& result) {
  check_metrics(result.metrics);
  MOETUNE_CHECK(is_final(result.status), "trial {} has no final status: '{}'", trial.spec_hash,
                result.status);
  Transaction transaction(*database_);
  const auto existing = find_trial(trial.sweep_id, trial.spec_hash);
  MOETUNE_CHECK(existing && is_final(existing->status), "{}: trial {} is not finished", path(),
                trial.spec_hash);
  start_trial(*database_, existing->id, trial, trial.started_at, predictions, memory);
  FinishOutcome outcome = end_trial(*database_, existing->id, result);
  transaction.commit();
  return outcome;
}

int64_t Store::add_finished_trial(const TrialRow& trial,
                                  const std::vector<PredictionRow>& predictions,
                                  const std::vector<MemoryPrediction>& memory) {
  MOETUNE_CHECK(is_final(trial.status), "trial {} has no final status: '{}'", trial.spec_hash,
                trial.status);
  Transaction transaction(*database_);
  int64_t id = 0;
  if (const auto existing = find_trial(trial.sweep_id, trial.spec_hash)) {
    if (existing->status != kTrialInterrupted) {
      return existing->id;
    }
    id = existing->id;
    drop_children(*database_, id);
  } else {
    id = insert_trial(*database_, trial, trial.status);
  }
  Statement(*database_,
            "UPDATE trial SET status = ?, reason = ?, phase = ?, ended_at = started_at, "
            "duration_ns = 0 WHERE id = ?")
      .bind_all(trial.status, trial.reason, trial.phase, id)
      .run();
  if (trial.is_baseline) set_baseline_of(*database_, id);
  write_knobs(*database_, id, trial.knobs);
  write_predictions(*database_, id, predictions);
  write_memory_predictions(*database_, id, memory);
  transaction.commit();
  return id;
}

void Store::set_baseline(int64_t trial_id) { set_baseline_of(*database_, trial_id); }

StaleTrials Store::take_back_stale(int64_t sweep_id, bool takes_foreign) {
  StaleTrials stale;
  Transaction transaction(*database_);
  const std::string own_host = current_lease().host;
  for (const TrialRow& trial : list_trials(sweep_id)) {
    if (trial.status != kTrialRunning) {
      continue;
    }
    const bool is_foreign = trial.lease.host != own_host;
    if (is_foreign ? !takes_foreign : is_alive(trial.lease)) {
      stale.held.push_back(holder_text(trial));
      continue;
    }
    Statement(*database_,
              "UPDATE trial SET status = 'interrupted', reason = ?, ended_at = ? WHERE id = ?")
        .bind_all(fmt::format("the tuner (process {} on {}) ended while the trial ran",
                              trial.lease.pid, trial.lease.host),
                  now_utc(), trial.id)
        .run();
    stale.taken_back.push_back(trial.spec_hash);
  }
  transaction.commit();
  return stale;
}

}  // namespace moetune::store
