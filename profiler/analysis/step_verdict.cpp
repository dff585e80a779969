#include "profiler/analysis/step_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <compare>
#include <map>
#include <utility>

#include "kernels/base/units.h"
#include "profiler/analysis/roofline.h"
#include "profiler/analysis/step_causes.h"

namespace moetune::profiler {
namespace {

using base::kLeastBindingRatio;

/// Causes that gain only together must gain this many times kLeastBindingRatio.
constexpr double kPairRatio = 1.5;
/// Where a synchronisation and another cause on the host gain about the same, the other one counts.
constexpr double kWaitWeight = 0.9;
/// Unless that is launching, and synchronisations gain this part of it at least.
constexpr double kEmptiedRatio = 0.8;

/// Waiting for a shared device is told from this share of the step on.
constexpr double kLeastToldRatio = 0.005;

/// Operations that are replayed to find a rank; of more none is named.
constexpr size_t kMostReplayed = 200'000'000;

/// The largest of some values, and the second largest; both are at least 0.
struct LargestTwo {
  size_t place = 0;  ///< of the largest
  double largest = 0;
  double second = 0;

  void add(size_t at, double value) {
    if (value > largest) {
      second = std::exchange(largest, value);
      place = at;
    } else {
      second = std::max(second, value);
    }
  }
};

class StepJudge {
 public:
  StepJudge(const ReplayedRun& run, const StepFacts& facts)
      : run_(run), facts_(facts), causes_(run, facts) {}

  StepVerdict verdict() {
    verdict_.step_ns = step_without({});
    if (run_.waited_ns() > 0) {
      verdict_.inferred_ratio =
          static_cast<double>(run_.inferred_wait_ns()) / static_cast<double>(run_.waited_ns());
    }
    if (verdict_.step_ns <= 0 || run_.ops().empty()) {
      verdict_.ceilings[place_of(Wall::unknown)] = verdict_.most_ratio = 1;
      verdict_.summary = "unknown: nothing was recorded";
      return verdict_;
    }
    for (const SubCauseRow& row : sub_causes()) {
      if (row.label != Wall::compute) {
        verdict_.sub_ceilings[place_of(row.id)] = gain_of(row.label, {row.id});
      }
    }
    for (size_t i = 0; i < kNumWalls; ++i) {
      const auto label = static_cast<Wall>(i);
      if (label == Wall::compute) continue;
      verdict_.ceilings[i] = gain_of(label, causes_of(label));
    }
    if (causes_.has_recomputation()) verdict_.recompute_ratio = gain_without_recomputation();
    split_compute();
    choose();
    widen();
    find_rank();
    raise_for_lost_records();
    say();
    return verdict_;
  }

 private:
  /// A cause, all of it or one rank's part.
  struct Dropped {
    SubCause cause;
    std::optional<uint32_t> trace;
    auto operator<=>(const Dropped&) const = default;
  };

  /// Length of the step without some causes, which are dropped in this order. Many of the lists
  /// that are asked for differ only in causes that the step does not have.
  [[nodiscard]] int64_t step_without(std::vector<Dropped> dropped) {
    std::erase_if(dropped, [&](const Dropped& one) { return !causes_.has(one.cause); });
    const auto [at, is_new] = replayed_.try_emplace(dropped);
    if (!is_new) return at->second;
    const auto drop = [&](size_t place, ReplayOp& op) {
      for (const Dropped& one : dropped) causes_.drop(one.cause, place, op, one.trace);
    };
    return at->second = run_.step_ns(drop, room_);
  }

  static std::vector<SubCause> causes_of(Wall label) {
    std::vector<SubCause> causes;
    for (const SubCauseRow& row : sub_causes()) {
      if (row.label == label) causes.push_back(row.id);
    }
    return causes;
  }

  /// Share of the step that dropping the causes gains. A stage waits for whatever is late on
  /// another, so the pipeline's own share is what remains without the causes of the other labels.
  [[nodiscard]] double gain_of(Wall label, const std::vector<SubCause>& causes,
                               std::optional<uint32_t> trace = {}) {
    if (std::ranges::none_of(causes, [&](SubCause cause) { return causes_.has(cause); })) return 0;
    std::vector<Dropped> dropped = dropped_before(label);
    const int64_t before_ns = step_without(dropped);
    for (const SubCause cause : causes) dropped.push_back({cause, trace});
    return gain_from(before_ns, step_without(dropped));
  }

