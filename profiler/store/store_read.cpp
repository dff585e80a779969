// Reading the runs database back into structs (store.h).
#include <algorithm>
#include <map>

#include "kernels/base/error.h"
#include "profiler/store/db.h"
#include "profiler/store/internal.h"
#include "profiler/store/store.h"

namespace moetune::store {
namespace {

constexpr const char* kSelectSweep =
    "SELECT s.id, s.name, config_hash, config_json, contract_json, m.name, m.json, h.name, h.json, "
    "status, started_at, ended_at, command_line, tool_version, tool_commit, winner_trial, "
    "baseline_trial, first_fit_trial FROM sweep s "
    "JOIN model m ON m.id = model_id JOIN hardware h ON h.id = hardware_id ";

SweepRow sweep_from(const Statement& statement) {
  Columns c(statement);
  SweepRow row;
  row.id = c.integer();
  row.name = c.text();
  row.config_hash = c.text();
  row.config_json = c.text();
  row.contract_json = c.text();
  row.model_name = c.text();
  row.model_json = c.text();
  row.hardware_name = c.text();
  row.hardware_json = c.text();
  row.status = search_status_of(c.text());
  row.started_at = c.text();
  row.ended_at = c.text();
  row.command_line = c.text();
  row.tool_version = c.text();
  row.tool_commit = c.text();
  row.winner_trial = c.optional_integer();
  row.baseline_trial = c.optional_integer();
  row.first_fit_trial = c.optional_integer();
  return row;
}

constexpr const char* kSelectTrial =
    "SELECT id, sweep_id, ordinal, spec_hash, spec_json, status, reason, phase, "
    "id IS (SELECT baseline_trial FROM sweep WHERE sweep.id = trial.sweep_id), wall, "
    "predicted_peak_bytes, peak_bytes, predicted_step_ns, step_ns, step_ns_low, step_ns_high, "
    "tokens_per_s, loss_final, started_at, ended_at, duration_ns, lease_pid, lease_host, "
    "lease_start, num_attempts FROM trial ";

TrialRow trial_from(const Statement& statement) {
  Columns c(statement);
  TrialRow row;
  row.id = c.integer();
  row.sweep_id = c.integer();
  row.ordinal = c.integer();
  row.spec_hash = c.text();
  row.spec_json = c.text();
  row.status = c.text();
  row.reason = c.text();
  row.phase = c.text();
  row.is_baseline = c.boolean();
  row.wall = c.text();
  row.predicted_peak_bytes = c.optional_integer();
  row.peak_bytes = c.optional_integer();
  row.predicted_step_ns = c.optional_integer();
  row.step_ns = c.optional_integer();
  row.step_ns_low = c.optional_integer();
  row.step_ns_high = c.optional_integer();
  row.tokens_per_s = c.optional_real();
  row.loss_final = c.optional_real();
  row.started_at = c.text();
  row.ended_at = c.text();
  row.duration_ns = c.optional_integer();
  row.lease.pid = c.integer();
  row.lease.host = c.text();
  row.lease.start = c.integer();
  row.num_attempts = c.integer();
  return row;
}

std::vector<TrialRow> trials_of(Database& database, Statement& statement) {
  std::vector<TrialRow> trials;
  while (statement.step()) {
    trials.push_back(trial_from(statement));
  }
  Statement knobs(database,
                  "SELECT name, value FROM trial_knob WHERE trial_id = ? ORDER BY ordinal");
  for (TrialRow& trial : trials) {
    knobs.bind(1, trial.id);
    while (knobs.step()) {
      trial.knobs.push_back({knobs.get_text(0), knobs.get_text(1)});
    }
    knobs.reset();
  }
  return trials;
}

std::optional<TrialRow> first_of(std::vector<TrialRow> trials) {
  return trials.empty() ? std::nullopt : std::optional(std::move(trials.front()));
}

std::vector<NamedText> named_texts(Database& database, const char* sql, int64_t id) {
  std::vector<NamedText> result;
  Statement statement(database, sql);
  statement.bind(1, id);
  while (statement.step()) {
    result.push_back({statement.get_text(0), statement.get_text(1)});
  }
  return result;
}

bool is_digits(const std::string& text) {
  return !text.empty() && text.size() < 19 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::vector<SweepRow> Store::read_sweeps() const {
  std::vector<SweepRow> sweeps;
  Statement statement(*database_, std::string(kSelectSweep) + "ORDER BY s.id");
  while (statement.step()) {
    sweeps.push_back(sweep_from(statement));
  }
  return sweeps;
}

std::optional<SweepRow> Store::read_sweep(int64_t sweep_id) const {
  Statement statement(*database_, std::string(kSelectSweep) + "WHERE s.id = ?");
  statement.bind(1, sweep_id);
  return statement.step() ? std::optional(sweep_from(statement)) : std::nullopt;
}

std::vector<DecisionRow> Store::read_decisions(int64_t sweep_id) const {
  std::vector<DecisionRow> decisions;
  Statement statement(
      *database_,
      "SELECT id, sweep_id, ordinal, phase, kind, trial_id, baseline_trial_id, wall, "
      "remedy, knob, value_before, value_after, gain_ratio, gain_low_ratio, gain_high_ratio, "
      "noise_ratio, text, evidence_json FROM decision WHERE sweep_id = ? ORDER BY ordinal");
  statement.bind(1, sweep_id);
  while (statement.step()) {
    Columns c(statement);
    DecisionRow row;
    row.id = c.integer();
    row.sweep_id = c.integer();
    row.ordinal = c.integer();
    row.phase = c.text();
    row.kind = base::decision_kind_of(c.text());
    row.trial_id = c.optional_integer();
    row.baseline_trial_id = c.optional_integer();
    row.wall = c.text();
    row.remedy = c.text();
    row.knob = c.text();
    row.value_before = c.text();
    row.value_after = c.text();
    row.gain_ratio = c.optional_real();
    row.gain_low_ratio = c.optional_real();
    row.gain_high_ratio = c.optional_real();
    row.noise_ratio = c.optional_real();
    row.text = c.text();
    row.evidence_json = c.text();
    decisions.push_back(std::move(row));
  }
  return decisions;
}

std::vector<TrialRow> Store::list_trials(int64_t sweep_id) const {
  Statement statement(*database_, std::string(kSelectTrial) +
                                      "WHERE ?1 = 0 OR sweep_id = ?1 ORDER BY sweep_id, ordinal");
  statement.bind(1, sweep_id);
  return trials_of(*database_, statement);
}

std::optional<TrialRow> Store::find_trial(int64_t sweep_id, const std::string& spec_hash) const {
  Statement statement(*database_,
                      std::string(kSelectTrial) + "WHERE sweep_id = ? AND spec_hash = ?");
  statement.bind_all(sweep_id, spec_hash);
  return first_of(trials_of(*database_, statement));
}

std::optional<TrialRow> Store::get_trial(int64_t trial_id) const {
  Statement statement(*database_, std::string(kSelectTrial) + "WHERE id = ?");
  statement.bind(1, trial_id);
  return first_of(trials_of(*database_, statement));
}

TrialRow Store::get_trial(const std::string& id_or_hash_prefix, const std::string& others,
                          const std::string& behind) const {
  if (is_digits(id_or_hash_prefix)) {
    if (auto trial = get_trial(static_cast<int64_t>(std::stoll(id_or_hash_prefix)))) {
      return *std::move(trial);
    }
  }
  std::vector<TrialRow> matches;
  if (id_or_hash_prefix.size() >= 4) {
    Statement statement(*database_,
                        std::string(kSelectTrial) + "WHERE substr(spec_hash, 1, length(?1)) = ?1");
    statement.bind(1, id_or_hash_prefix);
    matches = trials_of(*database_, statement);
  }
  if (matches.empty()) {
    throw base::UsageError(
        fmt::format("{}: no trial '{}'; give {}an id, or at least 4 digits of a hash, that "
                    "'moetune ls' shows{}",
                    path(), id_or_hash_prefix, others, behind));
  }
  if (matches.size() > 1) {
    throw base::UsageError(fmt::format(
        "{}: '{}' fits {} trials (ids {} and {} among them); give more digits, or the id", path(),
        id_or_hash_prefix, matches.size(), matches[0].id, matches[1].id));
  }
  return std::move(matches.front());
}

std::vector<profiler::StepTrace> Store::read_trace(int64_t trial_id) const {
  return read_traces_of(*database_, trial_id);
}

void Store::unpack_trace(int64_t trial_id) const { unpack_last_step(*database_, trial_id); }

std::vector<StepRow> Store::read_steps(int64_t trial_id) const {
  std::vector<StepRow> steps;
  Statement statement(
      *database_,
      "SELECT step, is_warmup, is_traced, step_ns, loss, aux_loss, z_loss, grad_norm, "
      "lr FROM step WHERE trial_id = ? ORDER BY step");
  statement.bind(1, trial_id);
  while (statement.step()) {
    Columns c(statement);
    StepRow row;
    row.step = c.integer();
    row.is_warmup = c.boolean();
    row.is_traced = c.boolean();
    row.step_ns = c.integer();
    row.loss = c.real();
    row.aux_loss = c.real();
    row.z_loss = c.real();
    row.grad_norm = c.real();
    row.lr = c.real();
    steps.push_back(row);
  }
  return steps;
}

std::vector<MemoryRow> Store::read_memory(int64_t trial_id) const {
  std::vector<MemoryRow> memory;
  Statement statement(*database_,
                      "SELECT rank, \"group\", bytes, predicted_bytes, peak_allocation FROM "
                      "memory_peak WHERE trial_id = ? ORDER BY rank, \"group\"");
  statement.bind(1, trial_id);
  while (statement.step()) {
    Columns c(statement);
    MemoryRow row;
    row.rank = c.small();
    row.group = c.text();
    row.bytes = c.optional_integer();
    row.predicted_bytes = c.optional_integer();
    row.peak_allocation = c.text();
    memory.push_back(std::move(row));
  }
  return memory;
}

std::vector<OpRow> Store::read_ops(int64_t trial_id) const {
  std::vector<OpRow> ops;
  Statement statement(*database_,
                      "SELECT rank, name, count, flops, bytes, duration_ns FROM op "
                      "WHERE trial_id = ? ORDER BY rank, name");
  statement.bind(1, trial_id);
  while (statement.step()) {
    Columns c(statement);
    OpRow row;
    row.rank = c.small();
    row.name = c.text();
    row.count = c.integer();
    row.flops = c.integer();
    row.bytes = c.integer();
    row.duration_ns = c.integer();
    ops.push_back(std::move(row));
  }
  return ops;
}

std::vector<MetricRow> Store::read_metrics(int64_t trial_id) const {
  std::vector<MetricRow> metrics;
  Statement statement(
      *database_, "SELECT rank, name, value FROM metric WHERE trial_id = ? ORDER BY rank, name");
  statement.bind(1, trial_id);
  while (statement.step()) {
    Columns c(statement);
    MetricRow row;
    row.rank = c.small();
    row.name = c.text();
    row.value = c.real();
    metrics.push_back(std::move(row));
  }
  return metrics;
}

std::vector<PredictionRow> Store::read_predictions(int64_t trial_id) const {
  std::vector<PredictionRow> predictions;
  Statement statement(*database_,
                      "SELECT name, value, grade FROM prediction WHERE trial_id = ? ORDER BY name");
  statement.bind(1, trial_id);
  while (statement.step()) {
    Columns c(statement);
    PredictionRow row;
    row.name = c.text();
    row.value = c.real();
    row.grade = c.text();
    predictions.push_back(std::move(row));
  }
  return predictions;
}

std::vector<NamedText> Store::read_texts(int64_t trial_id) const {
  return named_texts(*database_,
                     "SELECT name, value FROM trial_log WHERE trial_id = ? ORDER BY ordinal",
                     trial_id);
}

}  // namespace moetune::store
