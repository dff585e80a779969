#include "profiler/analysis/step_causes.h"

#include <array>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "profiler/analysis/intervals.h"
#include "profiler/analysis/stats.h"

namespace moetune::profiler {
namespace {

using Ops = std::vector<ReplayOp>;

/// A gap on the host that is so much longer than usual is a stall of its own.
constexpr int64_t kStallGaps = 20;
/// Less than this apart, durations of alike work are the same.
constexpr double kAlikeRatio = 1.05;
/// Work of which a collective covers no larger part runs alone.
constexpr double kAlonePart = 0.05;
/// Other work has to take this part of the time of work on experts' rows, at least, to tell whether
/// a rank is slow in all that it does.
constexpr double kLeastOtherWork = 0.1;
/// The same of a rank's transfers that are found slow beside alike ones, to tell how slow those are
/// with which no others compare.
constexpr double kLeastComparedPart = 0.1;

bool has_word(const TraceRecord& record, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) {
    return record.name.text().find(word) != std::string::npos;
  });
}

struct Mean {
  double sum = 0;
  int64_t count = 0;
  void add(int64_t ns) {
    sum += static_cast<double>(ns);
    ++count;
  }
  [[nodiscard]] double value() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

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

}  // namespace

StepCauses::StepCauses(const ReplayedRun& run, const StepFacts& facts)
    : run_(run), alike_(run), links_(run), stall_ns_(facts.stall_ns) {
  is_short_ = profiler::is_memory_short(facts.memory, facts.short_ratio);
  find_traits();
  find_usual_gap();
  find_doubtful_stalls();
  compare_ranks();
  compare_beside_collectives(facts);
  compare_instances();
  compare_experts();
  compare_stages();
  find_present();
}

std::optional<uint32_t> StepCauses::with_slow_link() const {
  const bool has_slow_group = std::ranges::count(speeds_, Speed::slow) > 0;
  const std::vector<SlowLink>& links = links_.slow_links();
  if (!has_slow_group && links.size() == 1) return links[0].from;
  std::optional<uint32_t> found;
  int64_t num_found = 0;
  for (uint32_t trace = 0; trace < run_.traces().size(); ++trace) {
    int64_t num_slow = 0;
    int64_t num_usual = 0;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (!members_[i][trace] || speeds_[i] == Speed::unknown) continue;
      ++(speeds_[i] == Speed::slow ? num_slow : num_usual);
    }
    bool is_in_all = true;
    for (const MessageLinks::Pair& pair : links_.pairs()) {
      if (pair.has(trace)) ++(pair.is_slow ? num_slow : num_usual);
      if (pair.is_slow && !pair.has(trace)) is_in_all = false;
    }
    if (num_slow == 0 || num_usual > 0 || !is_in_all) continue;
    ++num_found;
    found = trace;
  }
  if (num_found == 1) return found;
  const auto is_slow = [](const MessageLinks::Pair& pair) { return pair.is_slow; };
  if (has_slow_group || std::ranges::count_if(links_.pairs(), is_slow) != 1) return std::nullopt;
  return std::ranges::find_if(links_.pairs(), is_slow)->first;
}

std::optional<SlowLink> StepCauses::slow_link() const {
  const std::vector<SlowLink>& links = links_.slow_links();
  return links.empty() ? std::nullopt : std::optional(links.front());
}

std::optional<uint32_t> StepCauses::with_slowest_stage() const {
  double most = 0;
  for (uint32_t trace = 0; trace < pipelines_.size(); ++trace) {
    if (pipelines_[trace] >= 0) most = std::max(most, stage_work_[trace]);
  }
  std::optional<uint32_t> first;
  std::set<int32_t> pipelines;
  for (uint32_t trace = 0; trace < pipelines_.size(); ++trace) {
    if (pipelines_[trace] < 0 || kAlikeRatio * stage_work_[trace] <= most) continue;
    if (!pipelines.insert(pipelines_[trace]).second) return std::nullopt;
    if (!first) first = trace;
  }
  return first;
}

