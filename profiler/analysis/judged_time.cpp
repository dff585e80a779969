#include "profiler/analysis/judged_time.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "profiler/analysis/imported_recompute.h"
#include "profiler/analysis/imported_steps.h"
#include "profiler/analysis/trace_windows.h"

namespace moetune::profiler {
namespace {

/// One rank's time.
struct JudgedRank {
  TraceWindow window;  ///< its ops are not kept
  CauseSegments segments;
  IntervalSet recomputed;  ///< when it did, and nothing else computed
  [[nodiscard]] int64_t window_ns() const { return window.time.length_ns(); }
};

/// Books the time of the judged windows.
class Booking {
 public:
  Booking(JudgedTime& time, std::span<const ImportedTrace> traces, const DevicePeaks& peaks,
          const MemoryFacts& memory)
      : time_(time), traces_(traces), memory_(memory) {
    std::vector<bool> is_judged;
    for (const ImportedTrace& trace : traces) {
      const TraceExtent extent = extent_of(trace);
      const bool is_absurd = extent.last_ns - extent.first_ns > kMaxTraceNs;
      time_.has_absurd_times = time_.has_absurd_times || is_absurd;
      is_judged.push_back(!is_absurd && !trace.ops.empty());
      time_.num_ranks += is_judged.back() ? 1 : 0;
    }
    // First, as it and the segments of all ranks take much memory.
    if (time_.num_ranks > 1) time_.matching = match_across_ranks(traces_);
    for (size_t i = 0; i < traces.size(); ++i) {
      const ImportedTrace& trace = traces[i];
      JudgedRank& rank = ranks_.emplace_back();
      time_.is_offload_one_way = time_.is_offload_one_way && !offloading_of(trace).is_both_ways;
      if (!is_judged[i]) continue;
      const TraceWindows windows(trace, DeviceOps::all);
      rank.window = judged_window(trace, windows).value();
      rank.segments = explain_steps(trace, rank.window, windows.wide());
      rank.recomputed = recomputed_alone(trace, rank.window.ops, windows.wide());
      time_.comm_exposed_ns +=
          static_cast<double>(windows.measure_wide(rank.window).exposed_comm_ns);
      time_.work.add(trace, rank.window, windows.wide());
      time_.roofline.add(trace, rank.window.ops, windows.wide(), peaks);
      time_.kernels.add(trace, rank.window, windows.wide());
      time_.num_ops += static_cast<int64_t>(rank.window.ops.size());
      time_.num_without_launch += std::ranges::count_if(
          rank.window.ops, [&](uint32_t row) { return trace.ops[row].call == kNoRow; });
      rank.window.ops = std::vector<uint32_t>();  // a replay needs its memory
      time_.windows_ns += static_cast<double>(rank.window_ns());
    }
    time_.rank_shares.resize(traces.size());
    time_.blame.resize(traces.size());
  }

  void book_all() {
    if (time_.num_ranks == 0) {
      time_.shares[place_of(Wall::unknown)] = 1;
      return;
    }
    // Which part of each collective was waiting, and for whom.
    if (time_.num_ranks > 1) waits_ = waits_of(traces_, time_.matching);
    time_.missing = MissingRanks(traces_, time_.matching);
    is_message_ = stage_messages_of(traces_, time_.matching);
    for (size_t i = 0; i < ranks_.size(); ++i) {
      book(i);
      time_.groups.add(traces_[i], is_message_[i], ranks_[i].segments, ranks_[i].window_ns(),
                       waits_.empty() ? nullptr : &waits_[i]);
      for (size_t label = 0; label < kNumWalls; ++label) {
        time_.shares[label] += time_.rank_shares[i][label] / time_.num_ranks;
      }
    }
    time_.recomputed_ratio /= time_.num_ranks;
    find_latest_hosts();
    sum_up_host();
  }

 private:
  /// Stalls may be of another rank in each step.
  void find_latest_hosts() {
    std::map<int64_t, double> shares;  // by step
    for (size_t i = 0; i < ranks_.size(); ++i) {
      for (const ImportedStep& step : traces_[i].steps) {
        const Interval time = {step.start_ns, step.end_ns};
        if (time.length_ns() <= 0) continue;
        const CauseSums sums = causes_in(ranks_[i].segments, time);
        double& share = shares[step.number];
        share = std::max(share, static_cast<double>(sums[place_of(IdleCause::host)]) /
                                    static_cast<double>(time.length_ns()));
      }
    }
    for (const auto& [step, share] : shares) {
      time_.latest_host_share += share / static_cast<double>(shares.size());
    }
  }

  /// What is wanted of the segments last. They take half of the memory of the traces, which a
  /// replay needs.
  void sum_up_host() {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      time_.host += explain_host(traces_[i], ranks_[i].segments);
      ranks_[i].segments = CauseSegments();
    }
  }

