#include "profiler/store/judged_steps.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace moetune::store {
namespace {

using profiler::StepTrace;
using Ranks = std::span<const StepTrace>;

size_t num_records(Ranks ranks) {
  return std::accumulate(ranks.begin(), ranks.end(), size_t{0},
                         [](size_t sum, const StepTrace& t) { return sum + t.records.size(); });
}

/// The traces of each traced step, as choose_steps has them. Steps whose traces were left out count
/// in that order; what it leaves out comes last.
std::vector<Ranks> in_order(const ShardContents& shard) {
  struct Step {
    int64_t ns = 0;  ///< 0: the shard does not say
    Ranks ranks;
  };
  std::map<int64_t, Step> steps;
  const Ranks traces = shard.traces;
  for (size_t begin = 0; begin < traces.size();) {
    size_t end = begin;
    while (end < traces.size() && traces[end].step == traces[begin].step) ++end;
    steps[traces[begin].step].ranks = traces.subspan(begin, end - begin);
    begin = end;
  }
  for (const ShardStep& row : shard.steps) {
    if (row.is_traced) steps[row.step].ns = row.step_ns;
  }
  std::vector<int64_t> step_ns;
  std::vector<Ranks> by_number;
  for (const auto& [number, step] : steps) {
    step_ns.push_back(step.ns);
    by_number.push_back(step.ranks);
  }
  std::vector<Ranks> ordered;
  for (const size_t i : choose_steps(step_ns)) ordered.push_back(std::exchange(by_number[i], {}));
  ordered.insert(ordered.end(), by_number.begin(), by_number.end());
  return ordered;
}

}  // namespace

std::vector<size_t> choose_steps(std::span<const int64_t> step_ns, size_t most) {
  std::vector<size_t> by_length(step_ns.size());
  std::iota(by_length.begin(), by_length.end(), size_t{0});
  std::ranges::stable_sort(by_length, {}, [&](size_t step) { return step_ns[step]; });
  std::vector<size_t> chosen;
  // Of each place in the order of lengths, how far it is from the nearest chosen one.
  std::vector<size_t> distances(by_length.size(), by_length.size());
  size_t place = by_length.empty() ? 0 : (by_length.size() - 1) / 2;
  while (chosen.size() < std::min(most, by_length.size())) {
    chosen.push_back(by_length[place]);
    for (size_t i = 0; i < distances.size(); ++i) {
      distances[i] = std::min(distances[i], i < place ? place - i : i - place);
    }
    place = static_cast<size_t>(std::ranges::max_element(distances) - distances.begin());
  }
  return chosen;
}

size_t num_that_fit(size_t largest, size_t room) {
  return std::clamp<size_t>(room / std::max<size_t>(largest, 1), 1, kMostJudgedSteps);
}

std::vector<Ranks> steps_to_judge(const ShardContents& shard) {
  std::vector<Ranks> steps;
  size_t most_ranks = 0;
  for (const Ranks& ranks : in_order(shard)) {
    if (num_records(ranks) == 0) continue;
    steps.push_back(ranks);
    most_ranks = std::max(most_ranks, ranks.size());
  }
  std::erase_if(steps, [&](const Ranks& ranks) { return ranks.size() < most_ranks; });
  size_t largest = 0;
  for (const Ranks& ranks : steps) largest = std::max(largest, num_records(ranks));
  steps.resize(std::min(steps.size(), num_that_fit(largest, kMostJudgedRecords)));
  return steps;
}

std::vector<ShardOp> ops_of(const StepTrace& trace) {
  std::map<std::string, ShardOp, std::less<>> ops;
  for (const profiler::TraceRecord& record : trace.records) {
    ShardOp& op = ops[record.name];
    op.rank = record.rank;
    op.name = record.name;
    ++op.count;
    op.flops += record.flops;
    op.bytes += record.bytes;
    op.duration_ns += record.end_ns - record.start_ns;
  }
  std::vector<ShardOp> rows;
  for (auto& [name, op] : ops) rows.push_back(std::move(op));
  return rows;
}

void keep_told_step(ShardContents& shard) {
  if (shard.traces.empty()) return;
  const std::vector<Ranks> steps = steps_to_judge(shard);
  // Without any record no step says more than another.
  const int32_t told = steps.empty() ? shard.traces.front().step : steps.front().front().step;
  std::erase_if(shard.traces, [told](const StepTrace& trace) { return trace.step != told; });
  if (steps.empty()) return;
  shard.ops.clear();
  for (const StepTrace& trace : shard.traces) {
    for (ShardOp& op : ops_of(trace)) shard.ops.push_back(std::move(op));
  }
}

}  // namespace moetune::store