void StepCauses::drop(SubCause cause, Ops& ops, std::optional<uint32_t> trace) const {
  if (!has(cause)) return;
  for (size_t i = 0; i < ops.size(); ++i) drop(cause, i, ops[i], trace);
}

bool StepCauses::has_part(SubCause cause, size_t place, const ReplayOp& op, uint32_t trace) const {
  // Of communication itself all members have part; what delays its launch is one rank's alone.
  return op.trace == trace ||
         (row_of(cause).label == Wall::communication && is_member(place, trace));
}

bool StepCauses::is_member(size_t op, uint32_t trace) const {
  const int32_t instance = run_.instance_of(op);
  return instance >= 0 && members_[static_cast<size_t>(instance)][trace];
}

bool StepCauses::is_stall(const ReplayOp& op) const {
  return op.gap_ns > std::max(stall_ns_, kStallGaps * usual_gap_ns_);
}

void StepCauses::find_traits() {
  traits_.reserve(run_.ops().size());
  for (const ReplayOp& op : run_.ops()) {
    const TraceRecord& record = run_.record_of(op);
    unsigned traits = 0;
    const auto set = [&](Trait trait, bool has) {
      if (has) traits |= trait;
    };
    set(kCommunication, !record.group.empty());
    set(kRecompute, record.is_recompute);
    has_recomputation_ = has_recomputation_ || record.is_recompute;
    switch (record.kind) {
      case RecordKind::kernel:
        set(kKernel, true);
        set(kOfLayer, record.layer >= 0);
        break;
      case RecordKind::collective:
        set(kCollective, true);
        break;
      case RecordKind::p2p:
        set(kMessage, true);
        break;
      case RecordKind::memcpy:
        set(kInput, has_word(record, {"input"}));
        set(kOffload, has_word(record, {"offload", "reload"}));
        set(kValue, record.name == kReadValue);
        break;
      case RecordKind::host_sync:
        set(kSync, true);
        set(kInput, has_word(record, {"input"}));
        set(kOffload, has_word(record, {"offload"}));
        break;
      case RecordKind::host_work:
        set(kAllocator, has_word(record, {"alloc", "Malloc", "Free"}));
        set(kLoader, has_word(record, {"load", "Load"}));
        set(kOtherHostWork, (traits & (kAllocator | kLoader)) == 0);
        break;
    }
    traits_.push_back(static_cast<uint16_t>(traits));
    all_traits_ |= traits;
  }
}

void StepCauses::find_present() {
  const Ops& ops = run_.ops();
  for (size_t id = 0; id < has_.size(); ++id) {
    const auto cause = static_cast<SubCause>(id);
    if (!may_be_present(cause)) continue;
    for (size_t i = 0; i < ops.size() && !has_[id]; ++i) {
      ReplayOp op = ops[i];
      drop_one(cause, i, op);
      has_[id] = !(op == ops[i]);
    }
  }
}

/// False only where drop_one() changes no operation, whatever it looks like.
bool StepCauses::may_be_present(SubCause cause) const {
  const auto has = [&](unsigned traits) { return (all_traits_ & traits) != 0; };
  switch (cause) {
    case SubCause::transfer:
      return has(kCommunication);
    case SubCause::one_link:
      return has(kCommunication) && !usual_transfer_ns_.empty();
    case SubCause::contention:
      return !free_ns_.empty();
    case SubCause::sync:
      return has(kSync | kValue);
    case SubCause::allocator:
      return has(kAllocator);
    case SubCause::bubble:
      return has(kMessage);
    case SubCause::uneven_stage:
      return std::ranges::any_of(stage_factors_, [](double factor) { return factor != 1; });
    case SubCause::rank:
      return !fastest_ns_.empty();
    case SubCause::experts:
      return !balanced_ns_.empty();
    case SubCause::recompute:
      return is_short_ && has(kRecompute);
    case SubCause::offload:
      return has(kOffload);
    case SubCause::launch:
    case SubCause::loader:
    case SubCause::unexplained:
      return true;
    case SubCause::capped_micro_batch:
    case SubCause::occupancy:
    case SubCause::bandwidth:
    case SubCause::flops:
    case SubCause::count:
      break;
  }
  return false;
}

