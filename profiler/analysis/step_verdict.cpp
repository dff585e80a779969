#include "profiler/analysis/step_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "kernels/base/units.h"
#include "profiler/analysis/intervals.h"
#include "profiler/analysis/stats.h"

namespace moetune::profiler {
namespace {

using Ops = std::vector<ReplayOp>;

constexpr SubCauseRow kSubCauses[] = {
    {SubCause::transfer, WallLabel::communication, "transfer"},
    {SubCause::one_link, WallLabel::communication, "one link"},
    {SubCause::contention, WallLabel::communication, "contention"},
    {SubCause::launch, WallLabel::host, "launch"},
    {SubCause::sync, WallLabel::host, "sync"},
    {SubCause::allocator, WallLabel::host, "allocator"},
    {SubCause::loader, WallLabel::host, "loader"},
    {SubCause::bubble, WallLabel::pipeline, "bubble"},
    {SubCause::uneven_stage, WallLabel::pipeline, "uneven stage"},
    {SubCause::rank, WallLabel::imbalance, "rank"},
    {SubCause::experts, WallLabel::imbalance, "experts"},
    {SubCause::recompute, WallLabel::memory, "recompute"},
    {SubCause::offload, WallLabel::memory, "offload"},
    {SubCause::capped_micro_batch, WallLabel::memory, "capped micro-batch"},
    {SubCause::occupancy, WallLabel::compute, "occupancy"},
    {SubCause::bandwidth, WallLabel::compute, "bandwidth"},
    {SubCause::flops, WallLabel::compute, "FLOPs"},
    {SubCause::unexplained, WallLabel::unknown, "unexplained"}};
static_assert(std::size(kSubCauses) == kNumSubCauses);

size_t place_of(auto id) { return static_cast<size_t>(id); }

/// A gap on the host that is so much longer than usual is a stall of its own.
constexpr int64_t kStallNs = 200'000;
constexpr int64_t kStallGaps = 20;
/// Less than this apart, durations of alike work are the same.
constexpr double kAlikeRatio = 1.05;
/// The same of alike transfers.
constexpr double kSlowLinkRatio = 1.2;
/// Causes that gain only together have to gain that much more than one that does alone.
constexpr double kPairRatio = 1.5;
/// Of two causes on the host that gain as much, it is not the wait.
constexpr double kWaitWeight = 0.9;

bool has_word(const TraceRecord& record, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(
      words, [&](std::string_view word) { return record.name.find(word) != std::string::npos; });
}

/// Work that should take equally long: of the same op and size.
using Alike = std::tuple<std::string_view, int64_t, int64_t>;
Alike alike_of(const TraceRecord& record) { return {record.name, record.flops, record.bytes}; }

struct Mean {
  double sum = 0;
  int64_t count = 0;
  void add(int64_t ns) {
    sum += static_cast<double>(ns);
    ++count;
  }
  [[nodiscard]] double value() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

/// The least time that a kernel's work takes on the device, where its peaks are known (Williams,
/// Waterman & Patterson 2009).
class Roofline {
 public:
  /// Of several kernels, how near they are to it.
  struct Sum {
    double least_ns = 0;
    double ns = 0;
    void add(double least, int64_t taken_ns) {
      least_ns += least;
      ns += static_cast<double>(taken_ns);
    }
    [[nodiscard]] double ratio() const { return ns > 0 ? least_ns / ns : 0; }
  };

  explicit Roofline(const StepFacts& facts)
      : ns_per_flop_(facts.peak_flops_per_s > 0 ? 1e9 / facts.peak_flops_per_s : 0),
        ns_per_byte_(facts.memory_bytes_per_s > 0 ? 1e9 / facts.memory_bytes_per_s : 0) {}

