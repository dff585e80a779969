#include "profiler/analysis/replayed_run.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "kernels/base/large_memory.h"
#include "profiler/analysis/launch_order.h"
#include "profiler/analysis/replayed_records.h"

namespace moetune::profiler {
namespace {

/// Of what ended just before, so many are looked at.
constexpr int kMostCandidates = 64;
/// A synchronisation that nothing explains and that took so long waited for something.
constexpr int64_t kLongSyncNs = 100'000;
/// One that returned longer after the last work that is seen to end in it waited for something
/// else.
constexpr int64_t kLateReturnNs = 2'000'000;

/// Finds the first record of an id. Nearly all traces number theirs in order.
class RowsById {
 public:
  explicit RowsById(const std::vector<TraceRecord>& records) : records_(records) {}

  std::optional<uint32_t> find(int64_t id) {
    if (!is_known_) see();
    if (!is_ascending_) {
      const auto found = rows_.find(id);
      return found == rows_.end() ? std::nullopt : std::optional(found->second);
    }
    const auto found = std::ranges::lower_bound(records_, id, {}, &TraceRecord::id);
    if (found == records_.end() || found->id != id) return std::nullopt;
    return static_cast<uint32_t>(found - records_.begin());
  }

 private:
  void see() {
    is_known_ = true;
    is_ascending_ = std::ranges::adjacent_find(records_, std::ranges::greater_equal(),
                                               &TraceRecord::id) == records_.end();
    if (is_ascending_) return;
    for (uint32_t row = 0; row < records_.size(); ++row) rows_.emplace(records_[row].id, row);
  }

