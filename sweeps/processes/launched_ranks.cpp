#include "sweeps/processes/launched_ranks.h"

#include <algorithm>
#include <utility>

#include "sweeps/processes/last_words.h"

namespace moetune::sweeps {
namespace {

using std::chrono::milliseconds;

// The folder may be on a network's file system, and there are many ranks.
constexpr milliseconds kLookPeriod{1'000};
// Slurm and torchrun wait 30 s between asking a rank to end and killing it.
constexpr milliseconds kGrace{45'000};

}  // namespace

LaunchedRanks::LaunchedRanks(std::unique_ptr<Process> launcher, TrialFolder folder, int num_ranks,
                             milliseconds patience)
    : launcher_(std::move(launcher)),
      folder_(std::move(folder)),
      num_ranks_(num_ranks),
      patience_(patience) {}

std::optional<ProcessEnd> LaunchedRanks::wait(milliseconds limit) {
  if (std::optional<ProcessEnd> ended = launcher_->wait(limit)) return ended;
  const Clock::time_point now = Clock::now();
  if (now >= next_look_ && !first_failure_) {
    next_look_ = now + kLookPeriod;
    if (cause_of(read_last_words(folder_, num_ranks_))) first_failure_ = now;
  }
  if (first_failure_ && now - *first_failure_ >= patience_) return end(kGrace);
  return std::nullopt;
}

ProcessEnd LaunchedRanks::end(milliseconds grace) {
  return launcher_->end(grace.count() == 0 ? grace : std::max(grace, kGrace));
}

}  // namespace moetune::sweeps