  [[nodiscard]] bool is_known() const { return ns_per_flop_ > 0 && ns_per_byte_ > 0; }
  [[nodiscard]] double flops_ns(const TraceRecord& record) const {
    return ns_per_flop_ * static_cast<double>(record.flops);
  }
  [[nodiscard]] double bytes_ns(const TraceRecord& record) const {
    return ns_per_byte_ * static_cast<double>(record.bytes);
  }
  [[nodiscard]] double least_ns(const TraceRecord& record) const {
    return std::max(flops_ns(record), bytes_ns(record));
  }
  [[nodiscard]] bool is_flop_bound(const TraceRecord& record) const {
    return flops_ns(record) >= bytes_ns(record);
  }

 private:
  double ns_per_flop_;
  double ns_per_byte_;
};

/// What of one step is dropped by which cause, prepared once. Each drop_ changes the operations of
/// one rank, or of all where none is given.
class StepCauses {
 public:
  StepCauses(const ReplayedRun& run, const StepFacts& facts) : run_(run) {
    const MemoryFacts& memory = facts.memory;
    is_short_ = memory.capacity_bytes <= 0 ||
                static_cast<double>(memory.peak_bytes) >
                    facts.short_ratio * static_cast<double>(memory.capacity_bytes);
    find_usual_gap();
    compare_ranks();
    compare_beside_collectives(facts);
    compare_instances();
    compare_experts();
    compare_stages();
  }

  [[nodiscard]] bool is_memory_short() const { return is_short_; }

  /// The one of whose communicators all are slower than others of their kind, if there is one.
  [[nodiscard]] std::optional<uint32_t> with_slow_link() const {
    std::optional<uint32_t> found;
    for (uint32_t trace = 0; trace < run_.traces().size(); ++trace) {
      int64_t num_slow = 0;
      int64_t num_usual = 0;
      for (size_t i = 0; i < members_.size(); ++i) {
        if (!members_[i][trace] || speeds_[i] == Speed::unknown) continue;
        ++(speeds_[i] == Speed::slow ? num_slow : num_usual);
      }
      if (num_slow == 0 || num_usual > 0) continue;
      if (found) return std::nullopt;
      found = trace;
    }
    return found;
  }

  void drop(SubCause cause, Ops& ops, std::optional<uint32_t> trace = {}) const {
    if (cause == SubCause::recompute && !is_short_) return;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (trace && !is_of(i, *trace)) continue;
      drop_one(cause, i, ops[i]);
    }
  }

 private:
  /// Communication that a rank takes part in is also that rank's.
  [[nodiscard]] bool is_of(size_t op, uint32_t trace) const {
    if (run_.ops()[op].trace == trace) return true;
    const int32_t instance = run_.instance_of(op);
    return instance >= 0 && members_[static_cast<size_t>(instance)][trace];
  }

  [[nodiscard]] bool is_stall(const ReplayOp& op) const {
    return op.gap_ns > std::max(kStallNs, kStallGaps * usual_gap_ns_);
  }

