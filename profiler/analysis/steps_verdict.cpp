#include "profiler/analysis/steps_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
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

std::string StepsVerdict::text() const {
  std::string text = verdict.text();
  if (2 * num_agreeing <= num_steps) {
    text += fmt::format("; only {} of {} steps {} this wall", num_agreeing, num_steps,
                        num_agreeing == 1 ? "has" : "have");
  }
  return text;
}

Evidence StepsVerdict::agreement() const {
  if (num_steps == 1) {
    return {"agreeing_ratio", 1, "ratio", "one step was replayed: there is no interval over steps"};
  }
  const std::string share =
      fmt::format(fmt::runtime(share_words(verdict.label)), base::format_ratio(low_ratio),
                  base::format_ratio(high_ratio));
  return {
      "agreeing_ratio", static_cast<double>(num_agreeing) / num_steps, "ratio",
      fmt::format("{} of {} replayed steps have this wall; {}", num_agreeing, num_steps, share)};
}

std::optional<Evidence> StepsVerdict::with_unexplained() const {
  const double most = verdict.most_ratio;
  if (verdict.num_lost > 0 && base::is_recoverable(verdict.label)) {
    return Evidence{
        "lost_records", static_cast<double>(verdict.num_lost), "count",
        fmt::format("{}: what nothing in the others explains counts to the ceiling, "
                    "which is {} at most",
                    verdict.num_lost == 1 ? "a record is missing"
                                          : fmt::format("{} records are missing", verdict.num_lost),
                    base::format_ratio(verdict.ceiling_ratio()))};
  }
  if (most < verdict.ceiling_ratio() + kLeastToldCeiling) return std::nullopt;
  return Evidence{
      "most_ratio", most, "ratio",
      fmt::format("if it is also to blame for the waits that nothing in the records explains, the "
                  "step would be {} shorter without it",
                  base::format_ratio(most))};
}

std::optional<Evidence> StepsVerdict::without_both() const {
  if (!verdict.is_hidden()) return std::nullopt;
  return Evidence{
      "joint_ratio", verdict.joint_ratio, "ratio",
      fmt::format("{} of the step is saved without {} where what hides it is gone, too: change "
                  "flags against {} together, as either alone gains little",
                  base::format_ratio(verdict.joint_ratio), base::name_of(verdict.label),
                  both_causes(verdict))};
}

std::optional<Evidence> StepsVerdict::disagreement() const {
  if (num_agreeing == num_steps) return std::nullopt;
  std::string others;
  for (size_t label = 0; label < num_by_label.size(); ++label) {
    if (num_by_label[label] == 0 || static_cast<Wall>(label) == verdict.label) continue;
    others += fmt::format("{}{} {}", others.empty() ? "" : ", ", num_by_label[label],
                          base::name_of(static_cast<Wall>(label)));
  }
  return Evidence{"disagreeing_steps", static_cast<double>(num_steps - num_agreeing), "count",
                  fmt::format("the other steps have other walls: {}", others)};
}

StepsVerdict verdict_of_steps(std::vector<StepVerdict> verdicts, std::optional<size_t> told) {
  MOETUNE_CHECK(!verdicts.empty(), "a run without a replayed step has no verdict");
  StepsVerdict steps;
  steps.low_ceilings = steps.high_ceilings = verdicts.front().ceilings;
  for (const StepVerdict& verdict : verdicts) {
    ++steps.num_by_label[static_cast<size_t>(verdict.label)];
    for (size_t label = 0; label < kNumWalls; ++label) {
      const double ceiling = verdict.ceilings[label];
      steps.low_ceilings[label] = std::min(steps.low_ceilings[label], ceiling);
      steps.high_ceilings[label] = std::max(steps.high_ceilings[label], ceiling);
    }
  }
  const auto& votes = steps.num_by_label;
  auto most = static_cast<size_t>(std::ranges::max_element(votes) - votes.begin());
  if (told) {
    const auto label = static_cast<size_t>(verdicts.at(*told).label);
    if (votes[label] == votes[most]) most = label;
  }
  // Of stalls that move from rank to rank none is named.
  std::map<int32_t, int> ranks;
  for (const StepVerdict& verdict : verdicts) {
    if (static_cast<size_t>(verdict.label) == most && verdict.rank) ++ranks[*verdict.rank];
  }
  for (StepVerdict& verdict : verdicts) {
    if (verdict.rank && 2 * ranks[*verdict.rank] < votes[most]) verdict.rank.reset();
  }
  steps.num_steps = static_cast<int>(verdicts.size());
  steps.num_agreeing = votes[most];
  steps.low_ratio = steps.low_ceilings[most];
  steps.high_ratio = steps.high_ceilings[most];
  if (told && static_cast<size_t>(verdicts[*told].label) == most) {
    steps.verdict = std::move(verdicts[*told]);
    return steps;
  }
  std::ranges::sort(verdicts, {},
                    [&](const StepVerdict& verdict) { return verdict.ceilings[most]; });
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
