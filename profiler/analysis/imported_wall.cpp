#include "profiler/analysis/imported_wall.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "profiler/analysis/imported_recompute.h"
#include "profiler/analysis/imported_replay.h"
#include "profiler/analysis/imported_steps.h"
#include "profiler/analysis/judged_work.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/missing_ranks.h"
#include "profiler/analysis/one_run.h"
#include "profiler/analysis/recording_advice.h"
#include "profiler/analysis/trace_causes.h"
#include "profiler/analysis/trace_windows.h"

namespace moetune::profiler {
namespace {

/// A replay whose length differs from the recorded step by more is not used.
constexpr double kMostReplayError = 0.05;

/// The cause of no verdict where communication was found on no other rank.
constexpr const char* kUnmatched = "unmatched";

size_t place_of(auto id) { return static_cast<size_t>(id); }

/// One rank's time.
struct JudgedRank {
  TraceWindow window;  ///< its ops are not kept
  std::vector<CauseSegment> segments;
  IntervalSet recomputed;                     ///< when it did, and nothing else computed
  std::array<double, kNumWalls> shares = {};  ///< of its window
  [[nodiscard]] int64_t window_ns() const { return window.time.length_ns(); }
};

/// The windows and causes of all ranks that have device work, and what they wait for one another.
class Judge {
 public:
  Judge(std::span<const ImportedTrace> traces, const DevicePeaks& peaks, const MemoryFacts& memory)
      : traces_(traces), peaks_(peaks), memory_(memory) {
    for (const ImportedTrace& trace : traces) {
      JudgedRank& rank = ranks_.emplace_back();
      is_offload_one_way_ = is_offload_one_way_ && !offloading_of(trace).is_both_ways;
      const TraceExtent extent = extent_of(trace);
      if (extent.last_ns - extent.first_ns > kMaxTraceNs) {
        has_absurd_times_ = true;
        continue;
      }
      const TraceWindows windows(trace, DeviceOps::all);
      auto window = judged_window(trace, windows);
      if (!window) continue;
      rank.window = std::move(*window);
      rank.segments = explain_steps(trace, rank.window, windows.wide());
      rank.recomputed = recomputed_alone(trace, rank.window.ops, windows.wide());
      comm_exposed_ns_ += static_cast<double>(windows.measure_wide(rank.window).exposed_comm_ns);
      work_.add(trace, rank.window, windows.wide());
      roofline_.add(trace, rank.window.ops, windows.wide(), peaks);
      kernels_.add(trace, rank.window, windows.wide());
      num_ops_ += static_cast<int64_t>(rank.window.ops.size());
      num_without_launch_ += std::ranges::count_if(
          rank.window.ops, [&](uint32_t row) { return trace.ops[row].call == kNoRow; });
      rank.window.ops = std::vector<uint32_t>();  // a replay needs its memory
      ++num_judged_;
    }
    blame_.resize(traces.size());
  }

  ImportedWall verdict() {
    ImportedWall wall;
    if (num_judged_ > 0) {
      if (num_judged_ > 1) find_waits();
      missing_ = MissingRanks(traces_, matching_);
      is_message_ = stage_messages_of(traces_, matching_);
      for (size_t i = 0; i < ranks_.size(); ++i) {
        book(i);
        wall.groups.add(traces_[i], is_message_[i], ranks_[i].segments, ranks_[i].window_ns(),
                        waits_.empty() ? nullptr : &waits_[i]);
        for (size_t label = 0; label < kNumWalls; ++label) {
          wall.shares[label] += ranks_[i].shares[label] / num_judged_;
        }
      }
      sum_up_host();
    } else {
      wall.shares[place_of(Wall::unknown)] = 1;
    }
    wall.unknown_ratio = wall.shares[place_of(Wall::unknown)];
    wall.ceilings = wall.shares;
    if (choose(wall)) {
      take_replay(wall);
      if (is_unmatched(wall)) give_up(wall);
    }
    wall.share_ratio = wall.ceilings[place_of(wall.label)];
    if (num_judged_ > 0) split_compute(wall);
    if (num_judged_ > 0) add_recompute(wall, recomputed_ratio_ / num_judged_);
    add_shares(wall);
    add_host(wall);
    add_offload(wall);
    add_apart(wall);
    add_comm(wall);
    add_missing(wall);
    add_notes(wall);
    wall.matching = std::move(matching_);
    wall.kernels = kernels_;
    return wall;
  }

