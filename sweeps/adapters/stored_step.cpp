#include "sweeps/adapters/stored_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"
#include "profiler/analysis/counted_steps.h"
#include "profiler/analysis/group_words.h"
#include "profiler/analysis/imported_account.h"
#include "profiler/analysis/imported_replay.h"
#include "profiler/analysis/imported_steps.h"
#include "sweeps/adapters/stored_work.h"
#include "sweeps/analyse.h"

namespace moetune::sweeps {
namespace {

using profiler::StepBudget;
using profiler::StepTrace;
using profiler::TraceRecord;

constexpr size_t kMostStoredRecords = 400'000;
/// Records of all ranks are made before some are left out: bounds the memory for that.
constexpr size_t kMostMadeRecords = 4 * kMostStoredRecords;

/// Our name of the group if its words say one, else the framework's. A suffix "#N" is kept.
std::string stored_group(const std::string& purpose) {
  const size_t number = std::min(purpose.find('#'), purpose.size());
  const auto group = profiler::group_of_words(std::string_view(purpose).substr(0, number));
  if (!group || group->empty()) return purpose;
  return std::string(*group) + purpose.substr(number);
}

/// The ranks of the traces; their indices if a rank is missing or occurs twice.
std::vector<int32_t> ranks_of(const Diagnosis& diagnosis) {
  std::vector<int32_t> ranks;
  std::set<int64_t> known;
  for (const profiler::ImportedTrace& trace : diagnosis.traces) {
    const int64_t rank = trace.facts.rank.value_or(-1);
    const bool is_good = rank >= 0 && rank <= std::numeric_limits<int32_t>::max();
    if (is_good && known.insert(rank).second) ranks.push_back(static_cast<int32_t>(rank));
  }
  if (ranks.size() == diagnosis.traces.size()) return ranks;
  ranks.clear();
  for (size_t i = 0; i < diagnosis.traces.size(); ++i) ranks.push_back(static_cast<int32_t>(i));
  return ranks;
}

/// Whether all ranks are those that the files say.
bool are_stated(const std::vector<int32_t>& ranks, const Diagnosis& diagnosis) {
  return std::ranges::equal(ranks, diagnosis.traces, {}, {},
                            [](const auto& trace) { return trace.facts.rank.value_or(-1); });
}

/// Whether all traces together span too much time (kMaxTraceNs).
bool is_too_long(const std::vector<profiler::ImportedTrace>& traces) {
  double first_ns = std::numeric_limits<double>::max();
  double last_ns = std::numeric_limits<double>::lowest();
  for (const profiler::ImportedTrace& trace : traces) {
    const profiler::TraceExtent extent = profiler::extent_of(trace);
    first_ns = std::min(first_ns, extent.first_ns);
    last_ns = std::max(last_ns, extent.last_ns);
  }
  return last_ns - first_ns > profiler::kMaxTraceNs;
}

/// What only records of our own form tell: how the host launched the stored step.
void add_host_figures(std::span<const StepTrace> traces, std::vector<StepBudget>& budgets) {
  for (const StepTrace& trace : traces) {
    const auto budget = std::ranges::find(budgets, trace.rank, &StepBudget::rank);
    if (budget == budgets.end()) continue;
    const StepBudget own = profiler::compute_budget(trace, {});
    budget->host_sync_ns = own.host_sync_ns;
    budget->host_sync_in_idle_ns = own.host_sync_in_idle_ns;
    budget->num_launches = own.num_launches;
  }
}

/// The budgets as metrics. Gaps and FLOPs are not known.
void add_account(std::vector<StepBudget> budgets, store::ShardContents& shard) {
  std::set<std::string_view> unknown = {"num_gaps", "num_unresolved_gaps", "flops",
                                        "executed_flops_per_step"};
  bool has_host_figures = shard.traces.size() == budgets.size();
  try {
    if (has_host_figures) add_host_figures(shard.traces, budgets);
  } catch (const base::Error&) {  // the trace contradicts itself
    has_host_figures = false;
  }
  if (!has_host_figures) unknown.insert({"host_sync_ns", "host_sync_in_idle_ns", "num_launches"});
  std::vector<store::MetricRow> metrics;
  add_step_budgets(budgets, metrics);
  std::erase_if(metrics, [&](const store::MetricRow& row) { return unknown.contains(row.name); });
  shard.metrics.insert(shard.metrics.end(), metrics.begin(), metrics.end());
}

}  // namespace

void add_stored_step(const Diagnosis& diagnosis, store::ShardContents& shard,
                     std::vector<std::string>& notes) {
  if (is_too_long(diagnosis.traces)) {
    notes.push_back("the traces lie too far apart to be stored");
    return;
  }
  const profiler::ImportedSteps steps(diagnosis.traces, diagnosis.wall.matching,
                                      profiler::RecordNames::texts);
  if (steps.num_steps() == 0) return;
  const size_t middle = steps.num_steps() / 2;
  if (steps.num_ops(middle) > kMostMadeRecords) {
    notes.push_back("the trace has too much work in a step to be stored");
    return;
  }
  std::vector<StepTrace> made = steps.make(middle);
  profiler::infer_producers(made, steps.communicators());
  const std::vector<int32_t> ranks = ranks_of(diagnosis);
  const bool has_peers = are_stated(ranks, diagnosis);
  bool has_path = true;
  try {
    profiler::CriticalPath path = profiler::path_of_imported(made, steps.communicators());
    std::map<int32_t, int64_t> by_rank;
    for (const auto& [trace, ns] : path.ns_by_rank) by_rank[ranks[static_cast<size_t>(trace)]] = ns;
    path.ns_by_rank = std::move(by_rank);
    add_critical_path(path, shard.metrics);
  } catch (const base::Error&) {
    has_path = false;
  }
  int64_t origin_ns = std::numeric_limits<int64_t>::max();
  for (const StepTrace& trace : made) origin_ns = std::min(origin_ns, trace.start_ns);
  size_t num_records = 0;
  size_t num_left_out = 0;
  for (StepTrace& trace : made) {
    if (num_records + trace.records.size() > kMostStoredRecords) {
      ++num_left_out;
      continue;
    }
    num_records += trace.records.size();
    profiler::shift(trace, -origin_ns);
    trace.rank = ranks[static_cast<size_t>(trace.rank)];
    for (TraceRecord& record : trace.records) {
      record.rank = trace.rank;
      record.step = trace.step;
      record.group = stored_group(record.group);
      // Files name them by ranks, which are not those that were counted here.
      if (!has_peers) record.peer = -1;
    }
    shard.traces.push_back(std::move(trace));
  }
  std::ranges::sort(shard.traces, {}, &StepTrace::rank);
  if (num_left_out > 0) {
    notes.push_back(
        fmt::format("the traces of {} ranks are not stored: they are too large", num_left_out));
  }
  const std::vector<profiler::CountedSteps> counted =
      profiler::counted_steps(diagnosis.traces, diagnosis.wall.matching);
  std::vector<StepBudget> budgets =
      profiler::imported_budgets(diagnosis.traces, diagnosis.wall.matching, counted);
  add_known_work(diagnosis, ranks, counted, shard.ops);
  for (StepBudget& budget : budgets) budget.rank = ranks[static_cast<size_t>(budget.rank)];
  add_account(budgets, shard);
  if (!has_path) notes.push_back("the traced step contradicts itself: it has no critical path");
}

}  // namespace moetune::sweeps
