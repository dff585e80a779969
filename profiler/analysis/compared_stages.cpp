#include "profiler/analysis/compared_stages.h"

#include <algorithm>
#include <map>
#include <set>

#include "profiler/analysis/alike_work.h"

namespace moetune::profiler {

ComparedStages::ComparedStages(const ReplayedRun& run, const WorkTraits& traits) {
  const std::vector<ReplayOp>& ops = run.ops();
  even_shares_.assign(run.traces().size(), 1);
  work_ns_.assign(run.traces().size(), 0);
  pipelines_.assign(run.traces().size(), -1);
  std::map<int32_t, std::vector<uint32_t>> pipelines;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (traits.has(i, WorkTraits::kKernel))
      work_ns_[ops[i].trace] += static_cast<double>(ops[i].duration_ns);
    if (!traits.has(i, WorkTraits::kMessage)) continue;
    pipelines_[ops[i].trace] = run.instance_of(i);
    std::vector<uint32_t>& traces = pipelines[run.instance_of(i)];
    if (traces.empty() || traces.back() != ops[i].trace) traces.push_back(ops[i].trace);
  }
  for (const auto& [instance, traces] : pipelines) {
    double sum = 0;
    for (const uint32_t trace : traces) sum += work_ns_[trace];
    for (const uint32_t trace : traces) {
      if (work_ns_[trace] > 0) {
        even_shares_[trace] = sum / static_cast<double>(traces.size()) / work_ns_[trace];
      }
    }
  }
}

bool ComparedStages::are_even() const {
  return std::ranges::all_of(even_shares_, [](double share) { return share == 1; });
}

std::optional<uint32_t> ComparedStages::slowest() const {
  double most = 0;
  for (uint32_t trace = 0; trace < pipelines_.size(); ++trace) {
    if (pipelines_[trace] >= 0) most = std::max(most, work_ns_[trace]);
  }
  std::optional<uint32_t> first;
  std::set<int32_t> pipelines;
  for (uint32_t trace = 0; trace < pipelines_.size(); ++trace) {
    if (pipelines_[trace] < 0 || kAlikeRatio * work_ns_[trace] <= most) continue;
    if (!pipelines.insert(pipelines_[trace]).second) return std::nullopt;
    if (!first) first = trace;
  }
  return first;
}

}  // namespace moetune::profiler