  void drop_one(SubCause cause, size_t place, ReplayOp& op) const {
    const TraceRecord& record = run_.record_of(op);
    const bool is_host_work = record.kind == RecordKind::host_work;
    const bool is_allocator = is_host_work && has_word(record, {"alloc", "Malloc", "Free"});
    const bool is_loader = is_host_work && has_word(record, {"load", "Load"});
    const bool is_communication = !record.group.empty();
    switch (cause) {
      case SubCause::transfer:
        if (is_communication) op.duration_ns = 0;
        return;
      case SubCause::one_link:
        if (is_communication) shorten(op.duration_ns, usual_transfer_ns_[place]);
        return;
      case SubCause::contention:
        if (!is_communication) shorten(op.duration_ns, free_ns_[place]);
        return;
      case SubCause::launch:
        op.launch_ns = 0;
        if (!is_stall(op)) op.gap_ns = 0;
        if (is_host_work && !is_allocator && !is_loader) op.duration_ns = 0;
        return;
      case SubCause::sync:
        if (record.kind != RecordKind::host_sync) return;
        op.duration_ns = 0;
        op.is_waiting = false;
        return;
      case SubCause::allocator:
        if (is_allocator) op.duration_ns = 0;
        return;
      case SubCause::loader:
        if (is_loader) op.duration_ns = 0;
        if (is_stall(op)) op.gap_ns = usual_gap_ns_;
        return;
      case SubCause::bubble:
        if (record.kind == RecordKind::p2p) op.is_waiting = false;
        return;
      case SubCause::uneven_stage:
        if (record.kind == RecordKind::kernel) scale(op.duration_ns, stage_factors_[op.trace]);
        return;
      case SubCause::rank:
        shorten(op.duration_ns, fastest_ns_[place]);
        return;
      case SubCause::experts:
        shorten(op.duration_ns, balanced_ns_[place]);
        return;
      case SubCause::recompute:
        if (record.is_recompute) op.duration_ns = 0;
        return;
      case SubCause::offload:
        if (record.kind == RecordKind::memcpy && has_word(record, {"offload", "reload"})) {
          op.duration_ns = 0;
        }
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

  static void scale(int64_t& ns, double factor) {
    ns = static_cast<int64_t>(static_cast<double>(ns) * factor);
  }
  /// -1: nothing to compare with.
  static void shorten(int64_t& ns, int64_t to_ns) {
    if (to_ns >= 0) ns = std::min(ns, to_ns);
  }

  void find_usual_gap() {
    std::vector<double> gaps;
    for (const ReplayOp& op : run_.ops()) gaps.push_back(static_cast<double>(op.gap_ns));
    if (!gaps.empty()) usual_gap_ns_ = static_cast<int64_t>(median(std::move(gaps)));
  }

  /// Alike work of the rank that does it fastest, where whole ranks are slower.
  void compare_ranks() {
    const Ops& ops = run_.ops();
    fastest_ns_.assign(ops.size(), -1);
    std::map<Alike, std::map<uint32_t, Mean>> classes;
    for (const ReplayOp& op : ops) {
      const TraceRecord& record = run_.record_of(op);
      if (record.kind != RecordKind::kernel) continue;
      classes[alike_of(record)][op.trace].add(op.duration_ns);
    }
    struct Work {
      double own = 0;
      double fastest = 0;
    };
    std::vector<Work> work(run_.traces().size());
    std::map<Alike, double> fastest;
    for (const auto& [alike, by_trace] : classes) {
      if (by_trace.size() < 2) continue;
      double least = by_trace.begin()->second.value();
      for (const auto& [trace, mean] : by_trace) least = std::min(least, mean.value());
      fastest[alike] = least;
      for (const auto& [trace, mean] : by_trace) {
        work[trace].own += mean.sum;
        work[trace].fastest += least * static_cast<double>(mean.count);
      }
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      const TraceRecord& record = run_.record_of(ops[i]);
      const Work& rank = work[ops[i].trace];
      if (record.kind != RecordKind::kernel || rank.own < kAlikeRatio * rank.fastest) continue;
      double ratio = rank.fastest / rank.own;  // of work that no other rank has
      const auto found = fastest.find(alike_of(record));
      if (found != fastest.end()) {
        const double own = classes[found->first][ops[i].trace].value();
        ratio = own > 0 ? found->second / own : 1;
      }
      fastest_ns_[i] = static_cast<int64_t>(static_cast<double>(ops[i].duration_ns) * ratio);
    }
  }

  /// Work beside a collective as it would be without one: as alike work of the rank is, or else as
  /// near to the roofline as its other work that is bound alike.
  void compare_beside_collectives(const StepFacts& facts) {
    const Ops& ops = run_.ops();
    free_ns_.assign(ops.size(), -1);
    std::vector<std::vector<Interval>> collectives(run_.traces().size());
    for (const ReplayOp& op : ops) {
      const TraceRecord& record = run_.record_of(op);
      if (record.kind == RecordKind::collective) {
        collectives[op.trace].push_back({record.start_ns, record.end_ns});
      }
    }
    std::vector<IntervalSet> sets;
    for (std::vector<Interval>& one : collectives) sets.emplace_back(std::move(one));
    std::map<std::pair<uint32_t, Alike>, std::array<Mean, 2>> classes;
    std::map<std::pair<uint32_t, bool>, Roofline::Sum> alone_sums;
    std::vector<bool> is_beside(ops.size());
    const Roofline roofline(facts);
    for (size_t i = 0; i < ops.size(); ++i) {
      const TraceRecord& record = run_.record_of(ops[i]);
      if (record.kind != RecordKind::kernel || ops[i].duration_ns <= 0) continue;
      const int64_t covered = covered_ns(sets[ops[i].trace], {record.start_ns, record.end_ns});
      is_beside[i] = 2 * covered > ops[i].duration_ns;
      classes[{ops[i].trace, alike_of(record)}][is_beside[i] ? 1 : 0].add(ops[i].duration_ns);
      if (covered == 0) {
        alone_sums[{ops[i].trace, roofline.is_flop_bound(record)}].add(roofline.least_ns(record),
                                                                       ops[i].duration_ns);
      }
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      if (!is_beside[i]) continue;
      const TraceRecord& record = run_.record_of(ops[i]);
      const auto& [alone, beside] = classes[{ops[i].trace, alike_of(record)}];
      double free_ns = alone.value();
      if (alone.count == 0) {
        free_ns = roofline.least_ns(record) /
                  alone_sums[{ops[i].trace, roofline.is_flop_bound(record)}].ratio();
      }
      if (!(free_ns > 0) || beside.value() < kAlikeRatio * free_ns) continue;
      free_ns_[i] = static_cast<int64_t>(free_ns);
    }
  }

  /// Alike communication of the communicator that moves it fastest, where whole ones are slower.
  void compare_instances() {
    const Ops& ops = run_.ops();
    usual_transfer_ns_.assign(ops.size(), -1);
    members_.assign(static_cast<size_t>(run_.num_instances()),
                    std::vector<bool>(run_.traces().size()));
    speeds_.assign(members_.size(), Speed::unknown);
    using Transfer = std::tuple<std::string_view, std::string_view, int64_t>;
    const auto transfer_of = [&](const ReplayOp& op) {
      const TraceRecord& record = run_.record_of(op);
      return Transfer{record.group, record.name, record.bytes};
    };
    std::map<Transfer, std::map<int32_t, Mean>> classes;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (run_.instance_of(i) < 0) continue;
      members_[static_cast<size_t>(run_.instance_of(i))][ops[i].trace] = true;
      classes[transfer_of(ops[i])][run_.instance_of(i)].add(ops[i].duration_ns);
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      if (run_.instance_of(i) < 0) continue;
      const auto& by_instance = classes[transfer_of(ops[i])];
      if (by_instance.size() < 2) continue;
      Speed& speed = speeds_[static_cast<size_t>(run_.instance_of(i))];
      if (speed == Speed::unknown) speed = Speed::usual;
      double least = by_instance.begin()->second.value();
      for (const auto& [instance, mean] : by_instance) least = std::min(least, mean.value());
      const double own = by_instance.at(run_.instance_of(i)).value();
      if (own < kSlowLinkRatio * least) continue;
      speed = Speed::slow;
      usual_transfer_ns_[i] = static_cast<int64_t>(least);
    }
  }

  /// Work on experts' rows, as if all ranks of the layer had as many.
  void compare_experts() {
    const Ops& ops = run_.ops();
    balanced_ns_.assign(ops.size(), -1);
    using Place = std::tuple<std::string_view, int32_t, int32_t, int32_t>;
    std::map<std::pair<uint32_t, Place>, int32_t> occurrences;
    std::map<Place, std::vector<size_t>> classes;
    for (size_t i = 0; i < ops.size(); ++i) {
      const TraceRecord& record = run_.record_of(ops[i]);
      if (record.kind != RecordKind::kernel || record.layer < 0) continue;
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
        balanced_ns_[i] =
            static_cast<int64_t>(static_cast<double>(ops[i].duration_ns) * mean / own);
      }
    }
    for (size_t i = 0; i < ops.size(); ++i) {
      const TraceRecord& record = run_.record_of(ops[i]);
      if (record.group != "ep" || record.kind != RecordKind::collective) continue;
      const auto excess = most_over_mean.find({record.layer, record.micro_batch});
      if (excess == most_over_mean.end()) continue;
      balanced_ns_[i] =
          static_cast<int64_t>(static_cast<double>(ops[i].duration_ns) / excess->second);
    }
  }