  /// What is dropped already where the causes of a label are.
  static std::vector<Dropped> dropped_before(Wall label) {
    std::vector<Dropped> dropped;
    if (label != Wall::pipeline) return dropped;
    for (const Wall other : {Wall::communication, Wall::host, Wall::imbalance, Wall::memory}) {
      for (const SubCause cause : causes_of(other)) dropped.push_back({cause, {}});
    }
    return dropped;
  }

  [[nodiscard]] double gain_from(int64_t before_ns, int64_t after_ns) const {
    return static_cast<double>(std::max<int64_t>(0, before_ns - after_ns)) /
           static_cast<double>(verdict_.step_ns);
  }

  /// The same with all that may be a wait of which the records do not tell.
  [[nodiscard]] double gain_with_lost_waits(Wall label) {
    std::vector<Dropped> dropped = dropped_before(label);
    const int64_t before_ns = step_without(dropped);
    for (const SubCause cause : causes_of(label)) dropped.push_back({cause, {}});
    dropped.push_back({SubCause::unexplained, {}});
    if (!causes_.has_doubtful_stalls()) return gain_from(before_ns, step_without(dropped));
    std::erase_if(dropped, [&](const Dropped& one) { return !causes_.has(one.cause); });
    const auto drop = [&](size_t place, ReplayOp& op) {
      for (const Dropped& one : dropped) causes_.drop(one.cause, place, op, one.trace);
      causes_.drop_doubtful_stall(place, op);
    };
    return gain_from(before_ns, run_.step_ns(drop, room_));
  }

  [[nodiscard]] double gain_without_recomputation() {
    const auto drop = [&](size_t place, ReplayOp& op) { causes_.drop_recomputation(place, op); };
    return static_cast<double>(std::max<int64_t>(0, verdict_.step_ns - run_.step_ns(drop, room_))) /
           static_cast<double>(verdict_.step_ns);
  }

  /// Kernels against the roofline: what they take longer than it, what they would not take with
  /// endless bandwidth, and the rest, which is arithmetic.
  void split_compute() {
    const Roofline roofline(facts_);
    double all = 0;
    double over = 0;
    double bandwidth = 0;
    double shared = 0;
    for (size_t i = 0; i < run_.ops().size(); ++i) {
      const ReplayOp& op = run_.ops()[i];
      shared += static_cast<double>(op.shared_ns);
      if (!causes_.is_kernel(i)) continue;
      const auto ns = static_cast<double>(op.duration_ns);
      all += ns;
      if (!roofline.is_known()) continue;
      const TraceRecord& record = run_.record_of(op);
      over += std::max(0.0, ns - roofline.least_ns(record));
      bandwidth += std::max(0.0, roofline.bytes_ns(record) - roofline.flops_ns(record));
    }
    const double whole =
        static_cast<double>(verdict_.step_ns) * static_cast<double>(run_.traces().size());
    const double busy_ratio = std::min(1.0, all / whole);
    verdict_.device_shared_ratio = std::min(1 - busy_ratio, shared / whole);
    verdict_.ceilings[place_of(Wall::compute)] = busy_ratio + verdict_.device_shared_ratio;
    if (!roofline.is_known() || all <= 0) return;
    verdict_.sub_ceilings[place_of(SubCause::occupancy)] = over / whole;
    verdict_.sub_ceilings[place_of(SubCause::bandwidth)] = bandwidth / whole;
    verdict_.sub_ceilings[place_of(SubCause::flops)] =
        std::max(0.0, all - over - bandwidth) / whole;
  }

  /// Which of them binds: too small work or bandwidth where they would gain, else arithmetic.
  [[nodiscard]] SubCause bound_of_compute() const {
    const double over = verdict_.sub_ceilings[place_of(SubCause::occupancy)];
    const double bandwidth = verdict_.sub_ceilings[place_of(SubCause::bandwidth)];
    if (std::max(over, bandwidth) < kLeastBindingRatio) return SubCause::flops;
    return over >= bandwidth ? SubCause::occupancy : SubCause::bandwidth;
  }

