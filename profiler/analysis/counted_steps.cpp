#include "profiler/analysis/counted_steps.h"

#include <algorithm>
#include <limits>
#include <set>

#include "profiler/analysis/recurring_steps.h"

namespace moetune::profiler {

std::vector<ImportedStep> steps_with_work(const std::vector<ImportedStep>& marked,
                                          const std::vector<LaunchedWork>& work) {
  std::vector<ImportedStep> steps;
  std::set<int64_t> numbers;
  int64_t last_end_ns = std::numeric_limits<int64_t>::min();
  for (const ImportedStep& step : marked) {
    if (step.start_ns < last_end_ns) continue;
    last_end_ns = step.end_ns;
    if (numbers.contains(step.number)) continue;
    const auto first = std::ranges::lower_bound(work, step.start_ns, {}, &LaunchedWork::launch_ns);
    if (first == work.end() || first->launch_ns >= step.end_ns) continue;
    numbers.insert(step.number);
    steps.push_back(step);
  }
  return steps;
}

std::vector<CountedSteps> counted_steps(std::span<const ImportedTrace> traces,
                                        const CollectiveMatching& matching) {
  const std::vector<std::vector<ImportedStep>> marked = steps_of_ranks(traces, matching);
  std::vector<CountedSteps> counted(traces.size());
  std::vector<std::vector<ImportedStep>> steps(traces.size());
  std::optional<std::set<int64_t>> common;  // numbers
  for (size_t i = 0; i < traces.size(); ++i) {
    if (traces[i].ops.empty()) continue;
    const std::vector<LaunchedWork> work = launched_work_of(traces[i]);
    counted[i].has_launches = work.back().launch_ns != std::numeric_limits<int64_t>::min();
    steps[i] = steps_with_work(marked[i], work);
    std::set<int64_t> both;
    for (const ImportedStep& step : steps[i]) {
      if (!common || common->contains(step.number)) both.insert(step.number);
    }
    common = std::move(both);
  }
  for (size_t i = 0; i < traces.size(); ++i) {
    const auto counts = [&](const ImportedStep& step) {
      return common->empty() || common->contains(step.number);
    };
    const auto first = std::ranges::find_if(steps[i], counts);
    if (first == steps[i].end()) continue;
    const auto end = std::find_if(steps[i].rbegin(), steps[i].rend(), counts).base();
    counted[i].num = static_cast<size_t>(end - first);
    counted[i].host = Interval{first->start_ns, (end - 1)->end_ns};
  }
  return counted;
}

}  // namespace moetune::profiler
