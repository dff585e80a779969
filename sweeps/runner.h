// Runs one trial: writes its spec, launches the ranks, watches them, and turns what they left into
// a result that the store can commit.
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
  std::string folder;  ///< for this trial alone: emptied before it starts and removed when the run
                       ///< is destroyed
  std::string text_path;  ///< what the ranks read in place of the spec's data_path; empty: that
  std::chrono::milliseconds step_limit{60'000};
  std::chrono::milliseconds grace{3'000};
  std::function<void(const std::string&)> on_tick;  ///< text such as "step 3 of 6"
  /// Starts the processes of a trial that has several; empty: this program, on this machine. See
  /// trial_commands in processes/trial_commands.h.
  std::string launcher{};
  /// Time of the probe at the machine's usual speed: step times are scaled to it. 0: they are not.
  double usual_probe_ns = 0;
  /// When the trial is ended, whatever it does; none: never.
  std::optional<std::chrono::steady_clock::time_point> deadline{};
  /// The folder that holds the machine's /proc and /sys; empty: the machine itself.
  std::string host_root{};
  std::string saved_run{};  ///< a folder that keeps the run on its way; empty: it is not kept
};

/// A trial that has ended. Its folder lies there until this goes away.
class TrialRun {
 public:
  explicit TrialRun(std::string folder) : folder_(std::move(folder)) {}
  ~TrialRun();
  TrialRun(const TrialRun&) = delete;
  TrialRun& operator=(const TrialRun&) = delete;
  TrialRun(TrialRun&& other) noexcept;
  TrialRun& operator=(TrialRun&&) = delete;

  store::TrialResult result;
  /// What all ranks left, as one; empty when it could not be read.
  [[nodiscard]] const store::ShardContents& shard() const;
  bool is_out_of_time = false;  ///< it was ended at the deadline

 private:
  std::string folder_;
};

/// Whatever becomes of the trial is a result. Throws base::EnvironmentFailure when it could not run
/// here (no program, launcher, library, GPU or driver; a host without memory), and base::Error when
/// there is no room for its files.
TrialRun run_trial(ProcessRunner& runner, const spec::TrialSpec& spec,
                   const RunnerOptions& options);

/// Whoever runs trials in place of run_trial: an engine that is somebody else's.
class TrialEngine {
 public:
  virtual ~TrialEngine() = default;
  /// Throws as run_trial.
  virtual TrialRun run(ProcessRunner& processes, const tuner::TrialRequest& request,
                       const RunnerOptions& options) = 0;
};

/// Status and reason of an ended process. `message` is what it said last on its standard error.
struct Ending {
  std::string status;
  std::string reason;
};
Ending judge(const WatchEnd& end, const std::string& message, const RunnerOptions& options);

/// The message at the end of a program's standard error: its last line that starts with
/// "moetune-rank: " and what follows, else its last line. At most 2000 bytes.
std::string last_message(const std::string& stderr_text);

}  // namespace moetune::sweeps