  void choose() {
    verdict_.label = label_of(verdict_.ceilings);
    if (verdict_.label == Wall::unknown) return;
    if (verdict_.label == Wall::compute) look_for_pair();
    if (facts_.num_lost > 0 && find_rival()) return;
    const auto& ratios = verdict_.is_hidden() ? joint_ratios_ : verdict_.sub_ceilings;
    verdict_.sub_cause =
        verdict_.label == Wall::compute ? bound_of_compute() : largest_of(verdict_.label, ratios);
    if (verdict_.sub_cause == SubCause::launch && is_late_behind_syncs()) {
      verdict_.sub_cause = SubCause::sync;
    }
    if (verdict_.label == Wall::communication) {
      const double all = verdict_.is_hidden() ? verdict_.joint_ratio : verdict_.ceiling_ratio();
      if (2 * ratios[place_of(SubCause::one_link)] > all) verdict_.sub_cause = SubCause::one_link;
    }
    // Kernels are too small because memory leaves no room for a larger micro-batch.
    if (verdict_.sub_cause == SubCause::occupancy && causes_.is_memory_short() &&
        facts_.memory.capacity_bytes > 0) {
      verdict_.label = Wall::memory;
      verdict_.sub_cause = SubCause::capped_micro_batch;
      const double small = verdict_.sub_ceilings[place_of(SubCause::occupancy)];
      verdict_.ceilings[place_of(Wall::memory)] = small;
      verdict_.sub_ceilings[place_of(SubCause::capped_micro_batch)] = small;
    }
  }

  /// Another label than the one found, which would be it if it were to blame for what nothing
  /// explains: then there is no verdict. False without any.
  bool find_rival() {
    if (verdict_.label == Wall::unknown || !causes_.has(SubCause::unexplained)) return false;
    const double own = base::is_recoverable(verdict_.label) ? verdict_.ceiling_ratio() : 0;
    double most = std::max({kLeastBindingRatio, own, verdict_.joint_ratio});
    std::optional<Wall> rival;
    for (const Wall label : base::kRecoverableWalls) {
      const double gain = label == verdict_.label ? 0 : gain_with_lost_waits(label);
      if (gain < most) continue;
      most = gain;
      rival = label;
    }
    if (!rival) return false;
    double& unknown = verdict_.ceilings[place_of(Wall::unknown)];
    unknown = std::max(unknown, most - verdict_.ceilings[place_of(*rival)]);
    verdict_.summary = fmt::format(
        "unknown: {} missing; of the others {} is the wall, but {} would be it if what nothing "
        "explains were its doing, too: then the step would be {} shorter without it",
        facts_.num_lost == 1 ? "a record is" : fmt::format("{} records are", facts_.num_lost),
        name_of(verdict_.label), name_of(*rival), base::format_ratio(most));
    verdict_.label = Wall::unknown;
    verdict_.joint_ratio = 0;
    verdict_.hidden_by.reset();
    return true;
  }

  void widen() {
    verdict_.most_ratio = verdict_.ceiling_ratio();
    if (!base::is_recoverable(verdict_.label)) return;
    if (!causes_.has(SubCause::unexplained) && !causes_.has_doubtful_stalls()) return;
    verdict_.most_ratio = std::max(verdict_.most_ratio, gain_with_lost_waits(verdict_.label));
  }

  void raise_for_lost_records() {
    verdict_.num_lost = facts_.num_lost;
    if (facts_.num_lost <= 0) return;
    const double more = verdict_.most_ratio - verdict_.ceiling_ratio();
    verdict_.ceilings[place_of(verdict_.label)] += more;
    if (base::is_recoverable(verdict_.label)) {
      verdict_.sub_ceilings[place_of(verdict_.sub_cause)] += more;
    }
  }

  /// Whether a label's own time binds, as far as that is known.
  [[nodiscard]] bool may_be_named(Wall label) const {
    return !facts_.shares || (*facts_.shares)[place_of(label)] >= kLeastBindingRatio;
  }

  /// Two causes that take equally long at the same time hide each other: dropping one alone gains
  /// nothing. The label is the one that costs most once the others are dropped.
  void look_for_pair() {
    const auto step = static_cast<double>(verdict_.step_ns);
    // With all causes dropped but those that `keeps` says.
    const auto step_with = [&](const auto& keeps) {
      std::vector<Dropped> dropped;
      for (const SubCauseRow& row : sub_causes()) {
        if (!keeps(row)) dropped.push_back({row.id, {}});
      }
      return static_cast<double>(step_without(std::move(dropped)));
    };
    const auto is_unknown = [](const SubCauseRow& row) { return row.label == Wall::unknown; };
    const double ideal = step_with(is_unknown);
    const double unexplained = (ideal - step_with([](const SubCauseRow&) { return false; })) / step;
    if (unexplained > kMaxUnknownRatio) {
      verdict_.label = Wall::unknown;
      verdict_.ceilings[place_of(Wall::unknown)] = unexplained;
      return;
    }
    if (1 - ideal / step < kPairRatio * kLeastBindingRatio) return;
    double most = 0;
    for (size_t i = 0; i < place_of(Wall::compute); ++i) {
      const auto label = static_cast<Wall>(i);
      const auto is_own = [&](const SubCauseRow& row) {
        return row.label == label || is_unknown(row);
      };
      if (!may_be_named(label)) continue;
      const double costs = (step_with(is_own) - ideal) / step;
      if (costs <= most) continue;
      most = costs;
      verdict_.label = label;
    }
    if (most < kLeastBindingRatio) {
      verdict_.label = Wall::compute;
      return;
    }
    verdict_.joint_ratio = most;
    find_hider();
    for (const SubCauseRow& cause : sub_causes()) {
      if (cause.label != verdict_.label) continue;
      const auto is_it = [&](const SubCauseRow& row) {
        return row.id == cause.id || is_unknown(row);
      };
      joint_ratios_[place_of(cause.id)] = (step_with(is_it) - ideal) / step;
    }
  }