  /// Ranks that send each other messages are stages: each as if it had as much to compute.
  void compare_stages() {
    const Ops& ops = run_.ops();
    stage_factors_.assign(run_.traces().size(), 1);
    std::vector<double> work(run_.traces().size());
    std::map<int32_t, std::vector<uint32_t>> pipelines;
    for (size_t i = 0; i < ops.size(); ++i) {
      const TraceRecord& record = run_.record_of(ops[i]);
      if (record.kind == RecordKind::kernel) {
        work[ops[i].trace] += static_cast<double>(ops[i].duration_ns);
      }
      if (record.kind != RecordKind::p2p) continue;
      std::vector<uint32_t>& traces = pipelines[run_.instance_of(i)];
      if (traces.empty() || traces.back() != ops[i].trace) traces.push_back(ops[i].trace);
    }
    for (const auto& [instance, traces] : pipelines) {
      double sum = 0;
      for (const uint32_t trace : traces) sum += work[trace];
      for (const uint32_t trace : traces) {
        if (work[trace] > 0) {
          stage_factors_[trace] = sum / static_cast<double>(traces.size()) / work[trace];
        }
      }
    }
  }

  enum class Speed : uint8_t { unknown, usual, slow };

  const ReplayedRun& run_;
  bool is_short_ = false;
  int64_t usual_gap_ns_ = 0;
  std::vector<int64_t> fastest_ns_;         // by operation; -1: as it is
  std::vector<int64_t> free_ns_;            //
  std::vector<int64_t> usual_transfer_ns_;  //
  std::vector<int64_t> balanced_ns_;        //
  std::vector<double> stage_factors_;       // by trace
  std::vector<std::vector<bool>> members_;  // by instance and trace
  std::vector<Speed> speeds_;               // by instance, beside others of its kind
};

class StepJudge {
 public:
  StepJudge(const ReplayedRun& run, const StepFacts& facts)
      : run_(run), facts_(facts), causes_(run, facts) {}