  /// The segments of one rank's window.
  void book(size_t index) {
    JudgedRank& rank = ranks_[index];
    if (rank.window_ns() == 0) return;
    const auto add = [&](Wall label, double ns) {
      time_.rank_shares[index][place_of(label)] += ns / static_cast<double>(rank.window_ns());
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
          time_.blame[index][place_of(Wall::host)] += static_cast<double>(ns);
          break;
        case IdleCause::communication:
          book_comm(index, segment, add);
          break;
        case IdleCause::host_copy:
          add(Wall::host, static_cast<double>(ns));
          time_.copy_ns += static_cast<double>(ns);
          if (traces_[index].ops[segment.op].path == CopyPath::to_device) {
            time_.input_ns += static_cast<double>(ns);
          }
          break;
        case IdleCause::offload:
          add(Wall::memory, static_cast<double>(ns));
          time_.copy_ns += static_cast<double>(ns);
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
    time_.recomputed_ratio += ns / static_cast<double>(ranks_[index].window_ns());
    add(is_memory_short(memory_) ? Wall::memory : otherwise, ns);
  }

  template <typename Add>
  void book_comm(size_t index, const CauseSegment& segment, const Add& add) {
    const auto all_ns = static_cast<double>(segment.end_ns - segment.start_ns);
    time_.comm_blocking_ns += all_ns;
    const uint32_t comm = traces_[index].ops[segment.op].comm;
    if (comm != kNoRow && is_message_[index][comm]) {
      time_.stages.add(all_ns, time_.missing.may_delay(index, segment.op));
      return add(Wall::pipeline, all_ns);
    }
    const SplitComm split = split_comm(segment, waits_.empty() ? nullptr : &waits_[index]);
    const auto transfer_ns = static_cast<double>(split.transfer_ns);
    const bool is_again = is_recomputed(traces_[index], segment.op);
    if (is_again) add_recomputed(index, transfer_ns, Wall::communication, add);
    if (!is_again) add(Wall::communication, transfer_ns);
    if (!is_again || !is_memory_short(memory_)) {
      const bool is_doubtful = time_.missing.may_delay(index, segment.op);
      time_.transfers.add(transfer_ns, is_doubtful);
      if (is_doubtful) time_.uneven.add(index, segment.op, transfer_ns);
    }
    if (traces_[index].ops[segment.op].kind == ActivityKind::copy)
      time_.peer_copy_ns += transfer_ns;
    const Lack lack = time_.matching.lack_of(index, segment.op);
    if (lack != Lack::none)
      (lack == Lack::record ? time_.lacking_ns : time_.untold_ns) += transfer_ns;
    if (!waits_.empty() && waits_[index].find(segment.op) == nullptr &&
        may_be_message(traces_[index], segment.op)) {
      time_.loose_ns += transfer_ns;
    }
    if (split.wait_ns > 0) book_wait(split.wait_ns, split.last, add);
  }

  /// Books a wait by what the rank that came last did during it.
  template <typename Add>
  void book_wait(int64_t wait_ns, const CollectivePart& last, const Add& add) {
    const int64_t came_ns = traces_[last.trace].ops[last.op].start_ns;
    const CauseSums sums = causes_in(ranks_[last.trace].segments, {came_ns - wait_ns, came_ns});
    const int64_t seen_ns = std::accumulate(sums.begin(), sums.end(), int64_t{0});
    time_.comm_waited_ns += static_cast<double>(wait_ns);
    const auto book = [&](Wall label, int64_t ns) {
      add(label, static_cast<double>(ns));
      time_.blame[last.trace][place_of(label)] += static_cast<double>(ns);
    };
    using C = IdleCause;
    book(Wall::host, sums[place_of(C::host)] + sums[place_of(C::host_copy)]);
    book(Wall::memory, sums[place_of(C::offload)]);
    book(Wall::imbalance, sums[place_of(C::compute)] + sums[place_of(C::latency)]);
    book(Wall::communication, sums[place_of(C::communication)]);
    book(Wall::unknown, sums[place_of(C::unknown)] + wait_ns - seen_ns);
  }

  JudgedTime& time_;
  std::span<const ImportedTrace> traces_;
  const MemoryFacts& memory_;
  std::vector<JudgedRank> ranks_;              ///< by trace
  std::vector<std::vector<bool>> is_message_;  ///< by trace and row of its comms: between stages
  /// By trace, by op: until when it was waiting, and for whom.
  std::vector<WaitsByOp> waits_;
};

}  // namespace

JudgedTime::JudgedTime(std::span<const ImportedTrace> traces, const DevicePeaks& peaks,
                       const MemoryFacts& memory) {
  Booking(*this, traces, peaks, memory).book_all();
}

}  // namespace moetune::profiler
