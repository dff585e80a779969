// Which processes a trial is made of: one with all ranks as threads, one per rank started here, or
// whatever the user's launcher starts.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "sweeps/processes/process.h"
#include "sweeps/processes/trial_folder.h"

namespace moetune::sweeps {

/// Processes that moetune itself starts for a trial.
struct TrialCommands {
  std::vector<Command> commands;  ///< one per rank, or a single one
  /// The single one starts the ranks' processes, so its exit code and its output are not a rank's.
  bool is_launcher = false;
  std::string launcher_line;  ///< what that one runs, as a shell takes it

  /// For the trial's log: what a person would type.
  [[nodiscard]] std::string text() const;
};

/// Ranks that are not processes need one: communicator threads or fake. With nccl, each rank is a
/// process, told by torchrun's variables which; an empty `launcher` starts them on this machine.
/// Otherwise it is a shell command that is put in front of moetune-rank's, in which {ranks},
/// {nodes} and {ranks_per_node} are replaced. Ranks whose device does not answer leave a while
/// after `step_limit`. Throws base::UsageError for what is no such command.
TrialCommands trial_commands(const spec::TrialSpec& trial, const std::string& rank_program,
                             const std::string& launcher, const TrialFolder& folder,
                             std::chrono::milliseconds step_limit);

/// Throws base::UsageError when the ranks of `trial` are processes on several hosts and no launcher
/// is named, which alone could start them there.
void check_has_launcher(const spec::TrialSpec& trial, const std::string& launcher);

/// Throws base::UsageError when `launcher` cannot be one: empty words, an unknown or an unclosed
/// placeholder.
void check_launcher(const std::string& launcher);

}  // namespace moetune::sweeps