 private:
  /// Which part of each collective was waiting, and for whom.
  void find_waits() {
    matching_ = match_across_ranks(traces_);
    waits_ = waits_of(traces_, matching_);
  }

  /// What is wanted of the segments last. They take half of the memory of the traces, which a
  /// replay needs.
  void sum_up_host() {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      host_ += explain_host(traces_[i], ranks_[i].segments);
      ranks_[i].segments = std::vector<CauseSegment>();
    }
  }

  /// Sets the shares of one rank's window.
  void book(size_t index) {
    JudgedRank& rank = ranks_[index];
    if (rank.window_ns() == 0) return;
    const auto add = [&](Wall label, double ns) {
      rank.shares[place_of(label)] += ns / static_cast<double>(rank.window_ns());
    };
    for (const CauseSegment& segment : rank.segments) {
      const int64_t ns = segment.end_ns - segment.start_ns;
      switch (segment.cause) {
        case IdleCause::compute:
        case IdleCause::latency: {
          const auto again_ns =
              static_cast<double>(covered_ns(rank.recomputed, {segment.start_ns, segment.end_ns}));
          add(Wall::compute, static_cast<double>(ns) - again_ns);
          add_recomputed(index, again_ns, Wall::compute, add);
          break;
        }
        case IdleCause::host:
          add(Wall::host, static_cast<double>(ns));
          blame_[index][place_of(Wall::host)] += static_cast<double>(ns);
          break;
        case IdleCause::communication:
          book_comm(index, segment, add);
          break;
        case IdleCause::host_copy:
          add(Wall::host, static_cast<double>(ns));
          copy_ns_ += static_cast<double>(ns);
          if (traces_[index].ops[segment.op].path == CopyPath::to_device) {
            input_ns_ += static_cast<double>(ns);
          }
          break;
        case IdleCause::offload:
          add(Wall::memory, static_cast<double>(ns));
          copy_ns_ += static_cast<double>(ns);
          break;
        case IdleCause::unknown:
        case IdleCause::count:
          add(Wall::unknown, static_cast<double>(ns));
          break;
      }
    }
  }

  /// It is memory's doing only where headroom shows that memory was short.
  template <typename Add>
  void add_recomputed(size_t index, double ns, Wall otherwise, const Add& add) {
    recomputed_ratio_ += ns / static_cast<double>(ranks_[index].window_ns());
    add(is_memory_short(memory_) ? Wall::memory : otherwise, ns);
  }

  template <typename Add>
  void book_comm(size_t index, const CauseSegment& segment, const Add& add) {
    const auto all_ns = static_cast<double>(segment.end_ns - segment.start_ns);
    blocking_ns_ += all_ns;
    const uint32_t comm = traces_[index].ops[segment.op].comm;
    if (comm != kNoRow && is_message_[index][comm]) {
      stages_.add(all_ns, missing_.may_delay(index, segment.op));
      return add(Wall::pipeline, all_ns);
    }
    const SplitComm split = split_comm(segment, waits_.empty() ? nullptr : &waits_[index]);
    const auto transfer_ns = static_cast<double>(split.transfer_ns);
    const bool is_again = is_recomputed(traces_[index], segment.op);
    if (is_again) add_recomputed(index, transfer_ns, Wall::communication, add);
    if (!is_again) add(Wall::communication, transfer_ns);
    if (!is_again || !is_memory_short(memory_)) {
      transfers_.add(transfer_ns, missing_.may_delay(index, segment.op));
    }
    if (traces_[index].ops[segment.op].kind == ActivityKind::copy) peer_copy_ns_ += transfer_ns;
    const Lack lack = matching_.lack_of(index, segment.op);
    if (lack != Lack::none) (lack == Lack::record ? lacking_ns_ : untold_ns_) += transfer_ns;
    if (!waits_.empty() && !waits_[index].contains(segment.op) &&
        may_be_message(traces_[index], segment.op)) {
      loose_ns_ += transfer_ns;
    }
    if (split.wait_ns > 0) book_wait(split.wait_ns, split.last, add);
  }

