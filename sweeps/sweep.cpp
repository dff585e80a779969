// How a request is answered: by the store, by a new run or by a refusal; and how budgets and
// interrupts end the loop.
#include "sweeps/sweep.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "sweeps/host_room.h"
#include "sweeps/outcome.h"
#include "sweeps/processes/interrupt.h"
#include "sweeps/session.h"
#include "sweeps/strategies.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;
using spec::TrialStatus;
using std::chrono::duration;
using std::chrono::steady_clock;
using store::SearchStatus;
using tuner::Action;
using tuner::TrialOutcome;
using tuner::TrialRequest;

/// A sweep winds up when no more seconds are left than this many times its longest trial takes, so
/// that the validation fits into the rest.
constexpr double kLateTrials = 3;
constexpr double kEarliestRatio = 0.5;  ///< not before this share of the seconds is used
constexpr double kLateRatio = 0.85;     ///< from this share on always
constexpr double kTooLateRatio =
    0.95;  ///< the same by the clock, where time went by between trials

bool was_run(const store::TrialRow& trial) {
  return store::is_final(trial.status) && trial.status != spec::name_of(TrialStatus::pruned);
}

/// How far the prediction was off, once both are known.
void add_memory_error(const TrialRequest& request, const store::ShardContents& shard,
                      store::TrialResult& result) {
  int64_t peak = 0;
  for (const store::ShardMemory& memory : shard.memory) peak = std::max(peak, memory.peak_bytes);
  const auto predicted = static_cast<double>(request.prediction.peak_bytes);
  if (result.status != spec::name_of(TrialStatus::ok) || peak == 0 || predicted <= 0) return;
  result.metrics.push_back(
      {-1, "memory_error_ratio", std::abs(predicted / static_cast<double>(peak) - 1)});
}

int64_t num_steps_of(const TrialRequest& request) {
  return request.num_steps > 0 ? request.num_steps : request.spec.num_steps;
}

/// Where in a trial the time was over.
std::string place_in(const std::string& title, const std::string& step) {
  if (const std::optional<int64_t> num_steps = steps_where_all_are_done(step)) {
    return fmt::format("at the end of '{}' (all {} steps were done, its result was not written)",
                       title, *num_steps);
  }
  return fmt::format("in the middle of '{}'{}", title, step.empty() ? "" : " (" + step + ")");
}

/// Of measurements that may stand for each other.
std::string repeat_key(const TrialRequest& request) {
  return fmt::format("{} {} {}", request.hash, tuner::name_of(request.purpose),
                     num_steps_of(request));
}

}  // namespace

SweepLoop::SweepLoop(store::Store& store, int64_t sweep_id, ProcessRunner& processes,
                     LoopOptions options, Progress& progress)
    : store_(store),
      sweep_id_(sweep_id),
      processes_(processes),
      options_(std::move(options)),
      progress_(progress) {
  store_.set_environment(sweep_id_, options_.environment.empty()
                                        ? environment_of(options_.runner.rank_program)
                                        : options_.environment);
  environments_ = store_.read_environments(sweep_id_);
  const store::StaleTrials stale = store_.take_back_stale(sweep_id_);
  if (!stale.held.empty()) {
    throw base::Error(
        fmt::format("{}: {}; wait for it, or stop it", store_.path(), fmt::join(stale.held, "; ")));
  }
  options_.runner.on_tick = [this](const std::string& step) {
    state_.step = step;
    state_.left = time_left_.at(steady_clock::now());
    progress_.update(state_);
  };
}

SweepSummary SweepLoop::run(tuner::Strategy& strategy) {
  try {
    run_until_stopped(strategy);
  } catch (...) {
    // The first failure is the one to report; the store may be what has failed.
    try {
      store_.finish_sweep(sweep_id_,
                          is_checking_ ? SearchStatus::interrupted : SearchStatus::failed);
    } catch (const base::Error&) {
    }
    throw;
  }
  if (summary_.status == SearchStatus::done) store_.drop_decisions(sweep_id_, num_decisions_ + 1);
  if (summary_.status == SearchStatus::done || summary_.num_run > 0) store_landmarks(strategy);
  summary_.best_hash = strategy.best_hash();
  if (summary_.status == SearchStatus::done && summary_.best_hash.empty()) {
    summary_.status = SearchStatus::failed;
    summary_.failure = summary_.stop_reason.empty() ? last_decision_ : summary_.stop_reason;
  }
  store_.finish_sweep(sweep_id_, summary_.status);
  progress_.erase();
  return summary_;
}