  /// Which other label gains most together with the verdict's, and which of its causes.
  void find_hider() {
    const auto gain_with = [&](const std::vector<SubCause>& others) {
      std::vector<Dropped> dropped;
      for (const SubCause cause : causes_of(verdict_.label)) dropped.push_back({cause, {}});
      for (const SubCause cause : others) dropped.push_back({cause, {}});
      return gain_from(verdict_.step_ns, step_without(std::move(dropped)));
    };
    double most = verdict_.ceiling_ratio();
    std::optional<Wall> hider;
    for (size_t i = 0; i < place_of(Wall::compute); ++i) {
      const auto label = static_cast<Wall>(i);
      const double gain = label == verdict_.label ? 0 : gain_with(causes_of(label));
      if (gain <= most) continue;
      most = gain;
      hider = label;
    }
    if (!hider) return;
    std::array<double, kNumSubCauses> gains = {};
    for (const SubCause cause : causes_of(*hider)) gains[place_of(cause)] = gain_with({cause});
    verdict_.hidden_by = largest_of(*hider, gains);
  }

  [[nodiscard]] static SubCause largest_of(Wall label,
                                           const std::array<double, kNumSubCauses>& ratios) {
    SubCause best = SubCause::unexplained;
    double most = -1;
    for (const SubCauseRow& row : sub_causes()) {
      if (row.label != label) continue;
      double own = ratios[place_of(row.id)];
      // A host that never waits has time for whatever delays it: as much as that delay explains.
      if (row.id == SubCause::sync) own *= kWaitWeight;
      if (own <= most) continue;
      most = own;
      best = row.id;
    }
    return best;
  }

  /// Whether launches are late only as synchronisations have let the device run empty: without
  /// these, launching would gain less than half as much.
  [[nodiscard]] bool is_late_behind_syncs() {
    if (verdict_.is_hidden()) return false;
    const double launch = verdict_.sub_ceilings[place_of(SubCause::launch)];
    const double sync = verdict_.sub_ceilings[place_of(SubCause::sync)];
    if (sync < kEmptiedRatio * launch) return false;
    const double both = gain_of(Wall::host, {SubCause::launch, SubCause::sync});
    return both - sync < launch / 2;
  }

  void find_rank() {
    const double all = verdict_.ceiling_ratio();
    if (verdict_.label >= Wall::memory || run_.traces().size() < 2 || all <= 0) return;
    const auto rank_of = [&](uint32_t trace) { return run_.traces()[trace].rank; };
    if (verdict_.label == Wall::pipeline) {
      if (verdict_.sub_cause != SubCause::uneven_stage) return;
      if (const auto trace = causes_.stages().slowest()) verdict_.rank = rank_of(*trace);
      return;
    }
    if (verdict_.sub_cause == SubCause::one_link) {
      if (const auto trace = causes_.transfers().with_slow_link()) verdict_.rank = rank_of(*trace);
      if (const auto link = causes_.transfers().slow_link()) {
        verdict_.link = {rank_of(link->from), rank_of(link->to), link->message_ns, link->usual_ns};
      }
      return;
    }
    if (verdict_.is_hidden()) return;  // as the label is
    // Each rank is a replay of everything.
    if (run_.traces().size() * run_.ops().size() > kMostReplayed) return;
    LargestTwo gains;
    for (uint32_t trace = 0; trace < run_.traces().size(); ++trace) {
      gains.add(trace, gain_of(verdict_.label, {verdict_.sub_cause}, trace));
    }
    if (gains.largest <= 0 ||
        gains.largest < 0.6 * verdict_.sub_ceilings[place_of(verdict_.sub_cause)] ||
        gains.largest < 1.5 * gains.second) {
      return;
    }
    verdict_.rank = run_.traces()[gains.place].rank;
  }

