// The loop of a sweep: ask the strategy for a trial, run it or look it up, store it, and report the
// outcome to the strategy. Each trial is stored before the next one starts, so a killed sweep loses
// at most the trial that was running.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "profiler/store/store.h"
#include "sweeps/processes/process.h"
#include "sweeps/progress.h"
#include "sweeps/runner.h"
#include "tuner/strategy.h"

namespace moetune::sweeps {

struct LoopOptions {
  RunnerOptions runner;
  int64_t max_trials = 0;  ///< measurements that count, of the whole sweep; 0: no limit
  /// Seconds of this call and of the measurements of earlier calls. A trial that is running then is
  /// stopped; a later call with more seconds starts it again. 0: no limit.
  int64_t max_seconds = 0;
  /// The machine and the build; empty: environment_of() the runner's program.
  std::vector<store::NamedText> environment{};
  /// Folder for the state of an unfinished reference run, so that it continues where it was
  /// stopped. Empty: it starts anew.
  std::string reference_folder{};
  /// Runs the trials; null: our own engine does, by run_trial().
  TrialEngine* engine = nullptr;
  /// Trials that this call may run. With 0 it only reports the next one (SweepSummary::next).
  /// Empty: no limit.
  std::optional<int64_t> max_new_runs{};
  /// Called after each trial, when the trial and the decisions about it are stored; may be empty.
  std::function<void()> on_trial{};
};

/// Result of SweepLoop::run().
struct SweepSummary {
  /// Failed: no configuration has fitted and run.
  store::SearchStatus status = store::SearchStatus::running;
  /// If the strategy was stopped: a sentence that names the budget or the user.
  std::string stop_reason;
  std::string failure;     ///< if the status is failed: a sentence why nothing was found
  int64_t num_run = 0;     ///< trials launched by this call
  int64_t num_reused = 0;  ///< trials finished by an earlier call
  std::map<std::string, int64_t> num_by_status;
  int64_t num_tried = 0;  ///< of these, those of configurations: the reference is none
  std::string best_hash;
  std::optional<tuner::TrialRequest> next;  ///< the next trial, which max_new_runs did not allow
};

class SweepLoop {
 public:
  /// All references must outlive the loop. Takes back rows of dead processes; throws base::Error if
  /// another process is running one of the sweep's trials.
  SweepLoop(store::Store& store, int64_t sweep_id, ProcessRunner& processes, LoopOptions options,
            Progress& progress);

  /// Runs until the strategy is done, a budget is used up, or the user interrupts. Sets the sweep's
  /// status: `failed` if the strategy ends without a best trial, or if this throws; `interrupted`
  /// where it throws since TrialEngine::check did.
  SweepSummary run(tuner::Strategy& strategy);

  /// Executes one request. Returns the stored outcome if it was measured in a comparable
  /// environment; else runs and stores it. Empty if the user interrupted the run.
  std::optional<tuner::TrialOutcome> execute(const tuner::TrialRequest& request);

 private:
  /// Hash of the trial and number of the measurement: what counts against the budget.
  using Key = std::pair<std::string, int64_t>;

  std::optional<tuner::TrialOutcome> reuse(const tuner::TrialRequest& request);
  std::optional<tuner::TrialOutcome> launch(const tuner::TrialRequest& request);
  tuner::TrialOutcome refuse(const tuner::TrialRequest& request);
  /// The stored row of a trial that has run to its end; empty if the trial has to be run.
  std::optional<store::TrialRow> finished_row(const tuner::TrialRequest& request) const;
  /// The measurement that this request asks for, by this call or an earlier one; empty if there is
  /// none.
  std::optional<store::MeasurementRow> stored_run(const store::TrialRow& trial,
                                                  const tuner::TrialRequest& request) const;
  /// Probe time of the sweep's first measurement in a comparable environment, to which all step
  /// times are scaled. 0 before there is one.
  [[nodiscard]] double usual_probe_ns() const;
  [[nodiscard]] bool is_of_this_environment(const store::MeasurementRow& run) const;
  /// Whether the request needs a run that max_new_runs no longer allows.
  [[nodiscard]] bool is_left_to_others(const tuner::TrialRequest& request) const;
  TrialRun run_now(const tuner::TrialRequest& request);
  /// Throws base::EnvironmentFailure if the machine has no room for the ranks. Notes once if they
  /// have to share cores.
  void look_at_host(const tuner::TrialRequest& request);
  /// Stores the result of a run; returns the id of its trial.
  int64_t commit(const tuner::TrialRequest& request, const std::string& started_at,
                 std::optional<int64_t> begun, store::TrialResult& result);
  void store_landmarks(const tuner::Strategy& strategy);
  void store_decisions(tuner::Strategy& strategy);
  void look_at(const tuner::Strategy& strategy, const tuner::TrialRequest& request);
  void report(const tuner::TrialRequest& request, const tuner::TrialOutcome& outcome,
              const std::vector<store::MetricRow>& metrics);
  [[nodiscard]] std::string exhausted_budget(const tuner::TrialRequest& request) const;
  [[nodiscard]] double seconds_used() const;
  /// When the seconds are used up; empty without a limit.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> deadline() const;
  /// Updates the guess of the time left, before a trial.
  void guess_time_left(const tuner::Progress& progress);
  void add_time(const store::MeasurementRow& run);
  /// Whether the time that is left is only enough to conclude the search.
  [[nodiscard]] bool is_late() const;
  void run_until_stopped(tuner::Strategy& strategy);

  store::Store& store_;
  int64_t sweep_id_;
  ProcessRunner& processes_;
  LoopOptions options_;
  Progress& progress_;
  ProgressState state_;
  SweepSummary summary_;
  std::vector<store::EnvironmentRow> environments_;  ///< the last one is this call's
  std::set<Key> started_;                            ///< what counts against the budget
  /// Number of further measurements asked for so far, by trial and purpose.
  std::map<std::string, size_t> num_repeats_;
  std::optional<store::Store::Landmarks> landmarks_;  ///< as stored by this call
  int64_t num_decisions_ = 0;
  std::string last_decision_;  ///< its text
  double earlier_seconds_ = 0;
  double stored_seconds_ = 0;   ///< stored durations of all trials reported to the strategy so far
  double longest_seconds_ = 0;  ///< the longest of these
  double trial_seconds_ = 0;    ///< time of the trials launched by this call, without the reference
  int64_t num_timed_ = 0;       ///< number of trials in trial_seconds_
  TimeLeft time_left_;
  bool is_out_of_time_ = false;  ///< the last trial was stopped as the seconds were used up
  bool has_noted_cores_ = false;
  bool is_checking_ = false;  ///< the engine looks at what was given for the next trial
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace moetune::sweeps