void StepCauses::drop_one(SubCause cause, size_t place, ReplayOp& op) const {
  const auto is = [&](Trait trait) { return (traits_[place] & trait) != 0; };
  switch (cause) {
    case SubCause::transfer:
      if (is(kCommunication)) op.duration_ns = 0;
      return;
    case SubCause::one_link:
      if (is(kCommunication)) shorten(op.duration_ns, usual_transfer_ns_[place]);
      return;
    case SubCause::contention:
      if (!is(kCommunication)) shorten(op.duration_ns, free_ns_[place]);
      return;
    case SubCause::launch:
      op.launch_ns = op.queue_lag_ns = 0;
      if (!is_stall(op)) op.gap_ns = 0;
      if (is(kOtherHostWork)) op.duration_ns = 0;
      return;
    case SubCause::sync:
      if (is(kSync) || is(kValue)) op.duration_ns = 0;
      if (is(kSync)) op.is_waiting = false;
      return;
    case SubCause::allocator:
      if (is(kAllocator)) op.duration_ns = 0;
      return;
    case SubCause::loader:
      if (is(kLoader) || is(kInput)) op.duration_ns = 0;
      if (is(kInput) && is(kSync)) op.is_waiting = false;
      if (is_stall(op)) op.gap_ns = usual_gap_ns_;
      return;
    case SubCause::bubble:
      if (is(kMessage)) op.is_waiting = false;
      return;
    case SubCause::uneven_stage:
      if (is(kKernel)) scale(op.duration_ns, stage_factors_[op.trace]);
      return;
    case SubCause::rank:
      shorten(op.duration_ns, fastest_ns_[place]);
      return;
    case SubCause::experts:
      shorten(op.duration_ns, balanced_ns_[place]);
      return;
    case SubCause::recompute:
      if (!is(kRecompute)) return;
      op.duration_ns = op.launch_ns = op.shared_ns = 0;
      if (!is_stall(op)) op.gap_ns = 0;
      return;
    case SubCause::offload:
      if (!is(kOffload)) return;
      op.duration_ns = op.launch_ns = op.shared_ns = 0;
      if (!is_stall(op)) op.gap_ns = 0;
      if (is(kSync)) op.is_waiting = false;
      return;
    case SubCause::unexplained:
      op.slack_ns = 0;
      return;
    case SubCause::capped_micro_batch:
    case SubCause::occupancy:
    case SubCause::bandwidth:
    case SubCause::flops:
    case SubCause::count:
      return;
  }
}

void StepCauses::set(std::vector<int64_t>& durations, size_t place, int64_t ns) const {
  if (durations.empty()) durations.assign(run_.ops().size(), -1);
  durations[place] = ns;
}

void StepCauses::scale(int64_t& ns, double factor) {
  ns = static_cast<int64_t>(static_cast<double>(ns) * factor);
}

void StepCauses::shorten(int64_t& ns, int64_t to_ns) {
  if (to_ns >= 0) ns = std::min(ns, to_ns);
}

void StepCauses::find_usual_gap() {
  std::vector<double> gaps;
  gaps.reserve(run_.ops().size());
  for (const ReplayOp& op : run_.ops()) gaps.push_back(static_cast<double>(op.gap_ns));
  if (!gaps.empty()) usual_gap_ns_ = static_cast<int64_t>(median(std::move(gaps)));
}

