#include "profiler/analysis/imported_wall.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "profiler/analysis/imported_recompute.h"
#include "profiler/analysis/imported_replay.h"
#include "profiler/analysis/judged_time.h"
#include "profiler/analysis/one_run.h"
#include "profiler/analysis/recording_advice.h"
#include "profiler/analysis/trace_causes.h"

namespace moetune::profiler {
namespace {

/// A replay whose length differs from the recorded step by more is not used.
constexpr double kMostReplayError = 0.05;

/// Of the time; less is told as 0.0 %.
constexpr double kLeastShown = 0.0005;

/// The cause of no verdict where communication was found on no other rank.
constexpr const char* kUnmatched = "unmatched";

/// Concludes from the time of all ranks, and from replays of their steps.
class Judge {
 public:
  Judge(std::span<const ImportedTrace> traces, const DevicePeaks& peaks, const MemoryFacts& memory)
      : traces_(traces), peaks_(peaks), memory_(memory), time_(traces, peaks, memory) {}

  ImportedWall verdict() {
    ImportedWall wall;
    wall.shares = time_.shares;
    if (time_.num_ranks > 0) wall.window_ns = time_.windows_ns / time_.num_ranks;
    wall.unknown_ratio = wall.shares[place_of(Wall::unknown)];
    wall.ceilings = wall.shares;
    if (choose(wall)) {
      take_replay(wall);
      if (is_unmatched(wall)) give_up(wall);
    }
    wall.share_ratio = wall.ceilings[place_of(wall.label)];
    if (time_.num_ranks > 0) split_compute(wall);
    if (time_.num_ranks > 0) add_recompute(wall, time_.recomputed_ratio);
    add_shares(wall);
    add_host(wall);
    add_offload(wall);
    add_apart(wall);
    add_comm(wall);
    add_missing(wall);
    add_notes(wall);
    wall.matching = std::move(time_.matching);
    wall.kernels = std::move(time_.kernels);
    wall.groups = std::move(time_.groups);
    return wall;
  }

 private:
  /// False where there is no verdict.
  bool choose(ImportedWall& wall) const {
    if (std::optional<NoVerdict> none = time_.work.why_unjudged()) {
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
          "unknown: nothing in the traces says why {} of the time no device work ran{}",
          base::format_ratio(wall.unknown_ratio),
          share < kLeastShown ? "; no wall shows"
                              : fmt::format("; the largest wall that shows is {} with {}",
                                            name_of(best), base::format_ratio(share)));
      return false;
    }
    if (share >= base::kLeastBindingRatio) {
      wall.label = best;
      wall.summary = fmt::format("{}: {} of the time", name_of(best), base::format_ratio(share));
    } else {
      wall.label = Wall::compute;
      wall.summary = fmt::format("compute: {} of the time; no other wall reaches {}{}",
                                 base::format_ratio(wall.shares[place_of(Wall::compute)]),
                                 base::format_ratio(base::kLeastBindingRatio),
                                 share < kLeastShown ? ""
                                                     : fmt::format(" ({} has {})", name_of(best),
                                                                   base::format_ratio(share)));
    }
    if (wall.label == Wall::host || wall.label == Wall::imbalance) find_rank(wall);
    return true;
  }

