#include "profiler/analysis/steps_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/units.h"

namespace moetune::profiler {
namespace {

/// Records of all replayed steps together; one step is replayed in any case.
constexpr size_t kMostRecords = 300'000;
constexpr size_t kMostSteps = 9;

const char* share_words(Wall label) {
  if (label == Wall::compute) return "work of the device is {} to {} of them";
  if (label == Wall::unknown) return "nothing explains {} to {} of them";
  return "without it they would be {} to {} shorter";
}

}  // namespace

Evidence StepsVerdict::agreement() const {
  const std::string share =
      fmt::format(fmt::runtime(share_words(verdict.label)), base::format_ratio(low_ratio),
                  base::format_ratio(high_ratio));
  return {
      "agreeing_ratio", static_cast<double>(num_agreeing) / num_steps, "ratio",
      fmt::format("{} of {} replayed steps have this wall; {}", num_agreeing, num_steps, share)};
}

StepsVerdict verdict_of_steps(std::vector<StepVerdict> verdicts) {
  MOETUNE_CHECK(!verdicts.empty(), "a run without a replayed step has no verdict");
  std::array<int, kNumWalls> votes = {};
  for (const StepVerdict& verdict : verdicts) ++votes[static_cast<size_t>(verdict.label)];
  const auto most = static_cast<size_t>(std::ranges::max_element(votes) - votes.begin());
  StepsVerdict steps;
  steps.num_steps = static_cast<int>(verdicts.size());
  steps.num_agreeing = votes[most];
  std::ranges::sort(verdicts, {},
                    [&](const StepVerdict& verdict) { return verdict.ceilings[most]; });
  steps.low_ratio = verdicts.front().ceilings[most];
  steps.high_ratio = verdicts.back().ceilings[most];
  std::erase_if(verdicts, [&](const StepVerdict& verdict) {
    return static_cast<size_t>(verdict.label) != most;
  });
  steps.verdict = std::move(verdicts[verdicts.size() / 2]);
  return steps;
}

std::vector<size_t> steps_to_replay(size_t num_steps, size_t largest) {
  const size_t count = std::clamp<size_t>(kMostRecords / std::max<size_t>(largest, 1), 1,
                                          std::min(kMostSteps, num_steps));
  std::vector<size_t> chosen;
  for (size_t i = 0; i < count; ++i) chosen.push_back(i * num_steps / count);
  return chosen;
}

}  // namespace moetune::profiler