void StepCauses::find_doubtful_stalls() {
  const Ops& ops = run_.ops();
  for (size_t first = 0, end = 0; first < ops.size(); first = end) {
    while (end < ops.size() && ops[end].trace == ops[first].trace) ++end;
    std::vector<int64_t> ends_ns;  // of device work
    for (size_t i = first; i < end; ++i) {
      if (!is_stall(ops[i])) continue;
      if (ends_ns.empty()) {
        for (size_t k = first; k < end; ++k) {
          if (!ops[k].is_on_host) ends_ns.push_back(run_.record_of(ops[k]).end_ns);
        }
        std::ranges::sort(ends_ns);
      }
      const int64_t over_ns = run_.record_of(ops[i]).launch_start_ns;
      const auto later = std::ranges::upper_bound(ends_ns, over_ns);
      const bool has_end = later != ends_ns.begin() &&
                           *std::prev(later) >= over_ns - run_.options().start_latency_ns;
      if (!has_end) continue;
      is_doubtful_stall_.resize(ops.size());
      is_doubtful_stall_[i] = true;
    }
  }
}

void StepCauses::compare_ranks() {
  const Ops& ops = run_.ops();
  if (run_.traces().size() < 2) return;
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
  };
  std::vector<RankWork> work(run_.traces().size());
  // One class after the other, and once more if need be: what is known of all of them at once takes
  // as much memory as the step.
  const OpsByClass by_class(alike_, ops.size());
  const auto times_of = [&](uint32_t id) {
    std::map<uint32_t, WorkTimes> ranks;
    for (const uint32_t i : by_class.of(id)) ranks[ops[i].trace].add(ops[i].duration_ns);
    for (auto& [trace, times] : ranks) times.sort();
    return ranks;
  };
  for (uint32_t id = 0; id < alike_.num_classes(); ++id) {
    const std::map<uint32_t, WorkTimes> ranks = times_of(id);
    const std::map<uint32_t, double> fastest = ratios_to_fastest(ranks, alike_.is_sized(id));
    if (fastest.empty()) continue;
    for (const auto& [trace, times] : ranks) {
      const Work own = {times.sum(), times.sum() * fastest.at(trace)};
      (alike_.is_of_experts(id) ? work[trace].experts : work[trace].other) += own;
      work[trace].all += own;
    }
  }
  const auto is_changed = [](const RankWork& rank) {
    return rank.has_uneven_experts() || rank.all.is_slow();
  };
  if (std::ranges::none_of(work, is_changed)) return;
  for (uint32_t id = 0; id < alike_.num_classes(); ++id) {
    const auto of_changed = [&](uint32_t i) { return is_changed(work[ops[i].trace]); };
    if (std::ranges::none_of(by_class.of(id), of_changed)) continue;
    const std::map<uint32_t, WorkTimes> ranks = times_of(id);
    const std::map<uint32_t, double> fastest = ratios_to_fastest(ranks, alike_.is_sized(id));
    std::map<uint32_t, double> even;
    if (alike_.is_of_experts(id) && !fastest.empty()) even = ratios_to_mean(ranks);
    for (const uint32_t i : by_class.of(id)) {
      const RankWork& rank = work[ops[i].trace];
      const auto duration = static_cast<double>(ops[i].duration_ns);
      if (rank.has_uneven_experts()) {
        const auto own = even.find(ops[i].trace);
        const double ratio = own == even.end() ? 1 : own->second;
        if (kAlikeRatio * ratio <= 1) set(balanced_ns_, i, static_cast<int64_t>(duration * ratio));
        continue;
      }
      if (!rank.all.is_slow()) continue;
      // Of work that no other rank has, as of the rest.
      const double ratio =
          fastest.empty() ? rank.all.fastest / rank.all.own : fastest.at(ops[i].trace);
      set(fastest_ns_, i, static_cast<int64_t>(duration * ratio));
    }
  }
}

void StepCauses::compare_beside_collectives(const StepFacts& facts) {
  if ((all_traits_ & kCollective) == 0) return;
  const Ops& ops = run_.ops();
  for (size_t first = 0; first < ops.size();) {
    size_t end = first;
    while (end < ops.size() && ops[end].trace == ops[first].trace) ++end;
    compare_beside_collectives(facts, first, end);
    first = end;
  }
}