  /// Books a wait by what the rank that came last did during it.
  template <typename Add>
  void book_wait(int64_t wait_ns, const CollectivePart& last, const Add& add) {
    const int64_t came_ns = traces_[last.trace].ops[last.op].start_ns;
    const CauseSums sums = causes_in(ranks_[last.trace].segments, {came_ns - wait_ns, came_ns});
    const int64_t seen_ns = std::accumulate(sums.begin(), sums.end(), int64_t{0});
    waited_ns_ += static_cast<double>(wait_ns);
    const auto book = [&](Wall label, int64_t ns) {
      add(label, static_cast<double>(ns));
      blame_[last.trace][place_of(label)] += static_cast<double>(ns);
    };
    using C = IdleCause;
    book(Wall::host, sums[place_of(C::host)] + sums[place_of(C::host_copy)]);
    book(Wall::memory, sums[place_of(C::offload)]);
    book(Wall::imbalance, sums[place_of(C::compute)] + sums[place_of(C::latency)]);
    book(Wall::communication, sums[place_of(C::communication)]);
    book(Wall::unknown, sums[place_of(C::unknown)] + wait_ns - seen_ns);
  }

  /// False where there is no verdict.
  bool choose(ImportedWall& wall) const {
    if (std::optional<NoVerdict> none = work_.why_unjudged()) {
      wall.sub_cause = std::move(none->sub_cause);
      wall.summary = std::move(none->summary);
      return false;
    }
    // Labels stand in the order in which ties are decided, those that could be removed first.
    std::array<Wall, kNumWalls> order = {};
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Wall>(i);
    const auto removable = std::span(order).first(place_of(Wall::compute));
    std::ranges::stable_sort(removable, std::ranges::greater(),
                             [&](Wall label) { return wall.shares[place_of(label)]; });
    const Wall best = removable[0];
    const double share = wall.shares[place_of(best)];
    const double second = wall.shares[place_of(removable[1])];
    if (!is_sure(share, second, wall.unknown_ratio)) {
      wall.sub_cause = "unexplained";
      wall.summary = fmt::format(
          "unknown: nothing in the traces says why {} of the time no device work ran; the largest "
          "wall that shows is {} with {}",
          base::format_ratio(wall.unknown_ratio), name_of(best), base::format_ratio(share));
      return false;
    }
    if (share >= base::kLeastBindingRatio) {
      wall.label = best;
      wall.summary = fmt::format("{}: {} of the time", name_of(best), base::format_ratio(share));
    } else {
      wall.label = Wall::compute;
      wall.summary = fmt::format("compute: {} of the time; no other wall reaches {} ({} has {})",
                                 base::format_ratio(wall.shares[place_of(Wall::compute)]),
                                 base::format_ratio(base::kLeastBindingRatio), name_of(best),
                                 base::format_ratio(share));
    }
    if (wall.label == Wall::host || wall.label == Wall::imbalance) find_rank(wall);
    return true;
  }

