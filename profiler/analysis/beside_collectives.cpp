#include "profiler/analysis/beside_collectives.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "profiler/analysis/intervals.h"
#include "profiler/analysis/roofline.h"

namespace moetune::profiler {
namespace {

/// Work of which a collective covers no larger part runs alone.
constexpr double kAlonePart = 0.05;
/// Work of unknown size of which a larger part is covered is compared with such that runs alone.
constexpr double kMostPart = 0.5;

/// Work of one class, alone and beside collectives.
struct Sides {
  WorkTimes alone;
  WorkTimes beside;  ///< for the most part, where no size is known
  std::vector<SizeGroup> alone_groups;
  std::vector<SizeGroup> beside_groups;
  // Sums over work beside collectives: how long these cover it, how long it takes, and how long it
  // would take alone.
  double covered_ns = 0;
  double own_ns = 0;
  double free_ns = 0;

  /// The part of the device that collectives take while they cover such work.
  [[nodiscard]] double taken() const {
    const bool is_slowed = covered_ns > 0 && own_ns >= kAlikeRatio * free_ns;
    return is_slowed ? std::min(1.0, (own_ns - free_ns) / covered_ns) : 0;
  }
};

/// One rank's.
class BesideCollectives {
 public:
  BesideCollectives(const ReplayedRun& run, const AlikeWork& alike, const WorkTraits& traits,
                    const StepFacts& facts, ReplayedRun::RankOps rank)
      : run_(run),
        alike_(alike),
        traits_(traits),
        roofline_(facts),
        rank_(rank),
        parts_(rank.end - rank.begin) {}

  void tell(ShorterDurations& free) {
    std::vector<Interval> collectives;
    for (size_t i = rank_.begin; i < rank_.end; ++i) {
      if (!traits_.has(i, WorkTraits::kCollective)) continue;
      const TraceRecord& record = record_of(i);
      collectives.push_back({record.start_ns, record.end_ns});
    }
    if (collectives.empty()) return;
    find_sides(IntervalSet(std::move(collectives)));
    tell_compared(free);
    tell_rest(free);
  }

 private:
  [[nodiscard]] const TraceRecord& record_of(size_t i) const {
    return run_.record_of(run_.ops()[i]);
  }
  [[nodiscard]] double own_ns(size_t i) const {
    return static_cast<double>(run_.ops()[i].duration_ns);
  }
  /// How much of it collectives cover.
  [[nodiscard]] double part(size_t i) const { return parts_[i - rank_.begin]; }
  [[nodiscard]] bool is_sized(size_t i) const { return alike_.is_sized(alike_.class_of(i)); }
  [[nodiscard]] bool is_beside(size_t i) const {
    return part(i) > (is_sized(i) ? kAlonePart : kMostPart);
  }
  [[nodiscard]] size_t bound_of(const TraceRecord& record) const {
    return roofline_.is_flop_bound(record) ? 1 : 0;
  }

  void find_sides(const IntervalSet& collectives) {
    for (size_t i = rank_.begin; i < rank_.end; ++i) {
      const int64_t duration_ns = run_.ops()[i].duration_ns;
      if (!traits_.has(i, WorkTraits::kKernel) || duration_ns <= 0) continue;
      const TraceRecord& record = record_of(i);
      parts_[i - rank_.begin] =
          static_cast<double>(covered_ns(collectives, {record.start_ns, record.end_ns})) /
          own_ns(i);
      Sides& sides = classes_[alike_.class_of(i)];
      if (is_beside(i)) sides.beside.add(duration_ns);
      if (part(i) <= kAlonePart) sides.alone.add(duration_ns);
      if (part(i) <= 0) alone_sums_[bound_of(record)].add(roofline_.least_ns(record), duration_ns);
    }
    for (auto& [id, sides] : classes_) {
      sides.alone.sort();
      sides.beside.sort();
      if (alike_.is_sized(id)) continue;
      sides.alone_groups = size_groups_of(sides.alone);
      sides.beside_groups = size_groups_of(sides.beside);
    }
  }

  /// What work of known size would take alone.
  [[nodiscard]] double sized_alone_ns(size_t i, const Sides& sides) const {
    if (sides.alone.count() > 0) return sides.alone.mean();
    const TraceRecord& record = record_of(i);
    return roofline_.least_ns(record) / alone_sums_[bound_of(record)].ratio();
  }

  /// Work that is compared with alike work that runs alone.
  void tell_compared(ShorterDurations& free) {
    for (size_t i = rank_.begin; i < rank_.end; ++i) {
      if (part(i) <= 0 || !is_beside(i)) continue;
      Sides& sides = classes_.at(alike_.class_of(i));
      double free_ns = 0;
      if (is_sized(i)) {
        free_ns = sized_alone_ns(i, sides);
      } else {
        const auto group =
            std::ranges::lower_bound(sides.beside_groups, own_ns(i), {}, &SizeGroup::longest_ns);
        free_ns = alone_ns(sides.alone_groups, group->mean_ns).value_or(0);
        if (group->mean_ns < kAlikeRatio * free_ns) continue;
        if (free_ns > 0) free.set(i, static_cast<int64_t>(free_ns));
      }
      if (!(free_ns > 0)) continue;
      sides.covered_ns += part(i) * own_ns(i);
      sides.own_ns += own_ns(i);
      sides.free_ns += free_ns;
    }
  }

  /// What alike work loses while it is covered, this loses as long as it is.
  void tell_rest(ShorterDurations& free) const {
    for (size_t i = rank_.begin; i < rank_.end; ++i) {
      if (part(i) <= kAlonePart || free.has(i)) continue;
      const bool may_have_other_size = is_beside(i) && !is_sized(i);
      if (may_have_other_size) continue;
      const double taken = classes_.at(alike_.class_of(i)).taken();
      if (taken > 0) free.set(i, static_cast<int64_t>(own_ns(i) * (1 - taken * part(i))));
    }
  }

  const ReplayedRun& run_;
  const AlikeWork& alike_;
  const WorkTraits& traits_;
  Roofline roofline_;
  ReplayedRun::RankOps rank_;
  std::vector<double> parts_;  ///< by the rank's operations
  std::map<uint32_t, Sides> classes_;
  std::array<Roofline::Sum, 2> alone_sums_;  ///< by whether arithmetic binds
};

}  // namespace

ShorterDurations without_collectives(const ReplayedRun& run, const AlikeWork& alike,
                                     const WorkTraits& traits, const StepFacts& facts) {
  ShorterDurations free(run.ops().size());
  if (!traits.any_has(WorkTraits::kCollective)) return free;
  for (const ReplayedRun::RankOps& rank : run.ranks()) {
    BesideCollectives(run, alike, traits, facts, rank).tell(free);
  }
  return free;
}

}  // namespace moetune::profiler