void StepCauses::compare_beside_collectives(const StepFacts& facts, size_t first, size_t end) {
  const Ops& ops = run_.ops();
  std::vector<Interval> collectives;
  for (size_t i = first; i < end; ++i) {
    if ((traits_[i] & kCollective) == 0) continue;
    const TraceRecord& record = run_.record_of(ops[i]);
    collectives.push_back({record.start_ns, record.end_ns});
  }
  if (collectives.empty()) return;
  const IntervalSet set_of_them(std::move(collectives));
  struct Sides {
    WorkTimes alone;
    WorkTimes beside;  ///< for the most part, where no size is known
    std::vector<SizeGroup> alone_groups;
    std::vector<SizeGroup> beside_groups;
    // Sums over work beside collectives: how long these cover it, how long it takes, and how long
    // it would take alone.
    double covered_ns = 0;
    double own_ns = 0;
    double free_ns = 0;
    /// The part of the device that collectives take while they cover such work.
    [[nodiscard]] double taken() const {
      const bool is_slowed = covered_ns > 0 && own_ns >= kAlikeRatio * free_ns;
      return is_slowed ? std::min(1.0, (own_ns - free_ns) / covered_ns) : 0;
    }
  };
  std::map<uint32_t, Sides> classes;
  std::array<Roofline::Sum, 2> alone_sums;  // by whether arithmetic binds
  std::vector<double> parts(end - first);   // covered
  const Roofline roofline(facts);
  const auto is_beside = [&](size_t i) {
    return parts[i - first] > (alike_.is_sized(alike_.class_of(i)) ? kAlonePart : 0.5);
  };
  for (size_t i = first; i < end; ++i) {
    if (!is_kernel(i) || ops[i].duration_ns <= 0) continue;
    const TraceRecord& record = run_.record_of(ops[i]);
    double& part = parts[i - first];
    part = static_cast<double>(covered_ns(set_of_them, {record.start_ns, record.end_ns})) /
           static_cast<double>(ops[i].duration_ns);
    Sides& sides = classes[alike_.class_of(i)];
    if (is_beside(i)) sides.beside.add(ops[i].duration_ns);
    if (part <= kAlonePart) sides.alone.add(ops[i].duration_ns);
    if (part <= 0) {
      alone_sums[roofline.is_flop_bound(record) ? 1 : 0].add(roofline.least_ns(record),
                                                             ops[i].duration_ns);
    }
  }
  for (auto& [id, sides] : classes) {
    sides.alone.sort();
    sides.beside.sort();
    if (alike_.is_sized(id)) continue;
    sides.alone_groups = size_groups_of(sides.alone);
    sides.beside_groups = size_groups_of(sides.beside);
  }
  for (size_t i = first; i < end; ++i) {
    const double part = parts[i - first];
    if (part <= 0 || !is_beside(i)) continue;
    const auto own_ns = static_cast<double>(ops[i].duration_ns);
    Sides& sides = classes.at(alike_.class_of(i));
    double free_ns = 0;
    if (alike_.is_sized(alike_.class_of(i))) {
      const TraceRecord& record = run_.record_of(ops[i]);
      free_ns = sides.alone.count() > 0
                    ? sides.alone.mean()
                    : roofline.least_ns(record) /
                          alone_sums[roofline.is_flop_bound(record) ? 1 : 0].ratio();
    } else {
      const auto group =
          std::ranges::lower_bound(sides.beside_groups, own_ns, {}, &SizeGroup::longest_ns);
      free_ns = alone_ns(sides.alone_groups, group->mean_ns).value_or(0);
      if (group->mean_ns < kAlikeRatio * free_ns) continue;
      if (free_ns > 0) set(free_ns_, i, static_cast<int64_t>(free_ns));
    }
    if (!(free_ns > 0)) continue;
    sides.covered_ns += part * own_ns;
    sides.own_ns += own_ns;
    sides.free_ns += free_ns;
  }
  // What alike work loses while it is covered, this loses as long as it is.
  for (size_t i = first; i < end; ++i) {
    const double part = parts[i - first];
    if (part <= kAlonePart || (!free_ns_.empty() && free_ns_[i] >= 0)) continue;
    const bool may_have_other_size = is_beside(i) && !alike_.is_sized(alike_.class_of(i));
    if (may_have_other_size) continue;
    const double taken = classes.at(alike_.class_of(i)).taken();
    const auto own_ns = static_cast<double>(ops[i].duration_ns);
    if (taken > 0) set(free_ns_, i, static_cast<int64_t>(own_ns * (1 - taken * part)));
  }
}