  /// Takes label and ceilings from the replay, where there is one, instead of from the shares.
  void take_replay(ImportedWall& wall) {
    if (has_absurd_times_) return;
    // Only the replay tells why a stage was waited for, where the messages are matched.
    const double waits_for_stages =
        matching_.messages.empty() ? 0 : wall.shares[place_of(Wall::pipeline)];
    std::array<double, kNumWalls> shares = wall.shares;
    for (double& one : shares) one += waits_for_stages;
    replay_ = replay_imported(traces_, matching_, memory_, shares);
    if (replay_ && replay_->error_ratio > kMostReplayError) {
      add_evidence(wall, "replay_error_ratio", replay_->error_ratio, "ratio",
                   fmt::format("a replay of the steps differs from them by {}: it is not used",
                               base::format_ratio(replay_->error_ratio)));
      replay_.reset();
    }
    if (!replay_) return;
    const StepVerdict& verdict = replay_->verdict;
    wall.ceilings = verdict.ceilings;
    wall.sub_ceilings = verdict.sub_ceilings;
    wall.recompute_ratio = verdict.recompute_ratio;
    wall.num_steps = replay_->num_steps;
    wall.low_ratio = replay_->low_ratio;
    wall.high_ratio = replay_->high_ratio;
    wall.label = verdict.label;
    wall.rank.reset();
    double share = shares[place_of(wall.label)];
    // What a late rank's host did just before may not be what delayed it: its whole step counts.
    if (verdict.rank && wall.label == Wall::host) {
      const auto late = static_cast<size_t>(*verdict.rank);
      share = std::max(share, ranks_[late].shares[place_of(wall.label)] + waits_for_stages);
    }
    // What collectives take from the work beside them is no time of their own.
    if (verdict.sub_cause == SubCause::contention) {
      share += verdict.sub_ceilings[static_cast<size_t>(SubCause::contention)];
    }
    if (wall.label < Wall::compute && share < base::kLeastBindingRatio) wall.label = Wall::compute;
    if (wall.label != verdict.label) {
      wall.low_ratio = wall.high_ratio = wall.ceilings[place_of(wall.label)];
      wall.sub_cause.clear();
      wall.summary = text_of_unsure(verdict, wall.shares[place_of(Wall::compute)],
                                    wall.shares[place_of(verdict.label)]);
      return;
    }
    // A part with another label does not say what this one would gain with what is unexplained.
    if (base::is_recoverable(wall.label) && !replay_->are_parts) {
      wall.most_ratio = verdict.most_ratio;
      if (auto more = replay_->with_unexplained()) wall.evidence.push_back(std::move(*more));
    }
    if (verdict.is_hidden()) wall.joint_ratio = verdict.joint_ratio;
    wall.hidden_by = verdict.hidden_by;
    if (auto both = replay_->without_both()) wall.evidence.push_back(std::move(*both));
    wall.sub_cause = verdict.label == Wall::compute ? "" : row_of(verdict.sub_cause).name;
    if (verdict.rank) wall.rank = rank_of(*verdict.rank);
    wall.summary = verdict.text(wall.rank);
    if (const auto& link = verdict.link) {
      add_evidence(wall, "slow_link_ratio", link->ratio(), "ratio",
                   link->text(rank_of(link->from), rank_of(link->to)));
    }
    if (wall.label == Wall::compute) {
      wall.summary = fmt::format("compute: {} of the step; nothing else would gain {}",
                                 base::format_ratio(verdict.ceiling_ratio()),
                                 base::format_ratio(base::kLeastBindingRatio));
    }
    if (wall.label == Wall::unknown) wall.unknown_ratio = verdict.unknown_ratio();
  }

  /// Whether it is not known of communication what it waits for: the ranks that there are have
  /// collectives that do not end together; or at least half lacks a rank that was recorded
  /// meanwhile; or, with all ranks there, nothing was found on two, or half may be messages.
  [[nodiscard]] bool is_unmatched(const ImportedWall& wall) const {
    if (wall.label != Wall::communication || num_judged_ < 2) return false;
    if (!matching_.apart.empty()) return true;
    const bool are_all_there = missing_.num() == 0;
    const double doubtful_ns = lacking_ns_ + (are_all_there ? loose_ns_ : 0);
    const double sure_ns = transfers_.all_ns - untold_ns_ - doubtful_ns;
    if (doubtful_ns + untold_ns_ > 0 && doubtful_ns >= sure_ns) return true;
    const bool has_matched = !matching_.matched.empty() || !matching_.messages.empty();
    return are_all_there && !has_matched && 2 * peer_copy_ns_ <= transfers_.all_ns;
  }

  /// Of what nothing is known, most is known to be of ranks that have a trace.
  [[nodiscard]] bool lacks_parts() const { return lacking_ns_ + untold_ns_ > loose_ns_; }

  void give_up(ImportedWall& wall) const {
    wall.label = Wall::unknown;
    wall.sub_cause = kUnmatched;
    wall.rank.reset();
    wall.most_ratio = wall.joint_ratio = std::nullopt;
    wall.hidden_by.reset();
    std::erase_if(wall.evidence, [](const Evidence& one) {
      return one.name == "most_ratio" || one.name == "joint_ratio";
    });
    wall.summary = fmt::format(
        "unknown: communication takes {} of the time, and {}, or waiting for a late rank",
        base::format_ratio(wall.shares[place_of(Wall::communication)]),
        lacks_parts() ? "most was not found on all ranks that it is of: it may be transfers"
                      : "on no other rank was found what it is of: it may be transfers, stages "
                        "that wait for each other");
    for (auto* ratios : {&wall.shares, &wall.ceilings}) {
      (*ratios)[place_of(wall.label)] +=
          std::exchange((*ratios)[place_of(Wall::communication)], 0.0);
    }
    wall.unknown_ratio = wall.low_ratio = wall.high_ratio = wall.ceilings[place_of(wall.label)];
  }