  void say() {
    if (!verdict_.summary.empty()) return;
    const SubCauseRow& row = row_of(verdict_.sub_cause);
    if (verdict_.label == Wall::unknown) {
      verdict_.summary =
          fmt::format("unknown: nothing in the records explains the waits in {} of the step",
                      base::format_ratio(verdict_.unknown_ratio()));
      return;
    }
    if (verdict_.label == Wall::compute) {
      const bool is_split = verdict_.sub_ceilings[place_of(verdict_.sub_cause)] > 0;
      const double shared = verdict_.device_shared_ratio;
      const std::string waiting =
          shared < kLeastToldRatio
              ? std::string()
              : fmt::format(", and {} {}", base::format_ratio(shared),
                            base::text_of({&base::row_of(base::StepPart::device_shared), {}}));
      verdict_.summary = fmt::format(
          "compute: {} of the step, mostly {}{}; nothing else would gain {}",
          base::format_ratio(verdict_.ceiling_ratio() - shared),
          is_split ? row.name : "of an unknown kind, as the device's peaks are not known", waiting,
          base::format_ratio(kLeastBindingRatio));
      return;
    }
    verdict_.summary = fmt::format("{} ({}): without it the step would be {} shorter",
                                   name_of(verdict_.label), row.name, verdict_.ceiling_text());
    if (verdict_.is_hidden()) verdict_.summary = text_of_hidden(verdict_);
  }

  const ReplayedRun& run_;
  const StepFacts& facts_;
  StepCauses causes_;
  StepVerdict verdict_;
  std::array<double, kNumSubCauses> joint_ratios_ = {};  ///< of a hidden label's causes
  ReplayRoom room_;
  std::map<std::vector<Dropped>, int64_t> replayed_;  ///< lengths without them
};

std::string text_of_cause(SubCause cause) {
  return fmt::format("{} ({})", name_of(row_of(cause).label), row_of(cause).name);
}

std::string hider_of(const StepVerdict& verdict) {
  return verdict.hidden_by ? text_of_cause(*verdict.hidden_by) : "another cause";
}

}  // namespace

std::string text_of_hidden(const StepVerdict& verdict) {
  return fmt::format(
      "{} ({}): costs {} of the step, but {} at the same time hides it: without it alone the step "
      "would be {} shorter, and much shorter only without both",
      name_of(verdict.label), row_of(verdict.sub_cause).name,
      base::format_ratio(verdict.joint_ratio), hider_of(verdict),
      base::format_ratio(verdict.ceiling_ratio()));
}

std::string both_causes(const StepVerdict& verdict) {
  return fmt::format("{} and {}", text_of_cause(verdict.sub_cause), hider_of(verdict));
}

std::string text_of_unsure(const StepVerdict& verdict, double compute_ratio, double share_ratio) {
  const std::string gain =
      verdict.is_hidden()
          ? fmt::format("{} costs {} of the step where {}, which hides it, is gone, too",
                        name_of(verdict.label), base::format_ratio(verdict.joint_ratio),
                        hider_of(verdict))
          : fmt::format("without {} the step would be {} shorter", name_of(verdict.label),
                        verdict.ceiling_text());
  return fmt::format(
      "compute: {} of the time; {}, which is {} of the time alone: too little to be "
      "sure",
      base::format_ratio(compute_ratio), gain, base::format_ratio(share_ratio));
}

std::string VerdictLink::text(int64_t shown_from, int64_t shown_to) const {
  return fmt::format("messages from rank {} to rank {} take {}, those between two other ranks {}",
                     shown_from, shown_to, base::format_ns(std::llround(message_ns)),
                     base::format_ns(std::llround(usual_ns)));
}

std::string StepVerdict::ceiling_text() const {
  return (num_lost > 0 ? "up to " : "") + base::format_ratio(ceiling_ratio());
}

std::string StepVerdict::text(std::optional<int64_t> shown_rank) const {
  if (!shown_rank) return summary;
  if (sub_cause == SubCause::uneven_stage) {
    return fmt::format("{}; rank {} is of the slowest stage", summary, *shown_rank);
  }
  return fmt::format("{}; most of it is rank {}'s", summary, *shown_rank);
}

StepVerdict judge_step(const ReplayedRun& run, const StepFacts& facts) {
  return StepJudge(run, facts).verdict();
}

}  // namespace moetune::profiler
