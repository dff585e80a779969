#include "profiler/analysis/alike_work.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "kernels/base/interned_string.h"

namespace moetune::profiler {
namespace {

/// Groups so little longer than another may be as long.
constexpr double kSameLengthRatio = 1.05;

std::string_view without_threads(std::string_view name) { return name.substr(0, name.find('/')); }

/// Numbers of a kernel's name; 0: it is empty.
struct NameIds {
  uint32_t whole = 0;
  uint32_t without_threads = 0;
};

/// Numbers the texts of names, as comparing texts for every operation takes long.
class NameNumbers {
 public:
  NameIds of(base::InternedString name) {
    const auto [at, is_new] = by_name_.try_emplace(&name.text());
    if (is_new) at->second = {of_text(name), of_text(without_threads(name))};
    return at->second;
  }

 private:
  uint32_t of_text(std::string_view text) {
    if (text.empty()) return 0;
    return by_text_.try_emplace(text, static_cast<uint32_t>(by_text_.size() + 1)).first->second;
  }

  std::unordered_map<const std::string*, NameIds> by_name_;  ///< by address: they are interned
  std::unordered_map<std::string_view, uint32_t> by_text_;
};

/// What alike work has in common.
struct WorkKey {
  // Both 0: the size is not known.
  int64_t flops = 0;
  int64_t bytes = 0;
  uint32_t name = 0;
  // Where the size is not known, the names of the kernels next to it on its stream; 0: none.
  uint32_t before = 0;
  uint32_t behind = 0;
  bool is_of_experts = false;

  [[nodiscard]] bool is_sized() const { return flops != 0 || bytes != 0; }
  bool operator==(const WorkKey&) const = default;
};

struct WorkKeyHash {
  size_t operator()(const WorkKey& key) const {
    uint64_t hash = key.is_of_experts ? 1 : 0;
    for (const uint64_t part : {static_cast<uint64_t>(key.flops), static_cast<uint64_t>(key.bytes),
                                uint64_t{key.name}, (uint64_t{key.before} << 32) | key.behind}) {
      hash = (hash ^ part) * 0x9E3779B97F4A7C15;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

/// Pairs of numbers of operations: of a rank, and of those that it is compared with.
using Counts = std::pair<size_t, size_t>;

}  // namespace

AlikeWork::AlikeWork(const ReplayedRun& run) {
  const std::vector<ReplayOp>& ops = run.ops();
  class_of_.assign(ops.size(), kNone);
  std::unordered_map<WorkKey, uint32_t, WorkKeyHash> ids;
  const auto add = [&](size_t op, const WorkKey& key) {
    const auto [at, is_new] = ids.try_emplace(key, static_cast<uint32_t>(traits_.size()));
    if (is_new) traits_.push_back({key.is_sized(), key.is_of_experts});
    class_of_[op] = at->second;
  };
  /// The kernel that was launched last, whose key lacks what is behind it.
  struct Last {
    size_t op = 0;
    WorkKey key;
    uint32_t name = 0;  ///< without threads
  };
  NameNumbers numbers;
  std::map<std::pair<uint32_t, int32_t>, Last> lasts;  // by trace and stream
  for (size_t i = 0; i < ops.size(); ++i) {
    const TraceRecord& record = run.record_of(ops[i]);
    if (record.kind != RecordKind::kernel) continue;
    WorkKey key;
    if (record.flops > 0 || record.bytes > 0) {
      key.flops = record.flops;
      key.bytes = record.bytes;
    }
    key.is_of_experts = record.is_of_experts && !key.is_sized();
    const NameIds name = numbers.of(record.name);
    key.name = key.is_of_experts ? name.without_threads : name.whole;
    const auto [at, is_first] = lasts.try_emplace({ops[i].trace, record.stream});
    Last& last = at->second;
    if (!is_first) {
      if (!key.is_sized()) key.before = last.name;
      if (!last.key.is_sized()) last.key.behind = name.without_threads;
      add(last.op, last.key);
    }
    last = {i, key, name.without_threads};
  }
  for (const auto& [stream, last] : lasts) add(last.op, last.key);
  number_by_op();
}

void AlikeWork::number_by_op() {
  std::vector<uint32_t> numbers(traits_.size(), kNone);
  std::vector<Traits> traits;
  traits.reserve(traits_.size());
  for (uint32_t& id : class_of_) {
    if (id == kNone) continue;
    if (numbers[id] == kNone) {
      numbers[id] = static_cast<uint32_t>(traits.size());
      traits.push_back(traits_[id]);
    }
    id = numbers[id];
  }
  traits_ = std::move(traits);
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
