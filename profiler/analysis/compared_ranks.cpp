#include "profiler/analysis/compared_ranks.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace moetune::profiler {
namespace {

/// Other work has to take this part of the time of work on experts' rows, at least, to tell whether
/// a rank is slow in all that it does.
constexpr double kLeastOtherWork = 0.1;

/// Operations of each class, ascending.
class OpsByClass {
 public:
  OpsByClass(const AlikeWork& alike, size_t num_ops) : ends_(alike.num_classes() + 1) {
    for (size_t i = 0; i < num_ops; ++i) {
      if (alike.class_of(i) != AlikeWork::kNone) ++ends_[alike.class_of(i) + 1];
    }
    for (size_t id = 1; id < ends_.size(); ++id) ends_[id] += ends_[id - 1];
    ops_.resize(ends_.back());
    // Each is where its class begins now, and where it ends afterwards.
    for (size_t i = 0; i < num_ops; ++i) {
      const uint32_t id = alike.class_of(i);
      if (id != AlikeWork::kNone) ops_[ends_[id]++] = static_cast<uint32_t>(i);
    }
  }
  [[nodiscard]] std::span<const uint32_t> of(uint32_t id) const {
    const size_t begin = id == 0 ? 0 : ends_[id - 1];
    return std::span(ops_).subspan(begin, ends_[id] - begin);
  }

 private:
  std::vector<uint32_t> ends_;
  std::vector<uint32_t> ops_;
};

/// What work of a rank takes, and what it would take on the fastest rank, in ns.
struct Work {
  double own = 0;
  double fastest = 0;
  [[nodiscard]] bool is_slow() const { return own > 0 && own >= kAlikeRatio * fastest; }
  void operator+=(const Work& other) {
    own += other.own;
    fastest += other.fastest;
  }
};

struct RankWork {
  Work experts;
  Work other;
  Work all;
  /// Only the work on experts' rows takes longer.
  [[nodiscard]] bool has_uneven_experts() const {
    return experts.own > 0 && other.own >= kLeastOtherWork * experts.own && !other.is_slow();
  }
  [[nodiscard]] bool is_changed() const { return has_uneven_experts() || all.is_slow(); }
};

/// By whole ranks. Goes through the classes of alike work one after the other, and once more if
/// need be: what is known of all of them at once takes as much memory as the step.
class RankComparison {
 public:
  RankComparison(const ReplayedRun& run, const AlikeWork& alike)
      : run_(run), alike_(alike), by_class_(alike, run.ops().size()), work_(run.traces().size()) {
    for (uint32_t id = 0; id < alike_.num_classes(); ++id) {
      const std::map<uint32_t, WorkTimes> ranks = times_of(id);
      const std::map<uint32_t, double> fastest = ratios_to_fastest(ranks, alike_.is_sized(id));
      if (fastest.empty()) continue;
      for (const auto& [trace, times] : ranks) {
        const Work own = {times.sum(), times.sum() * fastest.at(trace)};
        (alike_.is_of_experts(id) ? work_[trace].experts : work_[trace].other) += own;
        work_[trace].all += own;
      }
    }
  }

  void tell(RankDurations& durations) const {
    if (std::ranges::none_of(work_, &RankWork::is_changed)) return;
    for (uint32_t id = 0; id < alike_.num_classes(); ++id) {
      const auto is_changed = [&](uint32_t i) { return work_of(i).is_changed(); };
      if (std::ranges::any_of(by_class_.of(id), is_changed)) tell(id, durations);
    }
  }

 private:
  [[nodiscard]] const RankWork& work_of(uint32_t op) const { return work_[run_.ops()[op].trace]; }

  [[nodiscard]] std::map<uint32_t, WorkTimes> times_of(uint32_t id) const {
    std::map<uint32_t, WorkTimes> ranks;
    for (const uint32_t i : by_class_.of(id)) {
      ranks[run_.ops()[i].trace].add(run_.ops()[i].duration_ns);
    }
    for (auto& [trace, times] : ranks) times.sort();
    return ranks;
  }