void SweepLoop::run_until_stopped(tuner::Strategy& strategy) {
  summary_.status = SearchStatus::done;
  while (true) {
    if (is_late()) strategy.finish_soon();
    const std::optional<TrialRequest> request = strategy.ask();
    store_decisions(strategy);
    // What a stored sweep found stays until something new is known.
    if (summary_.num_run > 0) store_landmarks(strategy);
    if (!request) return;
    look_at(strategy, *request);
    summary_.stop_reason = exhausted_budget(*request);
    if (!summary_.stop_reason.empty()) return;
    if (is_left_to_others(*request)) {
      summary_.status = SearchStatus::interrupted;
      summary_.next = *request;
      return;
    }
    const std::optional<TrialOutcome> outcome =
        num_interrupts() > 0 ? std::nullopt : execute(*request);
    if (!outcome && is_out_of_time_) {
      const std::string& kept = options_.runner.saved_run;
      summary_.stop_reason =
          fmt::format("the budget of {} seconds is used up {}, which {}", options_.max_seconds,
                      place_in(request->title, state_.step),
                      !kept.empty() && fs::exists(kept) ? "the next call goes on with"
                                                        : "starts anew with more seconds");
      return;
    }
    if (!outcome) {
      summary_.status = SearchStatus::interrupted;
      summary_.stop_reason = "interrupted by the user";
      return;
    }
    ++summary_.num_by_status[std::string(spec::name_of(outcome->status))];
    if (!request->is_reference) ++summary_.num_tried;
    strategy.tell(*request, *outcome);
    store_decisions(strategy);
    if (options_.on_trial) options_.on_trial();
  }
}

std::optional<TrialOutcome> SweepLoop::execute(const TrialRequest& request) {
  if (request.action != Action::run) return refuse(request);
  started_.emplace(request.hash, request.attempt);
  std::optional<TrialOutcome> outcome = reuse(request);
  if (!outcome) outcome = launch(request);
  if (request.attempt > 0) ++num_repeats_[repeat_key(request)];
  if (outcome && outcome->status == TrialStatus::ok &&
      (!state_.best_step_ns || outcome->step_ns < *state_.best_step_ns) && outcome->step_ns > 0 &&
      !request.is_reference) {
    state_.best_step_ns = outcome->step_ns;
  }
  return outcome;
}

bool SweepLoop::is_left_to_others(const TrialRequest& request) const {
  if (!options_.max_new_runs || summary_.num_run < *options_.max_new_runs ||
      request.action != Action::run) {
    return false;
  }
  const std::optional<store::TrialRow> stored = finished_row(request);
  return !stored || !stored_run(*stored, request);
}

TrialOutcome SweepLoop::refuse(const TrialRequest& request) {
  const TrialStatus status =
      request.action == Action::invalid ? TrialStatus::invalid : TrialStatus::pruned;
  store::TrialRow row = trial_row(request, sweep_id_);
  row.status = spec::name_of(status);
  store_.add_finished_trial(row, prediction_rows(request.prediction),
                            memory_predictions(request.prediction));
  TrialOutcome outcome;
  outcome.status = status;
  outcome.reason = request.reason;
  return outcome;
}

std::optional<store::TrialRow> SweepLoop::finished_row(const TrialRequest& request) const {
  std::optional<store::TrialRow> stored = store_.find_trial(sweep_id_, request.hash);
  return stored && was_run(*stored) ? std::move(stored) : std::nullopt;
}

// Further measurements are told apart by what they are for and how long they are: of those that are
// alike, the first asked for is the first that was made.
std::optional<store::MeasurementRow> SweepLoop::stored_run(const store::TrialRow& trial,
                                                           const TrialRequest& request) const {
  const auto asked = num_repeats_.find(repeat_key(request));
  size_t num_before = request.attempt > 0 && asked != num_repeats_.end() ? asked->second : 0;
  for (store::MeasurementRow& run : store_.read_measurements(trial.id)) {
    if (!run.is_counted || run.purpose != tuner::name_of(request.purpose)) continue;
    if (request.attempt > 0 && run.num_steps != num_steps_of(request)) continue;
    if (is_of_this_environment(run) && num_before-- == 0) return std::move(run);
  }
  return std::nullopt;
}