void StepCauses::compare_instances() {
  const Ops& ops = run_.ops();
  members_.assign(static_cast<size_t>(run_.num_instances()),
                  std::vector<bool>(run_.traces().size()));
  speeds_.assign(members_.size(), Speed::unknown);
  using Transfer = std::tuple<std::string_view, std::string_view, int64_t>;
  const auto transfer_of = [&](const ReplayOp& op) {
    const TraceRecord& record = run_.record_of(op);
    return Transfer{record.group, record.name, record.bytes};
  };
  // Messages whose other end is in no trace have no known transfer; links tell of those that have
  // a number.
  const auto has_transfer = [&](size_t i) {
    const TraceRecord& record = run_.record_of(ops[i]);
    return record.kind != RecordKind::p2p || (record.transfer_ns > 0 && !links_.has(i));
  };
  std::map<Transfer, std::map<int32_t, Mean>> classes;
  for (const size_t i : run_.communication()) {
    if (run_.instance_of(i) < 0) continue;
    members_[static_cast<size_t>(run_.instance_of(i))][ops[i].trace] = true;
    if (!has_transfer(i)) continue;
    classes[transfer_of(ops[i])][run_.instance_of(i)].add(ops[i].duration_ns);
  }
  std::vector<size_t> single;  // nothing to compare with
  for (const size_t i : run_.communication()) {
    if (links_.has(i) && links_.usual_ns(i) >= 0) {
      set(usual_transfer_ns_, i, links_.usual_ns(i));
    }
    if (run_.instance_of(i) < 0 || !has_transfer(i)) continue;
    const auto& by_instance = classes[transfer_of(ops[i])];
    if (by_instance.size() < 2) {
      if ((traits_[i] & kMessage) == 0) single.push_back(i);
      continue;
    }
    Speed& speed = speeds_[static_cast<size_t>(run_.instance_of(i))];
    if (speed == Speed::unknown) speed = Speed::usual;
    double least = by_instance.begin()->second.value();
    for (const auto& [instance, mean] : by_instance) least = std::min(least, mean.value());
    const double own = by_instance.at(run_.instance_of(i)).value();
    if (own < kSlowLinkRatio * least) continue;
    speed = Speed::slow;
    set(usual_transfer_ns_, i, static_cast<int64_t>(least));
  }
  compare_with_slow_rank(single);
}