  /// What of compute's time goes to which of its causes, or why that is not known.
  void split_compute(ImportedWall& wall) {
    const bool is_compute = wall.label == Wall::compute;
    const std::string why_not = why_unsplit(traces_, roofline_, peaks_);
    if (!why_not.empty()) {
      if (is_compute) {
        add_evidence(wall, "shapes_known_ratio", roofline_.known_ratio(), "ratio",
                     fmt::format("what binds compute is not told apart: {}", why_not));
      }
      return;
    }
    double whole_ns = 0;
    for (const JudgedRank& rank : ranks_) whole_ns += static_cast<double>(rank.window_ns());
    const std::pair<SubCause, double> parts[] = {{SubCause::occupancy, roofline_.over_ns},
                                                 {SubCause::bandwidth, roofline_.bandwidth_ns},
                                                 {SubCause::flops, roofline_.flops_ns()}};
    for (const auto& [cause, ns] : parts) {
      wall.sub_ceilings[static_cast<size_t>(cause)] = ns / whole_ns;
    }
    if (!is_compute) return;
    const auto& [most, most_ns] = parts[0].second >= parts[1].second ? parts[0] : parts[1];
    const bool binds = most_ns / whole_ns >= base::kLeastBindingRatio;
    wall.sub_cause = row_of(binds ? most : SubCause::flops).name;
    wall.summary += fmt::format("; mostly bound by {}", wall.sub_cause);
    add_evidence(wall, "shapes_known_ratio", roofline_.known_ratio(), "ratio",
                 fmt::format("{} of the kernels' time is of operators whose shapes are known; "
                             "against what a {} reaches, {} of it is arithmetic, {} more moves "
                             "their operands, {} is longer than either explains",
                             base::format_ratio(roofline_.known_ratio()), peaks_.device,
                             base::format_ratio(roofline_.flops_ns() / roofline_.known_ns),
                             base::format_ratio(roofline_.bandwidth_ns / roofline_.known_ns),
                             base::format_ratio(roofline_.over_ns / roofline_.known_ns)));
    // Where the replay found another label, compute is not sure enough to be told as memory's.
    const bool is_agreed = !replay_ || replay_->verdict.label == Wall::compute;
    if (binds && most == SubCause::occupancy && is_agreed) look_at_memory(wall);
  }

  /// Kernels are too small because memory leaves no room for a larger micro-batch.
  void look_at_memory(ImportedWall& wall) const {
    if (!is_memory_short(memory_)) return;
    // It is booked to memory alone: a larger micro-batch by itself would not fit.
    const double small =
        std::exchange(wall.sub_ceilings[static_cast<size_t>(SubCause::occupancy)], 0);
    wall.label = Wall::memory;
    wall.sub_cause = row_of(SubCause::capped_micro_batch).name;
    wall.sub_ceilings[static_cast<size_t>(SubCause::capped_micro_batch)] = small;
    wall.ceilings[place_of(wall.label)] = small;
    wall.share_ratio = wall.low_ratio = wall.high_ratio = small;
    const std::string used = text_of_use(memory_);
    const double ratio =
        static_cast<double>(memory_.peak_bytes) / static_cast<double>(memory_.capacity_bytes);
    wall.summary = fmt::format(
        "memory ({}): work is too small for the device, which takes {} of the time; with {} of "
        "memory in use there is no room for a larger micro-batch",
        wall.sub_cause, base::format_ratio(small), used);
    add_evidence(wall, "peak_memory_ratio", ratio, "ratio",
                 fmt::format("at its fullest the device has {} in use", used));
  }

  /// `share_ratio`: of the time, computed a second time.
  void add_recompute(ImportedWall& wall, double share_ratio) const {
    wall.is_memory_short = is_memory_short(memory_);
    if (!replay_) wall.recompute_ratio = share_ratio;
    if (std::max(share_ratio, wall.recompute_ratio) < 0.005) return;
    wall.evidence.push_back(recompute_evidence(share_ratio, wall.recompute_ratio, memory_));
  }

  /// The rank with most of the label's time, where it has clearly more than its part.
  void find_rank(ImportedWall& wall) const {
    if (num_judged_ < 2) return;
    double sum = 0;
    size_t most = 0;
    for (size_t i = 0; i < blame_.size(); ++i) {
      sum += blame_[i][place_of(wall.label)];
      if (blame_[i][place_of(wall.label)] > blame_[most][place_of(wall.label)]) most = i;
    }
    if (blame_[most][place_of(wall.label)] * num_judged_ < 1.5 * sum) return;
    wall.rank = rank_of(static_cast<int32_t>(most));
    wall.summary += fmt::format(", mostly of rank {}", *wall.rank);
  }