  StepVerdict verdict() {
    verdict_.step_ns = run_.step_ns(run_.ops());
    if (run_.num_edges() > 0) {
      verdict_.inferred_ratio =
          static_cast<double>(run_.num_inferred_edges()) / static_cast<double>(run_.num_edges());
    }
    if (verdict_.step_ns <= 0 || run_.ops().empty()) {
      verdict_.ceilings[place_of(WallLabel::unknown)] = 1;
      verdict_.summary = "unknown: nothing was recorded";
      return verdict_;
    }
    for (const SubCauseRow& row : kSubCauses) {
      if (row.label != WallLabel::compute) {
        verdict_.sub_ceilings[place_of(row.id)] = gain_of(row.label, {row.id});
      }
    }
    for (size_t i = 0; i < kNumWallLabels; ++i) {
      const auto label = static_cast<WallLabel>(i);
      if (label == WallLabel::compute) continue;
      verdict_.ceilings[i] = gain_of(label, causes_of(label));
    }
    split_compute();
    choose();
    find_rank();
    say();
    return verdict_;
  }

 private:
  static std::vector<SubCause> causes_of(WallLabel label) {
    std::vector<SubCause> causes;
    for (const SubCauseRow& row : kSubCauses) {
      if (row.label == label) causes.push_back(row.id);
    }
    return causes;
  }

  /// Share of the step that dropping the causes gains. Stages wait for whatever is late on another:
  /// the pipeline's own is what is left of that where nothing else is wrong.
  [[nodiscard]] double gain_of(WallLabel label, const std::vector<SubCause>& causes,
                               std::optional<uint32_t> trace = {}) const {
    Ops ops = run_.ops();
    int64_t before_ns = verdict_.step_ns;
    if (label == WallLabel::pipeline) {
      for (const WallLabel other :
           {WallLabel::communication, WallLabel::host, WallLabel::imbalance, WallLabel::memory}) {
        for (const SubCause cause : causes_of(other)) causes_.drop(cause, ops);
      }
      before_ns = run_.step_ns(ops);
    }
    for (const SubCause cause : causes) causes_.drop(cause, ops, trace);
    return static_cast<double>(std::max<int64_t>(0, before_ns - run_.step_ns(ops))) /
           static_cast<double>(verdict_.step_ns);
  }