  const std::vector<TraceRecord>& records_;
  bool is_known_ = false;
  bool is_ascending_ = true;
  std::unordered_map<int64_t, uint32_t> rows_;
};

/// The first of some sorted values that is larger, searched from a place that is likely near it.
template <typename Value>
typename std::vector<Value>::const_iterator above(const std::vector<Value>& sorted, size_t near,
                                                  const Value& value) {
  size_t low = near;  // all before it are not larger
  size_t high = near;
  for (size_t by = 1; low > 0 && value < sorted[low - 1]; by *= 2) {
    high = low - 1;
    low -= std::min(low, by);
  }
  if (low == near) {
    for (size_t by = 1; high < sorted.size() && !(value < sorted[high]); by *= 2) {
      low = high + 1;
      high += std::min(sorted.size() - high, by);
    }
  }
  const auto begin = sorted.begin();
  return std::upper_bound(begin + static_cast<std::ptrdiff_t>(low),
                          begin + static_cast<std::ptrdiff_t>(high), value);
}

}  // namespace

ReplayedRun::ReplayedRun(std::span<const StepTrace> traces, const GroupInstances& communicators,
                         const ReplayOptions& options, std::span<const DeviceWork> others)
    : traces_(traces), options_(options) {
  size_t num_records = 0;
  for (const StepTrace& trace : traces) num_records += trace.records.size();
  base::reserve_large(ops_, num_records);
  base::reserve_large(links_, num_records);
  if (!traces.empty()) start_ns_ = traces.front().start_ns;
  int64_t last_ns = start_ns_;
  int64_t end_ns = start_ns_;
  for (uint32_t i = 0; i < traces.size(); ++i) {
    last_ns = std::max(last_ns, add_rank(i));
    end_ns = std::max(end_ns, traces[i].end_ns);
  }
  tail_ns_ = std::max<int64_t>(0, end_ns - last_ns);
  match(communicators);
  match_messages();
  find_slack(others);
  find_queue_waits();
  find_order();
}

template <typename Find>
void ReplayedRun::add_further(uint32_t place, uint32_t first, const Find& find) {
  const TraceRecord& record = record_of(ops_[place]);
  const int64_t begun_ns = record.kind == RecordKind::host_sync ? record.end_ns : record.start_ns;
  for (const FurtherWait& wait : further_waits_of(traces_[ops_[place].trace], record.id)) {
    const std::optional<uint32_t> row = find(wait.producer_id);
    if (!row || first + *row >= place || first + *row == links_[place].producer) continue;
    // Of what went on a part was enough, and the trace does not say how much.
    const int64_t produced_ns = record_of(ops_[first + *row]).end_ns;
    if (produced_ns > begun_ns + options_.rounding_ns) continue;
    uint32_t& own = links_[place].further;
    if (own == kNone) own = static_cast<uint32_t>(further_.size());
    further_.push_back({place, first + *row, std::min<int64_t>(0, begun_ns - produced_ns)});
  }
}

int64_t ReplayedRun::add_rank(uint32_t trace) {
  const StepTrace& step = traces_[trace];
  RowsById by_id(step.records);
  std::map<int32_t, uint32_t> last_on_stream;
  int64_t host_ns = step.start_ns;
  int64_t last_ns = step.start_ns;
  const auto first = static_cast<uint32_t>(ops_.size());
  for (uint32_t row = 0; row < step.records.size(); ++row) {
    const TraceRecord& record = step.records[row];
    last_ns = std::max({last_ns, record.end_ns, record.launch_end_ns});
    const auto place = static_cast<uint32_t>(ops_.size());
    ReplayOp& op = ops_.emplace_back();
    Links& links = links_.emplace_back();
    if (!record.group.empty() || record.kind == RecordKind::p2p) {
      links.exchange = static_cast<uint32_t>(exchanges_.size());
      exchanges_.emplace_back();
      communication_.push_back(place);
    }
    op.trace = trace;
    op.row = row;
    op.gap_ns = std::max<int64_t>(0, record.launch_start_ns - host_ns);
    op.launch_ns =
        std::max<int64_t>(0, record.launch_end_ns - std::max(host_ns, record.launch_start_ns));
    host_ns = std::max(host_ns, record.launch_end_ns);
    if (record.producer_id != kNoRecord) {
      const std::optional<uint32_t> producer = by_id.find(record.producer_id);
      if (producer && *producer < row) links.producer = first + *producer;
    }
    if (!step.further_waits.empty()) {
      add_further(place, first, [&](int64_t id) { return by_id.find(id); });
    }
    const int64_t length_ns = record.end_ns - record.start_ns;
    op.duration_ns = length_ns;
    op.is_on_host = is_on_host(record);
    if (op.is_on_host) {
      const bool is_explained = links.producer != kNone || links.further != kNone;
      if (record.kind == RecordKind::host_sync && is_explained) {
        int64_t released_ns = record.start_ns;
        const auto see = [&](uint32_t producer) {
          released_ns = std::max(released_ns, step.records[ops_[producer].row].end_ns);
        };
        if (links.producer != kNone) see(links.producer);
        for_each_further(place, [&](const FurtherLink& link) { see(link.producer); });
        op.duration_ns = std::max<int64_t>(0, record.end_ns - released_ns);
      }
      host_ns = std::max(host_ns, record.end_ns);
      continue;
    }
    const auto [before, is_first] = last_on_stream.try_emplace(record.stream, place);
    if (!is_first) links.before = std::exchange(before->second, place);
  }
  ranks_.push_back({first, static_cast<uint32_t>(ops_.size())});
  return last_ns;
}

int64_t ReplayedRun::start_limit_of(const RankOps& rank) const {
  if (options_.least_launch_gap_ns <= 0) return 0;
  std::vector<int64_t> delays_ns;
  for (uint32_t place = rank.begin; place < rank.end; ++place) {
    const TraceRecord& record = record_of(ops_[place]);
    if (record.kind != RecordKind::kernel || record.thread < 0) continue;
    delays_ns.push_back(record.start_ns - record.launch_start_ns);
  }
  return start_limit_ns(std::move(delays_ns));
}

int64_t ReplayedRun::add_latency(uint32_t place, int64_t launched_ns, int64_t begun_ns,
                                 int64_t limit_ns) {
  Links& links = links_[place];
  const int64_t free_ns =
      links.before == kNone ? launched_ns : record_of(ops_[links.before]).end_ns;
  const auto keeps = [&](uint32_t producer) {
    return record_of(ops_[producer]).end_ns > std::max(launched_ns, free_ns);
  };
  bool is_kept = links.producer != kNone && keeps(links.producer);
  for_each_further(place,
                   [&](const FurtherLink& link) { is_kept = is_kept || keeps(link.producer); });
  // Some devices start a kernel before the one ahead of it has ended.
  if (begun_ns < free_ns) links.gap_ns = begun_ns - free_ns;
  const int64_t late_ns = begun_ns - std::max(launched_ns, free_ns);
  if (!is_kept && late_ns > 0) {
    const bool is_launch =
        late_ns > options_.least_launch_gap_ns && begun_ns - launched_ns <= limit_ns;
    if (is_launch) links.latency_ns = static_cast<int32_t>(begun_ns - launched_ns);
    if (is_launch) return begun_ns;
    if (free_ns <= launched_ns && late_ns <= options_.start_latency_ns) {
      links.latency_ns = static_cast<int32_t>(late_ns);
    }
    if (free_ns > launched_ns && late_ns <= options_.stream_gap_ns) links.gap_ns = late_ns;
  }
  return std::max(launched_ns + links.latency_ns, free_ns + links.gap_ns);
}

void ReplayedRun::find_slack(std::span<const DeviceWork> others) {
  for (const RankOps& rank : ranks_) {
    // Ends of device work, by time, to find who ended when something started that nobody explains.
    std::vector<std::pair<int64_t, uint32_t>> ends;
    base::reserve_large(ends, rank.end - rank.begin);
    for (uint32_t place = rank.begin; place < rank.end; ++place) {
      if (!ops_[place].is_on_host) ends.emplace_back(record_of(ops_[place]).end_ns, place);
    }
    std::sort(ends.begin(), ends.end());
    const int64_t limit_ns = start_limit_of(rank);
    size_t near = 0;
    for (uint32_t place = rank.begin; place < rank.end; ++place) {
      ReplayOp& op = ops_[place];
      Links& links = links_[place];
      const TraceRecord& record = record_of(op);
      const bool is_sync = record.kind == RecordKind::host_sync;
      if (is_on_host(record) && !is_sync) continue;
      const int64_t begun_ns = is_sync ? record.end_ns : record.start_ns;
      int64_t earliest_ns = is_sync ? record.start_ns : record.launch_end_ns;
      if (!is_sync) earliest_ns = add_latency(place, earliest_ns, begun_ns, limit_ns);
      int64_t awaited_ns = earliest_ns;
      for_each_further(place, [&](const FurtherLink& link) {
        const int64_t produced_ns = record_of(ops_[link.producer]).end_ns;
        awaited_ns = std::max(awaited_ns, produced_ns + link.lag_ns);
      });
      bool is_inferred = record.is_producer_inferred;
      if (links.producer == kNone && begun_ns > awaited_ns) {
        // The last end just before. A synchronisation may return some time after it.
        const int64_t first_ns =
            is_sync ? record.start_ns + 1 : begun_ns - options_.start_latency_ns;
        const int64_t latest_ns = is_sync ? begun_ns : begun_ns + options_.rounding_ns;
        auto at = above(ends, near, std::pair(latest_ns, kNone));
        near = static_cast<size_t>(at - ends.begin());
        for (int looked_at = 0; looked_at < kMostCandidates; ++looked_at) {
          if (at == ends.begin() || std::prev(at)->first < first_ns) break;
          --at;
          const TraceRecord& other = record_of(ops_[at->second]);
          if (at->second >= place || (!is_sync && other.stream == record.stream)) continue;
          links.producer = at->second;
          is_inferred = true;
          if (is_sync) {
            op.duration_ns = record.end_ns - other.end_ns;
            op.slack_ns = std::max<int64_t>(0, op.duration_ns - kLateReturnNs);
            op.duration_ns -= op.slack_ns;
          }
          break;
        }
      }
      if (links.producer != kNone) {
        const int64_t produced_ns = record_of(ops_[links.producer]).end_ns;
        add_edge(record, is_inferred, earliest_ns, produced_ns);
        if (is_sync) continue;
        links.lag_ns = std::min<int64_t>(0, record.start_ns - produced_ns);
        earliest_ns = std::max(earliest_ns, produced_ns + links.lag_ns);
      }
      earliest_ns = std::max(earliest_ns, awaited_ns);
      if (is_sync) {
        // The host stood in a call, and nothing says what for.
        op.slack_ns = op.duration_ns > kLongSyncNs ? op.duration_ns : 0;
        op.duration_ns -= op.slack_ns;
        continue;
      }
      op.slack_ns = std::max<int64_t>(0, record.start_ns - earliest_ns);
      if (!others.empty()) {
        op.shared_ns = others[op.trace].held_up_ns(record, {earliest_ns, record.start_ns});
        op.slack_ns -= op.shared_ns;
      }
      if (record.group.empty()) continue;
      const bool is_alone = record.kind == RecordKind::collective && meeting_of(links) == kNone;
      const bool is_lost = is_receive(record) && !is_numbered(record) && sender_of(links) == kNone;
      if (is_alone || is_lost) {
        op.slack_ns += record.end_ns - record.start_ns - op.duration_ns;
      }
    }
  }
}

void ReplayedRun::add_edge(const TraceRecord& record, bool is_inferred, int64_t earliest_ns,
                           int64_t produced_ns) {
  const bool is_sync = record.kind == RecordKind::host_sync;
  const int64_t begun_ns = is_sync ? record.end_ns : record.start_ns;
  const int64_t wait_ns = std::max<int64_t>(0, std::min(begun_ns, produced_ns) - earliest_ns);
  ++num_edges_;
  waited_ns_ += wait_ns;
  if (!is_inferred) return;
  ++num_inferred_;
  inferred_wait_ns_ += wait_ns;
}

void ReplayedRun::find_queue_waits() {
  for (const RankOps& rank : ranks_) {
    std::map<int32_t, std::vector<uint32_t>> launched;  // by stream
    // Of what runs at a moment, that on the operation's own stream: it never begins after what is
    // ahead of the operation. Else that which began last: the queue has moved on then.
    const auto running_at = [&](int64_t moment_ns, int32_t own_stream) {
      uint32_t last = kNone;
      for (const auto& [stream, places] : launched) {
        const auto later = std::ranges::upper_bound(
            places, moment_ns, {}, [&](uint32_t one) { return record_of(ops_[one]).start_ns; });
        if (later == places.begin()) continue;
        const TraceRecord& record = record_of(ops_[*std::prev(later)]);
        if (record.start_ns > moment_ns || record.end_ns + options_.stream_gap_ns < moment_ns) {
          continue;
        }
        if (stream == own_stream) return *std::prev(later);
        if (last == kNone || record_of(ops_[last]).start_ns < record.start_ns) {
          last = *std::prev(later);
        }
      }
      return last;
    };
    for (uint32_t place = rank.begin; place < rank.end; ++place) {
      ReplayOp& op = ops_[place];
      const TraceRecord& record = record_of(op);
      if (is_on_host(record)) continue;
      const int64_t own_launch_ns = std::min(op.launch_ns, options_.usual_launch_ns);
      const bool is_long_gap = options_.long_gap_ns > 0 && op.gap_ns > options_.long_gap_ns;
      const int64_t own_gap_ns = is_long_gap ? 0 : op.gap_ns;
      const int64_t returned_ns = record.launch_end_ns;
      const bool is_late = record.start_ns - returned_ns <= options_.start_latency_ns;
      if (!is_late && (own_launch_ns < op.launch_ns || is_long_gap)) {
        const uint32_t behind = running_at(returned_ns, record.stream);
        if (behind != kNone) {
          const TraceRecord& running = record_of(ops_[behind]);
          Links& links = links_[place];
          links.queued_behind = behind;
          op.gap_ns = own_gap_ns;
          op.launch_ns = own_launch_ns;
          op.queue_lag_ns = returned_ns - running.start_ns;
          if (!running.group.empty() && op.queue_lag_ns > options_.start_latency_ns &&
              running.end_ns <= record.start_ns) {
            links.queue_lead_ns = std::max<int64_t>(0, running.end_ns - returned_ns);
          }
        }
      }
      launched[record.stream].push_back(place);
    }
  }
}

}  // namespace moetune::profiler