  [[nodiscard]] int64_t rank_of(int32_t trace) const {
    return traces_[static_cast<size_t>(trace)].facts.rank.value_or(trace);
  }

  static void add_evidence(ImportedWall& wall, std::string name, double value, std::string unit,
                           std::string text) {
    wall.evidence.push_back({std::move(name), value, std::move(unit), std::move(text)});
  }

  void add_shares(ImportedWall& wall) const {
    for (size_t i = 0; i < kNumWalls; ++i) {
      const char* name = name_of(static_cast<Wall>(i));
      if (wall.shares[i] < 0.0005) continue;
      add_evidence(wall, fmt::format("{}_ratio", name), wall.shares[i], "ratio",
                   fmt::format("{} {} of the time", name, base::format_ratio(wall.shares[i])));
    }
    if (!replay_) return;
    for (size_t i = 0; i < kNumWalls; ++i) {
      if (i == place_of(Wall::compute) || wall.ceilings[i] < 0.005) continue;
      const char* name = name_of(static_cast<Wall>(i));
      add_evidence(wall, fmt::format("{}_ceiling_ratio", name), wall.ceilings[i], "ratio",
                   fmt::format("without {} the step would be {} shorter", name,
                               base::format_ratio(wall.ceilings[i])));
    }
    if (wall.label == replay_->verdict.label) wall.evidence.push_back(replay_->agreement());
    const auto has_steps = [](const auto& trace) { return !trace.steps.empty(); };
    if (replay_->are_parts) {
      add_evidence(wall, "replayed_parts", wall.num_steps, "count",
                   "no steps are known: those that were replayed are parts of the traces");
    } else if (wall.num_steps > 1 && std::ranges::none_of(traces_, has_steps)) {
      add_evidence(wall, "recurring_steps", wall.num_steps, "count",
                   "no steps are marked: those that were replayed are the periods in which the "
                   "same kernels recur");
    }
    if (replay_->verdict.inferred_ratio > 0) {
      add_evidence(
          wall, "inferred_ratio", replay_->verdict.inferred_ratio, "ratio",
          fmt::format("{} of the time in waits between streams, and of the host for streams, is of "
                      "waits that were inferred from the order of calls or from times",
                      base::format_ratio(replay_->verdict.inferred_ratio)));
    }
  }

  void add_host(ImportedWall& wall) {
    add_host_copies(wall);
    wall.loader = loader_parts_of(host_, input_ns_);
    if (!replay_) split_accounts(wall);
    if (host_.total_ns() == 0) return;
    const auto parts = parts_of(host_);
    const HostPart& largest = *std::ranges::max_element(parts, {}, &HostPart::ns);
    if (wall.label == Wall::host && !replay_) {
      // Input that is copied while nothing else runs is the loader's, too.
      const bool is_loader =
          input_ns_ > host_.total_ns() || std::string_view(largest.name) == "stall";
      wall.sub_cause = is_loader ? row_of(SubCause::loader).name : largest.name;
      wall.summary += fmt::format(" ({})", wall.sub_cause);
    }
    for (const HostPart& part : parts) {
      const double ratio = part.ns / host_.total_ns();
      if (ratio < 0.01) continue;
      add_evidence(wall, fmt::format("host_{}_ratio", part.name), ratio, "ratio",
                   fmt::format("of the time in which the host was late, {} {}",
                               base::format_ratio(ratio), part.text));
    }
  }

  /// What the accounts alone tell of causes.
  void split_accounts(ImportedWall& wall) const {
    split_host_share(host_, input_ns_, wall.shares[place_of(Wall::host)], wall.sub_ceilings);
    // Memory has copies and, where it is short, what is computed a second time.
    const double again =
        is_memory_short(memory_) && num_judged_ > 0 ? recomputed_ratio_ / num_judged_ : 0;
    const double copies = std::max(0.0, wall.shares[place_of(Wall::memory)] - again);
    wall.sub_ceilings[static_cast<size_t>(SubCause::recompute)] = again;
    wall.sub_ceilings[static_cast<size_t>(SubCause::offload)] = copies;
    if (wall.label != Wall::memory || !wall.sub_cause.empty()) return;
    wall.sub_cause = row_of(again > copies ? SubCause::recompute : SubCause::offload).name;
    wall.summary += fmt::format(" ({})", wall.sub_cause);
  }