  /// Kernels against the roofline: what they take longer than it, what they would not take with
  /// endless bandwidth, and the rest, which is arithmetic.
  void split_compute() {
    const Roofline roofline(facts_);
    double all = 0;
    double over = 0;
    double bandwidth = 0;
    for (const ReplayOp& op : run_.ops()) {
      const TraceRecord& record = run_.record_of(op);
      if (record.kind != RecordKind::kernel) continue;
      const auto ns = static_cast<double>(op.duration_ns);
      all += ns;
      over += std::max(0.0, ns - roofline.least_ns(record));
      bandwidth += std::max(0.0, roofline.bytes_ns(record) - roofline.flops_ns(record));
    }
    const double whole =
        static_cast<double>(verdict_.step_ns) * static_cast<double>(run_.traces().size());
    verdict_.ceilings[place_of(WallLabel::compute)] = std::min(1.0, all / whole);
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
    if (std::max(over, bandwidth) < facts_.least_ratio) return SubCause::flops;
    return over >= bandwidth ? SubCause::occupancy : SubCause::bandwidth;
  }

  void choose() {
    const auto& ceilings = verdict_.ceilings;
    WallLabel best = WallLabel::communication;
    double second = 0;
    for (size_t i = 1; i < place_of(WallLabel::compute); ++i) {
      if (ceilings[i] > ceilings[place_of(best)]) {
        second = ceilings[place_of(best)];
        best = static_cast<WallLabel>(i);
      } else {
        second = std::max(second, ceilings[i]);
      }
    }
    const double most = ceilings[place_of(best)];
    const double unknown = ceilings[place_of(WallLabel::unknown)];
    // Could what is unexplained make another one the largest?
    const bool is_sure = unknown <= facts_.most_unknown_ratio || most > second + unknown;
    const bool is_hidden = most < facts_.least_ratio && unknown >= facts_.least_ratio;
    if (!is_sure || is_hidden) return;
    verdict_.label = most >= facts_.least_ratio ? best : WallLabel::compute;
    if (verdict_.label == WallLabel::compute) look_for_pair();
    verdict_.sub_cause =
        verdict_.label == WallLabel::compute ? bound_of_compute() : largest_of(verdict_.label);
    if (verdict_.label == WallLabel::communication) {
      const double one_link = verdict_.sub_ceilings[place_of(SubCause::one_link)];
      if (2 * one_link > most) verdict_.sub_cause = SubCause::one_link;
    }
    // What memory does not let grow is memory's.
    if (verdict_.sub_cause == SubCause::occupancy && causes_.is_memory_short() &&
        facts_.memory.capacity_bytes > 0) {
      verdict_.label = WallLabel::memory;
      verdict_.sub_cause = SubCause::capped_micro_batch;
      verdict_.ceilings[place_of(WallLabel::memory)] =
          verdict_.sub_ceilings[place_of(SubCause::occupancy)];
    }
  }

  /// Two causes of one length beside each other hide each other: neither alone gains. The one is
  /// named that costs most where the others are gone.
  void look_for_pair() {
    const auto step = static_cast<double>(verdict_.step_ns);
    const auto step_with = [&](std::optional<WallLabel> only, bool is_explained = false) {
      Ops ops = run_.ops();
      for (const SubCauseRow& row : kSubCauses) {
        if (row.label < WallLabel::compute && row.label != only) causes_.drop(row.id, ops);
      }
      if (is_explained) causes_.drop(SubCause::unexplained, ops);
      return static_cast<double>(run_.step_ns(ops));
    };
    const double ideal = step_with({});
    const double unexplained = (ideal - step_with({}, true)) / step;
    if (unexplained > facts_.most_unknown_ratio) {
      verdict_.label = WallLabel::unknown;
      verdict_.ceilings[place_of(WallLabel::unknown)] = unexplained;
      return;
    }
    if (1 - ideal / step < kPairRatio * facts_.least_ratio) return;
    double most = 0;
    for (size_t i = 0; i < place_of(WallLabel::compute); ++i) {
      const auto label = static_cast<WallLabel>(i);
      const double costs = (step_with(label) - ideal) / step;
      if (costs <= most) continue;
      most = costs;
      verdict_.label = label;
    }
    if (most < facts_.least_ratio) {
      verdict_.label = WallLabel::compute;
      return;
    }
    verdict_.is_hidden_alone = true;
    verdict_.ceilings[place_of(verdict_.label)] = most;
  }