  /// Takes label and ceilings from the replay, where there is one, instead of from the shares.
  void take_replay(ImportedWall& wall) {
    if (time_.has_absurd_times) return;
    // Only the replay tells why a stage was waited for, where the messages are matched.
    const double waits_for_stages =
        time_.matching.messages.empty() ? 0 : wall.shares[place_of(Wall::pipeline)];
    std::array<double, kNumWalls> shares = wall.shares;
    for (double& one : shares) one += waits_for_stages;
    replay_ = replay_imported(traces_, time_.matching, memory_, shares);
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
    // What a late rank's host did just before may not be what delayed it: its whole steps count.
    if (wall.label == Wall::host) {
      share = std::max(share, time_.latest_host_share + waits_for_stages);
      if (verdict.rank) {
        const auto late = static_cast<size_t>(*verdict.rank);
        share = std::max(share, time_.rank_shares[late][place_of(wall.label)] + waits_for_stages);
      }
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
    if (base::is_recoverable(wall.label)) {
      if (!replay_->are_parts) wall.most_ratio = verdict.most_ratio;
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
    if (wall.label != Wall::communication || time_.num_ranks < 2) return false;
    if (!time_.matching.apart.empty()) return true;
    const bool are_all_there = time_.missing.num() == 0;
    const double doubtful_ns = time_.lacking_ns + (are_all_there ? time_.loose_ns : 0);
    const double sure_ns = time_.transfers.all_ns - time_.untold_ns - doubtful_ns;
    if (doubtful_ns + time_.untold_ns > 0 && doubtful_ns >= sure_ns) return true;
    const bool has_matched = !time_.matching.matched.empty() || !time_.matching.messages.empty();
    return are_all_there && !has_matched && 2 * time_.peer_copy_ns <= time_.transfers.all_ns;
  }

  /// Of what nothing is known, most is known to be of ranks that have a trace.
  [[nodiscard]] bool lacks_parts() const {
    return time_.lacking_ns + time_.untold_ns > time_.loose_ns;
  }

  void give_up(ImportedWall& wall) const {
    wall.label = Wall::unknown;
    wall.sub_cause = kUnmatched;
    wall.rank.reset();
    wall.most_ratio = wall.joint_ratio = std::nullopt;
    wall.hidden_by.reset();
    std::erase_if(wall.evidence, [](const Evidence& one) {
      return one.name == "most_ratio" || one.name == "joint_ratio" || one.name == "lost_records";
    });
    wall.summary = fmt::format(
        "unknown: communication takes {} of the time, and {}, or waiting for a late rank",
        base::format_ratio(wall.shares[place_of(Wall::communication)]),
        lacks_parts() ? "most was not found on all ranks that it is of: it may be transfers"
                      : "on no other rank was found what it is of: it may be transfers, stages "
                        "that wait for each other");
    for (auto* ratios : {&wall.shares, &wall.ceilings}) {
      double& unknown = (*ratios)[place_of(wall.label)];
      // A ceiling that lost records have raised has what is unexplained already.
      unknown =
          std::min(1.0, unknown + std::exchange((*ratios)[place_of(Wall::communication)], 0.0));
    }
    wall.unknown_ratio = wall.low_ratio = wall.high_ratio = wall.ceilings[place_of(wall.label)];
  }

  /// What of compute's time goes to which of its causes, or why that is not known.
  void split_compute(ImportedWall& wall) {
    const bool is_compute = wall.label == Wall::compute;
    const std::string why_not = why_unsplit(traces_, time_.roofline, peaks_);
    if (!why_not.empty()) {
      if (is_compute) {
        add_evidence(wall, "shapes_known_ratio", time_.roofline.known_ratio(), "ratio",
                     fmt::format("what binds compute is not told apart: {}", why_not));
      }
      return;
    }
    const std::pair<SubCause, double> parts[] = {{SubCause::occupancy, time_.roofline.over_ns},
                                                 {SubCause::bandwidth, time_.roofline.bandwidth_ns},
                                                 {SubCause::flops, time_.roofline.flops_ns()}};
    for (const auto& [cause, ns] : parts) {
      wall.sub_ceilings[static_cast<size_t>(cause)] = ns / time_.windows_ns;
    }
    if (!is_compute) return;
    const auto& [most, most_ns] = parts[0].second >= parts[1].second ? parts[0] : parts[1];
    const bool binds = most_ns / time_.windows_ns >= base::kLeastBindingRatio;
    wall.sub_cause = row_of(binds ? most : SubCause::flops).name;
    wall.summary += fmt::format("; mostly bound by {}", wall.sub_cause);
    add_evidence(
        wall, "shapes_known_ratio", time_.roofline.known_ratio(), "ratio",
        fmt::format("{} of the kernels' time is of operators whose shapes are known; "
                    "against what a {} reaches, {} of it is arithmetic, {} more moves "
                    "their operands, {} is longer than either explains",
                    base::format_ratio(time_.roofline.known_ratio()), peaks_.device,
                    base::format_ratio(time_.roofline.flops_ns() / time_.roofline.known_ns),
                    base::format_ratio(time_.roofline.bandwidth_ns / time_.roofline.known_ns),
                    base::format_ratio(time_.roofline.over_ns / time_.roofline.known_ns)));
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
    if (time_.num_ranks < 2) return;
    double sum = 0;
    size_t most = 0;
    for (size_t i = 0; i < time_.blame.size(); ++i) {
      sum += time_.blame[i][place_of(wall.label)];
      if (time_.blame[i][place_of(wall.label)] > time_.blame[most][place_of(wall.label)]) most = i;
    }
    if (time_.blame[most][place_of(wall.label)] * time_.num_ranks < 1.5 * sum) return;
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
      if (wall.shares[i] < kLeastShown) continue;
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
                   replay_->num_parts == 1
                       ? "no steps are known: the time for which all ranks were recorded was "
                         "replayed"
                       : "no steps are known: those that were replayed are parts of the traces");
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
    wall.loader = loader_parts_of(time_.host, time_.input_ns);
    if (!replay_) split_accounts(wall);
    if (time_.host.total_ns() == 0) return;
    const auto parts = parts_of(time_.host);
    const HostPart& largest = *std::ranges::max_element(parts, {}, &HostPart::ns);
    if (wall.label == Wall::host && !replay_) {
      // Input that is copied while nothing else runs is the loader's, too.
      const bool is_loader =
          time_.input_ns > time_.host.total_ns() || std::string_view(largest.name) == "stall";
      wall.sub_cause = is_loader ? row_of(SubCause::loader).name : largest.name;
      wall.summary += fmt::format(" ({})", wall.sub_cause);
    }
    for (const HostPart& part : parts) {
      const double ratio = part.ns / time_.host.total_ns();
      if (ratio < 0.01) continue;
      add_evidence(wall, fmt::format("host_{}_ratio", part.name), ratio, "ratio",
                   fmt::format("of the time in which the host was late, {} {}",
                               base::format_ratio(ratio), part.text));
    }
    add_stalls(wall);
  }

  /// A stall counts as loading, which is the usual cause, though nothing shows that it was.
  void add_stalls(ImportedWall& wall) const {
    const bool is_loader =
        wall.label == Wall::host && wall.sub_cause == row_of(SubCause::loader).name;
    if (!is_loader || time_.host.stall_ns <= 0 || 2 * wall.loader.stall_ratio < 1) return;
    add_evidence(
        wall, "unrecorded_stalls_ratio", wall.loader.stall_ratio, "ratio",
        fmt::format("{} of the loader's time is of stalls whose cause is not recorded: "
                    "loading, garbage collection, a checkpoint, evaluation or another "
                    "program may be it; record {}",
                    base::format_ratio(wall.loader.stall_ratio), how_to_see_stalls(traces_)));
  }

  /// What the accounts alone tell of causes.
  void split_accounts(ImportedWall& wall) const {
    split_host_share(time_.host, time_.input_ns, wall.shares[place_of(Wall::host)],
                     wall.sub_ceilings);
    // Memory has copies and, where it is short, what is computed a second time.
    const double again = is_memory_short(memory_) ? time_.recomputed_ratio : 0;
    const double copies = std::max(0.0, wall.shares[place_of(Wall::memory)] - again);
    wall.sub_ceilings[static_cast<size_t>(SubCause::recompute)] = again;
    wall.sub_ceilings[static_cast<size_t>(SubCause::offload)] = copies;
    if (wall.label != Wall::memory || !wall.sub_cause.empty()) return;
    wall.sub_cause = row_of(again > copies ? SubCause::recompute : SubCause::offload).name;
    wall.summary += fmt::format(" ({})", wall.sub_cause);
  }

  /// Input is the loader's as well, which the parts of the host's own time do not show.
  void add_host_copies(ImportedWall& wall) const {
    const double all_ns = time_.windows_ns;
    if (time_.copy_ns < 0.01 * all_ns || time_.copy_ns == 0) return;
    add_evidence(wall, "host_copies_alone_ratio", time_.copy_ns / all_ns, "ratio",
                 fmt::format("copies to or from the host, with nothing else on the device, {} of "
                             "the time",
                             base::format_ratio(time_.copy_ns / all_ns)));
  }

  void add_apart(ImportedWall& wall) const {
    if (time_.matching.apart.empty()) return;
    const auto& [one, other] = time_.matching.apart.front();
    const size_t num_more = time_.matching.apart.size() - 1;
    add_evidence(
        wall, "traces_apart", static_cast<double>(time_.matching.apart.size()), "count",
        fmt::format("the collectives of ranks {} and {} do not end together{}: their traces "
                    "are of different runs or steps, or lack records",
                    rank_of(static_cast<int32_t>(one)), rank_of(static_cast<int32_t>(other)),
                    num_more == 0
                        ? std::string()
                        : fmt::format(", nor do those of {} more pairs of ranks", num_more)));
  }

  void add_offload(ImportedWall& wall) const {
    wall.is_offload_one_way = time_.is_offload_one_way;
    if (wall.sub_cause != row_of(SubCause::offload).name || !time_.is_offload_one_way) return;
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
    if (time_.work.comm_volume_ns() == 0) return;
    const auto add_ns = [&](const char* name, double ns, const char* text) {
      add_evidence(wall, name, ns / time_.num_ranks, "ns", text);
    };
    add_ns("comm_volume_ns", time_.work.comm_volume_ns(), "communication kernels, summed, a rank");
    add_ns("comm_exposed_ns", time_.comm_exposed_ns,
           "of communication, with nothing else on the device");
    add_ns("comm_blocking_ns", time_.comm_blocking_ns, "of that, what the next work waited for");
    if (const size_t count = time_.matching.messages.size(); count > 0) {
      add_evidence(wall, "matched_messages", static_cast<double>(count), "count",
                   fmt::format("{} messages between stages were found at both ends", count));
    }
    if (wall.label == Wall::communication && time_.matching.num_loose_exchanges > 0) {
      add_evidence(wall, "loose_exchanges", static_cast<double>(time_.matching.num_loose_exchanges),
                   "count",
                   fmt::format("{} kernels send and receive in one group of calls, and are not of "
                               "neighbouring stages as far as their ends tell: they count as "
                               "communication",
                               time_.matching.num_loose_exchanges));
    }
    if (time_.matching.matched.empty()) {
      if ((wall.label == Wall::communication && time_.matching.messages.empty()) ||
          wall.sub_cause == kUnmatched) {
        add_evidence(wall, "matched_ratio", 0, "ratio", "no collective was found on another rank");
      }
      return;
    }
    add_ns("comm_waiting_ns", time_.comm_waited_ns, "of that, waiting for a rank that came late");
    const double matched = 1 - static_cast<double>(time_.matching.num_unmatched) /
                                   static_cast<double>(time_.matching.num_ops);
    const auto worst = time_.matching.residual_trace;
    add_evidence(
        wall, "matched_ratio", matched, "ratio",
        fmt::format(
            "{} of the collectives were found on other ranks{}; their ends agree "
            "to {}{}",
            base::format_ratio(matched), time_.missing.num() > 0 ? " that have a trace" : "",
            base::format_ns(time_.matching.residual_ns),
            worst ? fmt::format(" on rank {}, the worst", rank_of(static_cast<int32_t>(*worst)))
                  : std::string()));
  }

  /// Nothing tells a transfer, or what a stage waits for, from waiting for a rank without a trace.
  void add_missing(ImportedWall& wall) const {
    bool is_doubtful = false;
    std::string wanted;
    for (const auto& [label, time] : {std::pair(Wall::communication, &time_.transfers),
                                      std::pair(Wall::pipeline, &time_.stages)}) {
      if (!time->is_large() || wall.shares[place_of(label)] < base::kLeastBindingRatio) continue;
      is_doubtful = true;
      if (wall.label != label) continue;
      wall.waiting_instead = time_.missing.waiting_text();
      if (label == Wall::communication) {
        std::optional<Evidence> uneven = time_.uneven.evidence(traces_);
        wall.is_waiting_likely = uneven.has_value();
        if (uneven) wall.evidence.push_back(std::move(*uneven));
        wanted = time_.uneven.ranks_to_record(traces_);
      }
      wall.summary = time_.missing.with_doubt(std::move(wall.summary), label, wall.sub_cause,
                                              wall.is_waiting_likely);
      wall.sub_cause.clear();
    }
    if (is_doubtful) wall.evidence.push_back(time_.missing.evidence(wanted));
  }

  void add_notes(ImportedWall& wall) const {
    const bool has_stacks = std::ranges::any_of(
        traces_, [](const ImportedTrace& trace) { return trace.facts.has_stacks; });
    if (has_stacks && wall.label == Wall::host) {
      add_evidence(wall, "has_stacks", 1, "count",
                   "Python stacks were recorded, which slows the host: its share without them is "
                   "smaller (with_stack=False)");
    }
    if (time_.num_without_launch > 0) {
      const double ratio =
          static_cast<double>(time_.num_without_launch) / static_cast<double>(time_.num_ops);
      add_evidence(wall, "without_launch_ratio", ratio, "ratio",
                   fmt::format("{} of the device work has no launch call in the trace: record the "
                               "host's calls, too, over whole steps",
                               base::format_ratio(ratio)));
    }
    if (wall.label == Wall::unknown) {
      VerdictLack lack;
      lack.is_too_little = time_.work.is_too_little();
      lack.is_unmatched = wall.sub_cause == kUnmatched;
      lack.lacks_parts = lack.is_unmatched && lacks_parts() && time_.matching.apart.empty();
      lack.are_ids_shared = time_.work.are_ids_shared();
      lack.lacks_lengths = time_.work.lacks_lengths();
      lack.lacks_records = replay_ && replay_->verdict.num_lost > 0;
      const std::vector<std::string> wanted = what_to_record(traces_, lack);
      add_evidence(wall, "to_record", static_cast<double>(wanted.size()), "count",
                   fmt::format("for a verdict record next time: {}", fmt::join(wanted, "; ")));
    }
  }

  std::span<const ImportedTrace> traces_;
  const DevicePeaks& peaks_;
  const MemoryFacts& memory_;
  JudgedTime time_;
  std::optional<ImportedReplay> replay_;  ///< set where the verdict comes from it
};

}  // namespace

ImportedWall classify_imported(std::span<const ImportedTrace> traces, const DevicePeaks& peaks,
                               const MemoryFacts& memory) {
  check_one_run(traces);
  return Judge(traces, peaks, memory).verdict();
}

}  // namespace moetune::profiler