void StepCauses::compare_with_slow_rank(const std::vector<size_t>& single) {
  if (std::ranges::count(speeds_, Speed::slow) == 0) return;
  const std::optional<uint32_t> rank = with_slow_link();
  if (!rank) return;
  std::vector<bool> has_slow_part(members_.size());
  for (size_t part = 0; part < members_.size(); ++part) {
    const std::vector<bool>& members = members_[part];
    if (speeds_[part] != Speed::slow || !members[*rank]) continue;
    if (std::ranges::count(members, true) < 2) continue;
    for (size_t whole = 0; whole < members_.size(); ++whole) {
      bool is_within = true;
      for (size_t trace = 0; trace < members.size(); ++trace) {
        is_within = is_within && (!members[trace] || members_[whole][trace]);
      }
      if (is_within) has_slow_part[whole] = true;
    }
  }
  // Of the rank's own records, as those of the others are the same transfers.
  double slow_ns = 0;
  double usual_ns = 0;
  for (const size_t i : run_.communication()) {
    const ReplayOp& op = run_.ops()[i];
    if (op.trace != *rank || usual_transfer_ns_[i] < 0 || (traits_[i] & kMessage) != 0) continue;
    slow_ns += static_cast<double>(op.duration_ns);
    usual_ns += static_cast<double>(usual_transfer_ns_[i]);
  }
  std::vector<size_t> like_these;
  double single_ns = 0;
  for (const size_t i : single) {
    if (!has_slow_part[static_cast<size_t>(run_.instance_of(i))]) continue;
    like_these.push_back(i);
    const ReplayOp& op = run_.ops()[i];
    if (op.trace == *rank) single_ns += static_cast<double>(op.duration_ns);
  }
  if (slow_ns < kLeastComparedPart * (slow_ns + single_ns)) return;
  for (const size_t i : like_these) {
    const auto own_ns = static_cast<double>(run_.ops()[i].duration_ns);
    set(usual_transfer_ns_, i, static_cast<int64_t>(own_ns * usual_ns / slow_ns));
  }
}

void StepCauses::compare_experts() {
  const Ops& ops = run_.ops();
  using Place = std::tuple<std::string_view, int32_t, int32_t, int32_t>;
  std::map<std::pair<uint32_t, Place>, int32_t> occurrences;
  std::map<Place, std::vector<size_t>> classes;
  for (size_t i = 0; i < ops.size(); ++i) {
    if ((traits_[i] & kOfLayer) == 0) continue;
    const TraceRecord& record = run_.record_of(ops[i]);
    Place place{record.name, record.layer, record.micro_batch, 0};
    std::get<3>(place) = occurrences[{ops[i].trace, place}]++;
    classes[place].push_back(i);
  }
  std::map<std::pair<int32_t, int32_t>, double> most_over_mean;  // by layer and micro-batch
  const auto size_of = [&](size_t i) {
    const TraceRecord& record = run_.record_of(ops[i]);
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
      set(balanced_ns_, i,
          static_cast<int64_t>(static_cast<double>(ops[i].duration_ns) * mean / own));
    }
  }
  for (size_t i = 0; i < ops.size(); ++i) {
    if ((traits_[i] & kCollective) == 0) continue;
    const TraceRecord& record = run_.record_of(ops[i]);
    if (record.group != "ep" && !(record.name == kExpertExchange)) continue;
    const auto excess = most_over_mean.find({record.layer, record.micro_batch});
    if (excess == most_over_mean.end()) continue;
    set(balanced_ns_, i,
        static_cast<int64_t>(static_cast<double>(ops[i].duration_ns) / excess->second));
  }
}

void StepCauses::compare_stages() {
  const Ops& ops = run_.ops();
  stage_factors_.assign(run_.traces().size(), 1);
  stage_work_.assign(run_.traces().size(), 0);
  pipelines_.assign(run_.traces().size(), -1);
  std::map<int32_t, std::vector<uint32_t>> pipelines;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (is_kernel(i)) stage_work_[ops[i].trace] += static_cast<double>(ops[i].duration_ns);
    if ((traits_[i] & kMessage) == 0) continue;
    pipelines_[ops[i].trace] = run_.instance_of(i);
    std::vector<uint32_t>& traces = pipelines[run_.instance_of(i)];
    if (traces.empty() || traces.back() != ops[i].trace) traces.push_back(ops[i].trace);
  }
  for (const auto& [instance, traces] : pipelines) {
    double sum = 0;
    for (const uint32_t trace : traces) sum += stage_work_[trace];
    for (const uint32_t trace : traces) {
      if (stage_work_[trace] > 0) {
        stage_factors_[trace] = sum / static_cast<double>(traces.size()) / stage_work_[trace];
      }
    }
  }
}

}  // namespace moetune::profiler
