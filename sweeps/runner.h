// Runs one trial: writes its spec, launches the ranks, watches them, and makes a result for the
// store of the files they leave.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "engine/spec/trial_spec.h"
#include "profiler/store/store.h"
#include "sweeps/processes/process.h"
#include "sweeps/processes/watch.h"
#include "tuner/strategy.h"

namespace moetune::sweeps {

struct RunnerOptions {
  std::string rank_program;
  /// Folder of this trial alone: emptied before it starts, removed when the TrialRun is destroyed.
  std::string folder;
  std::string text_path;  ///< text that the ranks read; empty: the spec's data_path
  std::chrono::milliseconds step_limit{60'000};
  std::chrono::milliseconds grace{3'000};
  std::function<void(const std::string&)> on_tick;  ///< text such as "step 3 of 6"
  /// Command that starts the processes of a trial with several; empty: this program starts them on
  /// this machine. See processes/trial_commands.h.
  std::string launcher{};
  /// Time of the probe at the machine's usual speed, to which step times are scaled. 0: no scaling.
  double usual_probe_ns = 0;
  /// When the trial is stopped in any case; empty: never.
  std::optional<std::chrono::steady_clock::time_point> deadline{};
  /// The folder that holds the machine's /proc and /sys; empty: the machine itself.
  std::string host_root{};
  std::string saved_run{};  ///< folder for the state of an unfinished run; empty: it is not kept
  /// Whether a trial without a reference is wrong where its losses diverge (tuner/divergence.h). A
  /// sweep's strategy asks that of its reference itself.
  bool judges_divergence = false;
};

/// A trial that has ended. Removes the trial's folder when it is destroyed.
class TrialRun {
 public:
  explicit TrialRun(std::string folder) : folder_(std::move(folder)) {}
  ~TrialRun();
  TrialRun(const TrialRun&) = delete;
  TrialRun& operator=(const TrialRun&) = delete;
  TrialRun(TrialRun&& other) noexcept;
  TrialRun& operator=(TrialRun&&) = delete;

  store::TrialResult result;
  /// The joined shards of all ranks; empty if they could not be read.
  [[nodiscard]] const store::ShardContents& shard() const;
  bool is_out_of_time = false;  ///< it was stopped at the deadline
  std::string last_progress;    ///< "step 3 of 6"; empty where it is not known

 private:
  std::string folder_;
};

/// Runs a trial. A trial that fails is a result, too. Throws base::EnvironmentFailure if the trial
/// cannot run here (no program, launcher, library, GPU or driver, or not enough host memory), and
/// base::Error if there is no room for its files.
TrialRun run_trial(ProcessRunner& runner, const spec::TrialSpec& spec,
                   const RunnerOptions& options);

/// Digest of a log that somebody has brought, one text per log: kept of every run of a trial, so
/// that none counts twice.
inline constexpr const char* kToldLogText = "told_log";

/// Another engine, which runs trials in place of run_trial().
class TrialEngine {
 public:
  virtual ~TrialEngine() = default;
  /// Throws base::UsageError where what the user has given is no run of the request. Called before
  /// anything of it is stored.
  virtual void check(const tuner::TrialRequest& /*request*/) {}
  /// Throws as run_trial.
  virtual TrialRun run(ProcessRunner& processes, const tuner::TrialRequest& request,
                       const RunnerOptions& options) = 0;
};

/// Status and reason of a process that has ended.
struct Ending {
  std::string status;
  std::string reason;
};
/// `message`: last_message() of its standard error.
Ending judge(const WatchEnd& end, const std::string& message, const RunnerOptions& options);

/// The message at the end of a program's standard error: its last line that starts with
/// "moetune-rank: " and what follows, else its last line. At most 2000 bytes.
std::string last_message(const std::string& stderr_text);

}  // namespace moetune::sweeps
