// Ranks that a launcher has started: this program holds only the launcher, and hears of the ranks
// through the folder they share.
#pragma once

#include <chrono>
#include <memory>

#include "sweeps/processes/process.h"
#include "sweeps/processes/trial_folder.h"

namespace moetune::sweeps {

/// The launcher's process, ended when a rank has failed and the others do not end within
/// `patience`: not every launcher ends them. A launcher gets time for that, whatever grace is asked
/// for (but none): were it killed earlier, its ranks would stay on their hosts.
class LaunchedRanks : public Process {
 public:
  LaunchedRanks(std::unique_ptr<Process> launcher, TrialFolder folder, int num_ranks,
                std::chrono::milliseconds patience);

  std::optional<ProcessEnd> wait(std::chrono::milliseconds limit) override;
  ProcessEnd end(std::chrono::milliseconds grace) override;
  [[nodiscard]] int64_t pid() const override { return launcher_->pid(); }

 private:
  using Clock = std::chrono::steady_clock;

  std::unique_ptr<Process> launcher_;
  TrialFolder folder_;
  int num_ranks_;
  std::chrono::milliseconds patience_;
  Clock::time_point next_look_ = Clock::now();
  std::optional<Clock::time_point> first_failure_;
};

}  // namespace moetune::sweeps