  /// Input is the loader's as well, which the parts of the host's own time do not show.
  void add_host_copies(ImportedWall& wall) const {
    double all_ns = 0;
    for (const JudgedRank& rank : ranks_) all_ns += static_cast<double>(rank.window_ns());
    if (copy_ns_ < 0.01 * all_ns || copy_ns_ == 0) return;
    add_evidence(wall, "host_copies_alone_ratio", copy_ns_ / all_ns, "ratio",
                 fmt::format("copies to or from the host, with nothing else on the device, {} of "
                             "the time",
                             base::format_ratio(copy_ns_ / all_ns)));
  }

  void add_apart(ImportedWall& wall) const {
    if (matching_.apart.empty()) return;
    const auto& [one, other] = matching_.apart.front();
    const size_t num_more = matching_.apart.size() - 1;
    add_evidence(
        wall, "traces_apart", static_cast<double>(matching_.apart.size()), "count",
        fmt::format("the collectives of ranks {} and {} do not end together{}: their traces "
                    "are of different runs or steps, or lack records",
                    rank_of(static_cast<int32_t>(one)), rank_of(static_cast<int32_t>(other)),
                    num_more == 0
                        ? std::string()
                        : fmt::format(", nor do those of {} more pairs of ranks", num_more)));
  }

  void add_offload(ImportedWall& wall) const {
    wall.is_offload_one_way = is_offload_one_way_;
    if (wall.sub_cause != row_of(SubCause::offload).name || !is_offload_one_way_) return;
    add_evidence(wall, "offload_one_way", 1, "count",
                 "of the tensors that go to the host none comes back: they may be offloaded, of a "
                 "checkpoint, or results");
  }

  /// Volume, exposed and blocking: only together they say what communication costs.
  void add_comm(ImportedWall& wall) const {
    if (wall.label == Wall::communication && !replay_) {
      wall.sub_cause = row_of(SubCause::transfer).name;
      wall.summary += " (transfer)";
    }
    if (wall.label == Wall::pipeline && !replay_) {
      wall.sub_cause = row_of(SubCause::bubble).name;
    }
    if (work_.comm_volume_ns() == 0) return;
    const auto add_ns = [&](const char* name, double ns, const char* text) {
      add_evidence(wall, name, ns / num_judged_, "ns", text);
    };
    add_ns("comm_volume_ns", work_.comm_volume_ns(), "communication kernels, summed, a rank");
    add_ns("comm_exposed_ns", comm_exposed_ns_,
           "of communication, with nothing else on the device");
    add_ns("comm_blocking_ns", blocking_ns_, "of that, what the next work waited for");
    if (const size_t count = matching_.messages.size(); count > 0) {
      add_evidence(wall, "matched_messages", static_cast<double>(count), "count",
                   fmt::format("{} messages between stages were found at both ends", count));
    }
    if (wall.label == Wall::communication && matching_.num_loose_exchanges > 0) {
      add_evidence(wall, "loose_exchanges", static_cast<double>(matching_.num_loose_exchanges),
                   "count",
                   fmt::format("{} kernels send and receive in one group of calls, and are not of "
                               "neighbouring stages as far as their ends tell: they count as "
                               "communication",
                               matching_.num_loose_exchanges));
    }
    if (matching_.matched.empty()) {
      if ((wall.label == Wall::communication && matching_.messages.empty()) ||
          wall.sub_cause == kUnmatched) {
        add_evidence(wall, "matched_ratio", 0, "ratio", "no collective was found on another rank");
      }
      return;
    }
    add_ns("comm_waiting_ns", waited_ns_, "of that, waiting for a rank that came late");
    const double matched =
        1 - static_cast<double>(matching_.num_unmatched) / static_cast<double>(matching_.num_ops);
    const auto worst = matching_.residual_trace;
    add_evidence(
        wall, "matched_ratio", matched, "ratio",
        fmt::format(
            "{} of the collectives were found on other ranks{}; their ends agree "
            "to {}{}",
            base::format_ratio(matched), missing_.num() > 0 ? " that have a trace" : "",
            base::format_ns(matching_.residual_ns),
            worst ? fmt::format(" on rank {}, the worst", rank_of(static_cast<int32_t>(*worst)))
                  : std::string()));
  }

