#include "profiler/analysis/trial_wall.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/units.h"

namespace moetune::profiler {
namespace {

using base::format_bytes;
using base::format_ratio;

/// What other verdicts say as a part of a line.
std::string sentence(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text.ends_with('.') ? text : text + '.';
}

std::string out_of_memory(const MemoryFacts& memory) {
  if (!memory.oom_reason.empty()) return memory.oom_reason;
  return fmt::format("out of memory: {} were in use of {}", format_bytes(memory.peak_bytes),
                     format_bytes(memory.capacity_bytes));
}

void add_memory(const MemoryFacts& memory, std::vector<Evidence>& evidence) {
  if (memory.is_oom) evidence.push_back({"is_oom", 1, "count", "the trial ran out of memory"});
  if (memory.capacity_bytes <= 0) return;
  const double used =
      static_cast<double>(memory.peak_bytes) / static_cast<double>(memory.capacity_bytes);
  evidence.push_back(
      {"memory_used_ratio", used, "ratio",
       fmt::format("the fullest rank {} {} of {} ({})", memory.is_oom ? "had reached" : "peaks at",
                   format_bytes(memory.peak_bytes), format_bytes(memory.capacity_bytes),
                   format_ratio(used))});
}

/// What would be gained at most without each cause, the largest first.
void add_ceilings(const StepVerdict& verdict, std::vector<Evidence>& evidence) {
  std::vector<std::pair<double, const char*>> ceilings;
  for (const SubCauseRow& row : sub_causes()) {
    const double ratio = verdict.sub_ceilings[static_cast<size_t>(row.id)];
    if (row.label == Wall::compute || ratio < kLeastToldCeiling) continue;
    ceilings.emplace_back(ratio, row.name);
  }
  if (ceilings.empty()) return;
  std::ranges::stable_sort(ceilings, std::greater<>(), &std::pair<double, const char*>::first);
  std::string text = "the step would be shorter without one cause alone:";
  for (const auto& [ratio, name] : ceilings) {
    text += fmt::format("{} {} by {}", text.ends_with(':') ? "" : ",", name, format_ratio(ratio));
  }
  evidence.push_back({"largest_ceiling_ratio", ceilings.front().first, "ratio", text});
}

}  // namespace

TrialWall judge_trial(std::vector<StepVerdict> steps, const std::optional<StepAccount>& account,
                      const MemoryFacts& memory, const std::string& to_record) {
  MOETUNE_CHECK(memory.is_oom || !steps.empty(), "a trial without a traced step has no wall");
  TrialWall verdict;
  add_memory(memory, verdict.evidence);
  if (!steps.empty()) {
    verdict.steps = verdict_of_steps(std::move(steps), 0);
    const StepVerdict& step = verdict.steps->verdict;
    verdict.wall = step.label;
    // Without the device's peaks compute is not told apart.
    const bool is_told =
        step.label != Wall::compute || step.sub_ceilings[static_cast<size_t>(step.sub_cause)] > 0;
    if (is_told) verdict.sub_cause = row_of(step.sub_cause).name;
    verdict.summary = verdict.steps->text();
    verdict.evidence.push_back(verdict.steps->agreement());
    if (auto others = verdict.steps->disagreement()) {
      verdict.evidence.push_back(std::move(*others));
    }
    add_ceilings(step, verdict.evidence);
    for (auto more : {verdict.steps->without_both(), verdict.steps->with_unexplained()}) {
      if (more) verdict.evidence.push_back(std::move(*more));
    }
    if (step.label == Wall::unknown) {
      verdict.evidence.push_back({"unknown_ratio", step.unknown_ratio(), "ratio",
                                  fmt::format("to tell what it is, record {}", to_record)});
    }
  }
  if (memory.is_oom) {
    verdict.wall = Wall::memory;
    verdict.sub_cause.clear();
    verdict.summary = out_of_memory(memory);
  }
  verdict.summary = sentence(verdict.summary);
  for (Evidence& fact : verdict.evidence) fact.text = sentence(fact.text);
  if (account) {
    verdict.evidence.insert(verdict.evidence.end(), account->evidence.begin(),
                            account->evidence.end());
  }
  return verdict;
}

}  // namespace moetune::profiler