  void tell(uint32_t id, RankDurations& durations) const {
    const std::map<uint32_t, WorkTimes> ranks = times_of(id);
    const std::map<uint32_t, double> fastest = ratios_to_fastest(ranks, alike_.is_sized(id));
    std::map<uint32_t, double> even;
    if (alike_.is_of_experts(id) && !fastest.empty()) even = ratios_to_mean(ranks);
    for (const uint32_t i : by_class_.of(id)) {
      const ReplayOp& op = run_.ops()[i];
      const RankWork& rank = work_of(i);
      const auto own_ns = static_cast<double>(op.duration_ns);
      if (rank.has_uneven_experts()) {
        const auto own = even.find(op.trace);
        const double ratio = own == even.end() ? 1 : own->second;
        if (kAlikeRatio * ratio <= 1) {
          durations.balanced.set(i, static_cast<int64_t>(own_ns * ratio));
        }
        continue;
      }
      if (!rank.all.is_slow()) continue;
      // Of work that no other rank has, as of the rest.
      const double ratio = fastest.empty() ? rank.all.fastest / rank.all.own : fastest.at(op.trace);
      durations.fastest.set(i, static_cast<int64_t>(own_ns * ratio));
    }
  }

  const ReplayedRun& run_;
  const AlikeWork& alike_;
  OpsByClass by_class_;
  std::vector<RankWork> work_;  ///< by trace
};

/// Layer by layer, where records say how large the work of each rank is.
void balance_layers(const ReplayedRun& run, const WorkTraits& traits, ShorterDurations& balanced) {
  const std::vector<ReplayOp>& ops = run.ops();
  using Place = std::tuple<std::string_view, int32_t, int32_t, int32_t>;
  std::map<std::pair<uint32_t, Place>, int32_t> occurrences;
  std::map<Place, std::vector<size_t>> classes;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!traits.has(i, WorkTraits::kOfLayer)) continue;
    const TraceRecord& record = run.record_of(ops[i]);
    Place place{record.name, record.layer, record.micro_batch, 0};
    std::get<3>(place) = occurrences[{ops[i].trace, place}]++;
    classes[place].push_back(i);
  }
  std::map<std::pair<int32_t, int32_t>, double> most_over_mean;  // by layer and micro-batch
  const auto size_of = [&](size_t i) {
    const TraceRecord& record = run.record_of(ops[i]);
    return static_cast<double>(record.flops > 0 ? record.flops : record.bytes);
  };
  for (const auto& [place, members] : classes) {
    double sum = 0;
    double most = 0;
    for (const size_t i : members) {
      sum += size_of(i);
      most = std::max(most, size_of(i));
    }
    const double mean = sum / static_cast<double>(members.size());
    if (mean <= 0 || most < kAlikeRatio * mean) continue;
    double& excess = most_over_mean[{std::get<1>(place), std::get<2>(place)}];
    excess = std::max(excess, most / mean);
    for (const size_t i : members) {
      const double own = size_of(i);
      if (own <= mean) continue;
      const auto own_ns = static_cast<double>(ops[i].duration_ns);
      balanced.set(i, static_cast<int64_t>(own_ns * mean / own));
    }
  }
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!traits.has(i, WorkTraits::kCollective)) continue;
    const TraceRecord& record = run.record_of(ops[i]);
    if (record.group != "ep" && !(record.name == kExpertExchange)) continue;
    const auto excess = most_over_mean.find({record.layer, record.micro_batch});
    if (excess == most_over_mean.end()) continue;
    const auto own_ns = static_cast<double>(ops[i].duration_ns);
    balanced.set(i, static_cast<int64_t>(own_ns / excess->second));
  }
}

}  // namespace

RankDurations compare_ranks(const ReplayedRun& run, const AlikeWork& alike,
                            const WorkTraits& traits) {
  RankDurations durations = {ShorterDurations(run.ops().size()),
                             ShorterDurations(run.ops().size())};
  if (run.traces().size() > 1) RankComparison(run, alike).tell(durations);
  balance_layers(run, traits, durations.balanced);
  return durations;
}

}  // namespace moetune::profiler