  /// Nothing tells a transfer, or what a stage waits for, from waiting for a rank without a trace.
  void add_missing(ImportedWall& wall) const {
    bool is_doubtful = false;
    for (const auto& [label, time] :
         {std::pair(Wall::communication, &transfers_), std::pair(Wall::pipeline, &stages_)}) {
      if (!time->is_large() || wall.shares[place_of(label)] < base::kLeastBindingRatio) continue;
      is_doubtful = true;
      if (wall.label != label) continue;
      wall.summary = missing_.with_doubt(std::move(wall.summary), label, wall.sub_cause);
      wall.sub_cause.clear();
    }
    if (is_doubtful) wall.evidence.push_back(missing_.evidence());
  }

  void add_notes(ImportedWall& wall) const {
    const bool has_stacks = std::ranges::any_of(
        traces_, [](const ImportedTrace& trace) { return trace.facts.has_stacks; });
    if (has_stacks && wall.label == Wall::host) {
      add_evidence(wall, "has_stacks", 1, "count",
                   "Python stacks were recorded, which slows the host: its share without them is "
                   "smaller (with_stack=False)");
    }
    if (num_without_launch_ > 0) {
      const double ratio = static_cast<double>(num_without_launch_) / static_cast<double>(num_ops_);
      add_evidence(wall, "without_launch_ratio", ratio, "ratio",
                   fmt::format("{} of the device work has no launch call in the trace: record the "
                               "host's calls, too, over whole steps",
                               base::format_ratio(ratio)));
    }
    if (wall.label == Wall::unknown) {
      const bool is_unmatched = wall.sub_cause == kUnmatched;
      const std::vector<std::string> wanted =
          what_to_record(traces_, {work_.is_too_little(), is_unmatched,
                                   is_unmatched && lacks_parts() && matching_.apart.empty(),
                                   work_.are_ids_shared(), work_.lacks_lengths()});
      add_evidence(wall, "to_record", static_cast<double>(wanted.size()), "count",
                   fmt::format("for a verdict record next time: {}", fmt::join(wanted, "; ")));
    }
  }

  std::span<const ImportedTrace> traces_;
  const DevicePeaks& peaks_;
  const MemoryFacts& memory_;
  JudgedWork work_;
  ImportedRoofline roofline_;
  KernelCosts kernels_;
  std::vector<JudgedRank> ranks_;              // by trace
  std::vector<std::vector<bool>> is_message_;  ///< by trace and row of its comms: between stages
  bool is_offload_one_way_ = true;
  int num_judged_ = 0;
  bool has_absurd_times_ = false;
  /// By trace, by label: lost time that this rank causes, on whichever rank it is lost.
  std::vector<std::array<double, kNumWalls>> blame_;
  /// By trace, by op: until when it was waiting, and for whom.
  std::vector<WaitsByOp> waits_;
  CollectiveMatching matching_;
  MissingRanks missing_;
  std::optional<ImportedReplay> replay_;  ///< set where the verdict comes from it
  HostTime host_;                         ///< while it was late, of all ranks
  int64_t num_ops_ = 0;                   ///< of the judged windows
  int64_t num_without_launch_ = 0;        ///< of these
  double comm_exposed_ns_ = 0;
  double blocking_ns_ = 0;
  double waited_ns_ = 0;
  DoubtfulTime transfers_;       ///< booked as communication
  DoubtfulTime stages_;          ///< booked as pipeline
  double loose_ns_ = 0;          ///< of the transfers, unmatched ones that may be messages
  double lacking_ns_ = 0;        ///< of the transfers, those of Lack::record
  double untold_ns_ = 0;         ///< of the transfers, those of Lack::time
  double peer_copy_ns_ = 0;      ///< of the transfers, copies between devices: nobody waits in them
  double recomputed_ratio_ = 0;  ///< of the judged windows, summed: computed a second time
  double copy_ns_ = 0;           ///< copies to and from the host, alone
  double input_ns_ = 0;          ///< of these, those of input
};

}  // namespace

ImportedWall classify_imported(std::span<const ImportedTrace> traces, const DevicePeaks& peaks,
                               const MemoryFacts& memory) {
  check_one_run(traces);
  return Judge(traces, peaks, memory).verdict();
}

}  // namespace moetune::profiler