  [[nodiscard]] SubCause largest_of(WallLabel label) const {
    SubCause best = SubCause::unexplained;
    double most = -1;
    for (const SubCauseRow& row : kSubCauses) {
      if (row.label != label) continue;
      double own = verdict_.sub_ceilings[place_of(row.id)];
      // A host that never waits has time for whatever delays it: as much as that delay explains.
      if (row.id == SubCause::sync) own *= kWaitWeight;
      if (own <= most) continue;
      most = own;
      best = row.id;
    }
    return best;
  }

  void find_rank() {
    const double all = verdict_.ceiling_ratio();
    if (verdict_.label >= WallLabel::memory || run_.traces().size() < 2 || all <= 0) return;
    if (verdict_.label == WallLabel::pipeline) return;
    if (verdict_.sub_cause == SubCause::one_link) {
      if (const auto trace = causes_.with_slow_link()) verdict_.rank = run_.traces()[*trace].rank;
      return;
    }
    double most = 0;
    double second = 0;
    uint32_t whose = 0;
    for (uint32_t trace = 0; trace < run_.traces().size(); ++trace) {
      const double gain = gain_of(verdict_.label, {verdict_.sub_cause}, trace);
      if (gain > most) {
        second = std::exchange(most, gain);
        whose = trace;
      } else {
        second = std::max(second, gain);
      }
    }
    if (most < 0.6 * verdict_.sub_ceilings[place_of(verdict_.sub_cause)] || most < 1.5 * second) {
      return;
    }
    verdict_.rank = run_.traces()[whose].rank;
  }

  void say() {
    const SubCauseRow& row = row_of(verdict_.sub_cause);
    if (verdict_.label == WallLabel::unknown) {
      verdict_.summary = fmt::format(
          "unknown: nothing in the records explains what {} of the step were waited for",
          base::format_ratio(verdict_.unknown_ratio()));
      return;
    }
    if (verdict_.label == WallLabel::compute) {
      const bool is_split = verdict_.sub_ceilings[place_of(verdict_.sub_cause)] > 0;
      verdict_.summary = fmt::format(
          "compute: {} of the step, mostly {}; nothing else would gain {}",
          base::format_ratio(verdict_.ceiling_ratio()),
          is_split ? row.name : "of a kind that cannot be told without the device's peaks",
          base::format_ratio(facts_.least_ratio));
      return;
    }
    verdict_.summary =
        fmt::format("{} ({}): without it the step would be {} shorter", name_of(verdict_.label),
                    row.name, base::format_ratio(verdict_.ceiling_ratio()));
    if (verdict_.is_hidden_alone) {
      verdict_.summary = fmt::format(
          "{} ({}): costs {} of the step, hidden by another cause beside it: only without both "
          "does "
          "the step become shorter",
          name_of(verdict_.label), row.name, base::format_ratio(verdict_.ceiling_ratio()));
    }
    if (verdict_.rank) verdict_.summary += fmt::format("; most of it is rank {}'s", *verdict_.rank);
  }

  const ReplayedRun& run_;
  const StepFacts& facts_;
  StepCauses causes_;
  StepVerdict verdict_;
};

}  // namespace

std::span<const SubCauseRow> sub_causes() { return kSubCauses; }

StepVerdict judge_step(const ReplayedRun& run, const StepFacts& facts) {
  return StepJudge(run, facts).verdict();
}

}  // namespace moetune::profiler