std::optional<TrialOutcome> SweepLoop::reuse(const TrialRequest& request) {
  const std::optional<store::TrialRow> stored = finished_row(request);
  if (!stored) return std::nullopt;
  const std::optional<store::MeasurementRow> run = stored_run(*stored, request);
  if (!run) return std::nullopt;
  if (request.is_baseline && !stored->is_baseline) store_.set_baseline(stored->id);
  ++summary_.num_reused;
  earlier_seconds_ += static_cast<double>(run->duration_ns.value_or(0)) * 1e-9;
  add_time(*run);
  return read_outcome(store_, *stored, *run);
}

double SweepLoop::usual_probe_ns() const {
  for (const store::MeasurementRow& run : store_.read_measurements_of_sweep(sweep_id_)) {
    if (run.probe_ns.value_or(0) > 0 && is_of_this_environment(run)) {
      return static_cast<double>(*run.probe_ns);
    }
  }
  return 0;
}

bool SweepLoop::is_of_this_environment(const store::MeasurementRow& run) const {
  return std::ranges::any_of(environments_, [&](const auto& row) {
    return row.id == run.environment_id && store::are_comparable(row, environments_.back());
  });
}

void SweepLoop::look_at_host(const TrialRequest& request) {
  // Where a launcher puts the ranks is not known here.
  if (!options_.runner.launcher.empty()) return;
  const HostState host = read_host(options_.runner.host_root);
  check_host_memory(request.spec, host_bytes_of(request.spec, request.prediction), host);
  const std::string note = has_noted_cores_ ? "" : cores_note(request.spec, host);
  if (note.empty()) return;
  has_noted_cores_ = true;
  progress_.note(note);
}

TrialRun SweepLoop::run_now(const TrialRequest& request) {
  if (options_.engine == nullptr) look_at_host(request);
  ++summary_.num_run;
  state_.step.clear();
  progress_.update(state_);
  spec::TrialSpec spec = request.spec;
  spec.num_steps = num_steps_of(request);
  options_.runner.usual_probe_ns = usual_probe_ns();
  options_.runner.deadline = deadline();
  options_.runner.saved_run = request.is_reference ? options_.reference_folder : "";
  TrialRun run = options_.engine == nullptr
                     ? run_trial(processes_, spec, options_.runner)
                     : options_.engine->run(processes_, request, options_.runner);
  // The last look at its progress was a moment before its end.
  if (!run.last_progress.empty()) state_.step = run.last_progress;
  run.result.purpose = tuner::name_of(request.purpose);
  run.result.num_steps = spec.num_steps;
  run.result.environment_id = environments_.back().id;
  return run;
}

int64_t SweepLoop::commit(const TrialRequest& request, const std::string& started_at,
                          std::optional<int64_t> begun, store::TrialResult& result) {
  if (begun) {
    store_.finish_trial(*begun, result);
    return *begun;
  }
  if (request.attempt == 0) {
    store::TrialRow row = trial_row(request, sweep_id_);
    row.started_at = started_at;
    store_.replace_trial(row, prediction_rows(request.prediction),
                         memory_predictions(request.prediction), result);
    return store_.find_trial(sweep_id_, request.hash)->id;
  }
  const std::optional<store::TrialRow> trial = store_.find_trial(sweep_id_, request.hash);
  const int64_t id = trial->id;
  // Of another engine only its logs may know the tokens: those that the trial was stored with.
  double tokens = spec::tokens_per_step(request.spec.training);
  if (options_.engine != nullptr) {
    const double step_s = static_cast<double>(trial->step_ns.value_or(0)) / 1e9;
    tokens = trial->tokens_per_s.value_or(0) * step_s;
  }
  std::vector<store::MeasurementRow> runs = store_.read_measurements(id);
  store::MeasurementRow& own = runs.emplace_back();
  own.step_ns = result.step_ns;
  own.step_ns_low = result.step_ns_low;
  own.step_ns_high = result.step_ns_high;
  own.samples_ns = result.samples_ns;
  store_.add_measurement(id, started_at, result, speed_of(runs, tokens));
  for (const store::NamedText& text : result.texts) {
    if (text.name == kToldLogText) store_.add_text(id, text);
  }
  return id;
}

