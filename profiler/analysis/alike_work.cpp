#include "profiler/analysis/alike_work.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

namespace moetune::profiler {
namespace {

/// Groups so little longer than another may be as long.
constexpr double kSameLengthRatio = 1.05;

std::string_view without_threads(std::string_view name) { return name.substr(0, name.find('/')); }

/// Pairs of numbers of operations: of a rank, and of those that it is compared with.
using Counts = std::pair<size_t, size_t>;

}  // namespace

AlikeWork::AlikeWork(const ReplayedRun& run) {
  const std::vector<ReplayOp>& ops = run.ops();
  class_of_.assign(ops.size(), kNone);
  // Names of the kernels next to each on its stream.
  std::vector<std::string_view> before(ops.size());
  std::vector<std::string_view> behind(ops.size());
  std::map<std::pair<uint32_t, int32_t>, size_t> last;
  for (size_t i = 0; i < ops.size(); ++i) {
    const TraceRecord& record = run.record_of(ops[i]);
    if (record.kind != RecordKind::kernel) continue;
    const auto [at, is_first] = last.try_emplace({ops[i].trace, record.stream}, i);
    if (is_first) continue;
    const size_t other = std::exchange(at->second, i);
    before[i] = without_threads(run.record_of(ops[other]).name);
    behind[other] = without_threads(record.name);
  }
  using Key = std::tuple<std::string_view, int64_t, int64_t, std::string_view, std::string_view>;
  std::map<std::pair<Key, bool>, uint32_t> ids;
  for (size_t i = 0; i < ops.size(); ++i) {
    const TraceRecord& record = run.record_of(ops[i]);
    if (record.kind != RecordKind::kernel) continue;
    const bool is_sized = record.flops > 0 || record.bytes > 0;
    const bool is_of_experts = record.is_of_experts && !is_sized;
    const std::string_view name = record.name;
    const Key key =
        is_sized ? Key{name, record.flops, record.bytes, {}, {}}
                 : Key{is_of_experts ? without_threads(name) : name, 0, 0, before[i], behind[i]};
    const auto [at, is_new] =
        ids.try_emplace({key, is_of_experts}, static_cast<uint32_t>(traits_.size()));
    if (is_new) traits_.push_back({is_sized, is_of_experts});
    class_of_[i] = at->second;
  }
}

void WorkTimes::sort() {
  std::ranges::sort(times_);
  sums_.assign(1, 0);
  for (const double ns : times_) sums_.push_back(sums_.back() + ns);
}

double WorkTimes::mean_of_shortest(size_t n) const { return sums_[n] / static_cast<double>(n); }

double WorkTimes::mean_of_longest(size_t n) const {
  return (sums_.back() - sums_[count() - n]) / static_cast<double>(n);
}

std::map<uint32_t, double> ratios_to_fastest(const std::map<uint32_t, WorkTimes>& by_trace,
                                             bool is_sized) {
  std::map<uint32_t, double> ratios;
  if (by_trace.size() < 2) return ratios;
  std::map<size_t, std::vector<const WorkTimes*>> by_count;
  for (const auto& [trace, times] : by_trace) {
    by_count[is_sized ? 0 : times.count()].push_back(&times);
  }
  std::map<Counts, double> least_ns;  // of the ranks with the second number of operations
  const auto least_of = [&](const Counts& counts, const std::vector<const WorkTimes*>& ranks) {
    const auto [at, is_new] = least_ns.try_emplace(counts, 0);
    if (!is_new) return at->second;
    const auto mean_of = [&](const WorkTimes& times) {
      return is_sized ? times.mean() : times.mean_of_longest(std::min(counts.first, times.count()));
    };
    double least = mean_of(*ranks.front());
    for (const WorkTimes* times : ranks) least = std::min(least, mean_of(*times));
    return at->second = least;
  };
  for (const auto& [trace, times] : by_trace) {
    double ratio = 1;
    for (const auto& [count, ranks] : by_count) {
      const size_t own_count = is_sized ? 0 : times.count();
      const double own =
          is_sized ? times.mean() : times.mean_of_shortest(std::min(own_count, count));
      if (own > 0) ratio = std::min(ratio, least_of({own_count, count}, ranks) / own);
    }
    ratios[trace] = ratio;
  }
  return ratios;
}

std::map<uint32_t, double> ratios_to_mean(const std::map<uint32_t, WorkTimes>& by_trace) {
  struct Sum {
    double ns = 0;
    double num_ranks = 0;
  };
  std::map<size_t, Sum> sums;  // by number of operations
  for (const auto& [trace, times] : by_trace) {
    Sum& sum = sums[times.count()];
    sum.ns += times.mean();
    ++sum.num_ranks;
  }
  std::map<uint32_t, double> ratios;
  for (const auto& [trace, times] : by_trace) {
    const Sum& sum = sums[times.count()];
    if (times.mean() > 0) ratios[trace] = sum.ns / sum.num_ranks / times.mean();
  }
  return ratios;
}

std::vector<SizeGroup> size_groups_of(const WorkTimes& times) {
  std::vector<SizeGroup> groups;
  double sum = 0;
  double count = 0;
  for (const double ns : times.sorted()) {
    if (groups.empty() || ns > kOtherSizeRatio * groups.back().longest_ns) {
      groups.emplace_back();
      sum = count = 0;
    }
    sum += ns;
    ++count;
    groups.back() = {ns, sum / count};
  }
  return groups;
}

std::optional<double> alone_ns(const std::vector<SizeGroup>& alone, double beside_ns) {
  std::optional<double> nearest;
  for (const SizeGroup& group : alone) {
    if (group.mean_ns <= kSameLengthRatio * beside_ns) nearest = group.mean_ns;
  }
  if (nearest && beside_ns > kMostContention * *nearest) nearest.reset();
  return nearest;
}

}  // namespace moetune::profiler
