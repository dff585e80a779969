// Somebody else's engine in place of moetune-rank: a trial is a command of the user's, its result
// is read from what it leaves.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sweeps/adapters/engine_result.h"
#include "sweeps/runner.h"

namespace moetune::sweeps {

/// Where the trials of a database leave what they write: it stays, for people to look at.
std::string engine_folder(const std::string& database_path);
/// Folder of one trial below engine_folder().
std::string engine_trial_folder(const std::string& folder, const tuner::TrialRequest& request);

/// What the user's command is, its environment as the store keeps it: only measurements of the same
/// command are compared, wherever they were launched.
std::vector<store::NamedText> environment_of(const UserRun& run);

class ForeignEngine final : public TrialEngine {
 public:
  /// `folder`: see engine_folder.
  ForeignEngine(std::shared_ptr<const UserRun> run, std::string folder)
      : run_(std::move(run)), folder_(std::move(folder)) {}

  TrialRun run(ProcessRunner& processes, const tuner::TrialRequest& request,
               const RunnerOptions& options) override;

 private:
  std::shared_ptr<const UserRun> run_;
  std::string folder_;
};

/// Returns the result of the next trial from files of a run that the user has made elsewhere.
class ToldEngine final : public TrialEngine {
 public:
  /// `files`: logs, traces, folders of the run. `exit_code`: none if it was not said. Throws
  /// base::UsageError as check_told_run.
  ToldEngine(std::shared_ptr<const UserRun> run, std::vector<std::string> files,
             std::optional<int> exit_code);

  /// Throws base::UsageError as check_told_trial, and where neither a log nor an exit code of a
  /// failure was given; base::EnvironmentFailure as engine_result.
  void check(const tuner::TrialRequest& request) override;
  TrialRun run(ProcessRunner& processes, const tuner::TrialRequest& request,
               const RunnerOptions& options) override;
  /// Whether a trial has taken what was brought: a sweep that is done has none to take it.
  [[nodiscard]] bool is_taken() const { return is_taken_; }

 private:
  [[nodiscard]] EngineLeavings leavings() const;

  std::shared_ptr<const UserRun> run_;
  std::vector<std::string> files_;
  std::vector<std::string> logs_;
  std::optional<RunFacts> facts_;  ///< none: the files have no log
  std::optional<int> exit_code_;
  bool is_taken_ = false;
};

/// Throws base::UsageError if one of the files is a log that an earlier `moetune tell` has stored.
void check_not_told(const store::Store& store, int64_t sweep_id,
                    const std::vector<std::string>& files);

}  // namespace moetune::sweeps