std::optional<TrialOutcome> SweepLoop::launch(const TrialRequest& request) {
  if (options_.engine != nullptr) {
    is_checking_ = true;
    options_.engine->check(request);
    is_checking_ = false;
  }
  // A replay that took another way than before leaves decisions that nobody made: they go before
  // the first new trial.
  if (summary_.num_run == 0) store_.drop_decisions(sweep_id_, num_decisions_ + 1);
  const auto start = steady_clock::now();
  const std::string started_at = store::now_utc();
  // What is finished stays as it is until it has been measured anew.
  std::optional<int64_t> begun;
  if (!finished_row(request)) {
    begun = store_.begin_trial(trial_row(request, sweep_id_), prediction_rows(request.prediction),
                               memory_predictions(request.prediction));
  }
  std::optional<TrialRun> run;
  try {
    run.emplace(run_now(request));
  } catch (const base::Error& error) {
    // It could not even be started: that is no statement about the spec, so it is repeated on
    // resume.
    store::TrialResult result;
    result.status = spec::name_of(TrialStatus::interrupted);
    result.reason = error.what();
    if (begun) store_.finish_trial(*begun, result);
    throw;
  }
  is_out_of_time_ = run->is_out_of_time;
  const bool is_interrupted = run->result.status == spec::name_of(TrialStatus::interrupted);
  if (is_interrupted && !begun) return std::nullopt;
  if (request.attempt == 0) {
    run->result.texts.push_back({"title", request.title});
    add_memory_error(request, run->shard(), run->result);
  }
  const int64_t id = commit(request, started_at, begun, run->result);
  if (!request.is_reference) {
    trial_seconds_ += duration<double>(steady_clock::now() - start).count();
    ++num_timed_;
  }
  if (is_interrupted) {
    report(request, {.status = TrialStatus::interrupted, .reason = run->result.reason}, {});
    return std::nullopt;
  }
  if (request.is_reference && !options_.reference_folder.empty()) {
    std::error_code ignored;
    fs::remove_all(options_.reference_folder, ignored);
  }
  const store::MeasurementRow measured = store_.read_measurements(id).back();
  add_time(measured);
  const TrialOutcome outcome = read_outcome(store_, *store_.get_trial(id), measured);
  report(request, outcome,
         request.attempt == 0 ? store_.read_metrics(id) : std::vector<store::MetricRow>{});
  return outcome;
}

void SweepLoop::store_landmarks(const tuner::Strategy& strategy) {
  const auto ended_well = [&](const std::string& hash) -> std::optional<int64_t> {
    const auto trial = hash.empty() ? std::nullopt : store_.find_trial(sweep_id_, hash);
    const bool is_ok = trial && trial->status == spec::name_of(TrialStatus::ok);
    return is_ok ? std::optional(trial->id) : std::nullopt;
  };
  const std::optional<store::SweepRow> sweep = store_.read_sweep(sweep_id_);
  const store::Store::Landmarks landmarks{ended_well(strategy.best_hash()), sweep->baseline_trial,
                                          ended_well(strategy.first_fit_hash())};
  if (landmarks_ == landmarks) return;
  store_.set_landmarks(sweep_id_, landmarks);
  landmarks_ = landmarks;
}

void SweepLoop::store_decisions(tuner::Strategy& strategy) {
  const auto id_of = [&](const std::string& hash) -> std::optional<int64_t> {
    if (hash.empty()) return std::nullopt;
    const std::optional<store::TrialRow> trial = store_.find_trial(sweep_id_, hash);
    return trial ? std::optional(trial->id) : std::nullopt;
  };
  for (const tuner::Decision& decision : strategy.take_decisions()) {
    store::DecisionRow row;
    row.sweep_id = sweep_id_;
    row.ordinal = ++num_decisions_;
    row.phase = name_of(decision.phase);
    row.kind = decision.kind;
    row.trial_id = id_of(decision.trial_hash);
    row.baseline_trial_id = id_of(decision.baseline_hash);
    row.wall = decision.wall;
    row.remedy = decision.remedy;
    row.knob = decision.knob;
    row.value_before = decision.value_before;
    row.value_after = decision.value_after;
    row.gain_ratio = decision.gain_ratio;
    row.gain_low_ratio = decision.gain_low_ratio;
    row.gain_high_ratio = decision.gain_high_ratio;
    row.noise_ratio = decision.noise_ratio;
    row.text = decision.text;
    row.evidence_json =
        decision.evidence.is_object()
            ? decision.evidence.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
            : "{}";
    store_.add_decision(row);
    last_decision_ = decision.text;
    // While a stored sweep is replayed, its story was told before.
    if (summary_.num_run > 0) {
      progress_.note(fmt::format("  {}: {}", name_of(decision.kind), decision.text));
    }
  }
}

