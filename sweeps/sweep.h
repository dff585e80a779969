// The loop of a sweep: ask the strategy, run or look up the trial, commit, tell. Every step is in
// the store before the next one starts, so a killed sweep loses at most the trial that ran.
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
  int64_t max_trials = 0;  ///< measurements of the whole sweep that count; 0: no limit
  /// Of this call and of what earlier calls measured; a trial that runs then is ended, and begins
  /// again in a call with more. 0: no limit.
  int64_t max_seconds = 0;
  /// Where this runs, and with which build; empty: environment_of the runner's program.
  std::vector<store::NamedText> environment{};
  /// Where the reference run is kept on its way, so that one that was ended goes on where it was;
  /// empty: it begins anew.
  std::string reference_folder{};
  /// Who runs the trials; null: our own engine, by run_trial.
  TrialEngine* engine = nullptr;
  /// Trials that this call may run: 0 only says which would be next (SweepSummary::next). None: no
  /// limit.
  std::optional<int64_t> max_new_runs{};
  /// Called after each trial, once it and what was decided about it are stored; may be empty.
  std::function<void()> on_trial{};
};

/// What run() did.
struct SweepSummary {
  /// Failed: no configuration has fitted and run.
  store::SearchStatus status = store::SearchStatus::running;
  std::string
      stop_reason;         ///< a sentence when the strategy was not done: which budget, or the user
  std::string failure;     ///< a sentence why nothing was found, when the status is failed
  int64_t num_run = 0;     ///< trials launched by this call
  int64_t num_reused = 0;  ///< finished by an earlier call
  std::map<std::string, int64_t> num_by_status;
  std::string best_hash;
  std::optional<tuner::TrialRequest> next;  ///< the trial that max_new_runs has left to run
  std::string next_why;                     ///< what was decided last before it; may be empty
};

class SweepLoop {
 public:
  /// The store and the others must outlive the loop. Rows of dead holders are taken back here; a
  /// row that somebody else is running throws base::Error.
  SweepLoop(store::Store& store, int64_t sweep_id, ProcessRunner& processes, LoopOptions options,
            Progress& progress);

  /// Until the strategy is done, a budget is used up, or the user interrupts. Sets the sweep's
  /// status: failed when the strategy ends without a best trial, or when an exception leaves this.
  SweepSummary run(tuner::Strategy& strategy);

  /// One request: what the store has of it when it was measured there in an environment that can be
  /// compared with this one, else run and committed. Empty when the user interrupted it.
  std::optional<tuner::TrialOutcome> execute(const tuner::TrialRequest& request);

 private:
  /// Which measurement of which trial: what counts against the budget.
  using Key = std::pair<std::string, int64_t>;

  std::optional<tuner::TrialOutcome> reuse(const tuner::TrialRequest& request);
  std::optional<tuner::TrialOutcome> launch(const tuner::TrialRequest& request);
  tuner::TrialOutcome refuse(const tuner::TrialRequest& request);
  /// The stored row of a trial that has run to its end; none when it has to be run.
  std::optional<store::TrialRow> finished_row(const tuner::TrialRequest& request) const;
  /// What was measured for just this request, by this call or an earlier one.
  std::optional<store::MeasurementRow> stored_run(const store::TrialRow& trial,
                                                  const tuner::TrialRequest& request) const;
  /// The probe's time of the sweep's first measurement that can be compared with those of this
  /// call: step times of all are scaled to it. 0 before there is one.
  [[nodiscard]] double usual_probe_ns() const;
  [[nodiscard]] bool is_of_this_environment(const store::MeasurementRow& run) const;
  /// Whether it would have to be run, which this call may not do any more.
  [[nodiscard]] bool is_left_to_others(const tuner::TrialRequest& request) const;
  TrialRun run_now(const tuner::TrialRequest& request);
  /// Throws base::EnvironmentFailure where the machine has no room for the ranks; says once where
  /// they have to share cores.
  void look_at_host(const tuner::TrialRequest& request);
  /// Commits what a run gave; returns the id of its trial.
  int64_t commit(const tuner::TrialRequest& request, const std::string& started_at,
                 std::optional<int64_t> begun, store::TrialResult& result);
  void store_landmarks(const tuner::Strategy& strategy);
  void store_decisions(tuner::Strategy& strategy);
  void look_at(const tuner::Strategy& strategy, const tuner::TrialRequest& request);
  void report(const tuner::TrialRequest& request, const tuner::TrialOutcome& outcome,
              const std::vector<store::MetricRow>& metrics);
  [[nodiscard]] std::string exhausted_budget(const tuner::TrialRequest& request) const;
  [[nodiscard]] double seconds_used() const;
  /// When the seconds are used up; none without a limit.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> deadline() const;
  /// A new guess of the time left, before a trial.
  void guess_time_left(const tuner::Progress& progress);
  void add_time(const store::MeasurementRow& run);
  /// Only enough time is left to conclude the search.
  [[nodiscard]] bool is_late() const;
  void run_until_stopped(tuner::Strategy& strategy);

  store::Store& store_;
  int64_t sweep_id_;
  ProcessRunner& processes_;
  LoopOptions options_;
  Progress& progress_;
  ProgressState state_;
  SweepSummary summary_;
  std::vector<store::EnvironmentRow> environments_;  ///< the last one is that of this call
  std::set<Key> started_;                            ///< what counts against the budget
  /// Further measurements asked for so far, by trial and what they are for.
  std::map<std::string, size_t> num_repeats_;
  std::optional<store::Store::Landmarks> landmarks_;  ///< as stored by this call
  int64_t num_decisions_ = 0;
  std::string last_decision_;  ///< its text
  double earlier_seconds_ = 0;
  double stored_seconds_ = 0;   ///< of all trials told so far, as stored
  double longest_seconds_ = 0;  ///< of one of them
  double trial_seconds_ = 0;    ///< of the trials launched by this call, the reference left out
  int64_t num_timed_ = 0;       ///< those
  TimeLeft time_left_;
  bool is_out_of_time_ = false;  ///< the last trial was ended with the seconds
  bool has_noted_cores_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace moetune::sweeps