void SweepLoop::look_at(const tuner::Strategy& strategy, const TrialRequest& request) {
  const tuner::Progress progress = strategy.progress();
  state_.phase = name_of(request.phase);
  const bool is_new =
      request.action == Action::run && !started_.contains({request.hash, request.attempt});
  state_.num_trials = static_cast<int64_t>(started_.size()) + (is_new ? 1 : 0);
  // The budget stays as it is; what a search expects changes with every turn it takes.
  state_.is_limit = options_.max_trials > 0;
  state_.num_expected = state_.is_limit ? options_.max_trials : progress.num_expected;
  state_.title = request.title;
  state_.step.clear();
  guess_time_left(progress);
}

void SweepLoop::guess_time_left(const tuner::Progress& progress) {
  // Of one trial alone nobody knows whether it is like the others.
  constexpr int64_t kFewestTimed = 2;
  if (num_timed_ < kFewestTimed) return;
  const int64_t num_left = std::max<int64_t>(0, progress.num_expected - state_.num_trials + 1);
  double left = trial_seconds_ / static_cast<double>(num_timed_) * static_cast<double>(num_left);
  if (options_.max_seconds > 0) {
    left = std::min(left, static_cast<double>(options_.max_seconds) - seconds_used());
  }
  time_left_.guess(left, steady_clock::now());
  state_.left = time_left_.at(steady_clock::now());
}

void SweepLoop::report(const TrialRequest& request, const TrialOutcome& outcome,
                       const std::vector<store::MetricRow>& metrics) {
  std::string line = fmt::format("[{}] {}: {}", format_place(state_), request.title,
                                 spec::name_of(outcome.status));
  if (outcome.status == TrialStatus::ok) {
    if (outcome.step_ns > 0) line += ", " + base::format_ns(outcome.step_ns) + " per step";
    if (outcome.peak_bytes > 0) line += ", peak " + base::format_bytes(outcome.peak_bytes);
    if (outcome.wall) line += fmt::format(", wall {}", name_of(*outcome.wall));
    for (const store::MetricRow& metric : metrics) {
      if (metric.name == "tracing_overhead_ratio") {
        line += fmt::format(", tracing {:+.1f} %", 100 * metric.value);
      }
    }
  } else {
    line += ", " + outcome.reason;
  }
  progress_.note(line);
}

double SweepLoop::seconds_used() const {
  return earlier_seconds_ + duration<double>(steady_clock::now() - start_).count();
}

std::optional<steady_clock::time_point> SweepLoop::deadline() const {
  // Of a budget of years no clock has the end.
  constexpr int64_t kForever = 1'000'000'000;
  if (options_.max_seconds <= 0 || options_.max_seconds > kForever) return std::nullopt;
  const duration<double> left(static_cast<double>(options_.max_seconds) - earlier_seconds_);
  return start_ + std::chrono::duration_cast<steady_clock::duration>(left);
}

void SweepLoop::add_time(const store::MeasurementRow& run) {
  const double seconds = static_cast<double>(run.duration_ns.value_or(0)) * 1e-9;
  stored_seconds_ += seconds;
  longest_seconds_ = std::max(longest_seconds_, seconds);
}

bool SweepLoop::is_late() const {
  if (options_.max_seconds <= 0) return false;
  const auto limit = static_cast<double>(options_.max_seconds);
  const double late = std::clamp(limit - kLateTrials * longest_seconds_, kEarliestRatio * limit,
                                 kLateRatio * limit);
  // Stored durations, not the clock: so a resumed sweep winds up after the same trial as before.
  // The clock decides only where much time went by outside of trials.
  return stored_seconds_ >= late || seconds_used() >= kTooLateRatio * limit;
}

std::string SweepLoop::exhausted_budget(const TrialRequest& request) const {
  if (request.action != Action::run || started_.contains({request.hash, request.attempt})) {
    return {};
  }
  if (options_.max_trials > 0 && static_cast<int64_t>(started_.size()) >= options_.max_trials) {
    return fmt::format("the budget of {} trials is used up", options_.max_trials);
  }
  // What is stored costs nothing.
  const std::optional<store::TrialRow> stored = finished_row(request);
  if (stored && stored_run(*stored, request)) return {};
  if (options_.max_seconds > 0 && seconds_used() >= static_cast<double>(options_.max_seconds)) {
    return fmt::format("the budget of {} seconds is used up", options_.max_seconds);
  }
  return {};
}

}  // namespace moetune::sweeps
