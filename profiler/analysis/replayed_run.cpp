#include "profiler/analysis/replayed_run.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "kernels/base/large_memory.h"
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

int64_t ReplayedRun::add_rank(uint32_t trace) {
  const StepTrace& step = traces_[trace];
  RankRows& rank = ranks_.emplace_back();
  base::reserve_large(rank.ops, step.records.size());
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
    rank.ops.push_back(place);
    if (!record.group.empty() || record.kind == RecordKind::p2p) communication_.push_back(place);
    op.trace = trace;
    op.row = row;
    op.gap_ns = std::max<int64_t>(0, record.launch_start_ns - host_ns);
    op.launch_ns =
        std::max<int64_t>(0, record.launch_end_ns - std::max(host_ns, record.launch_start_ns));
    host_ns = std::max(host_ns, record.launch_end_ns);
    if (record.producer_id != kNoRecord) {
      const std::optional<uint32_t> producer = by_id.find(record.producer_id);
      if (producer && *producer <= row) links.producer = first + *producer;
      waits_for_later_ = waits_for_later_ || links.producer == place;
    }
    const int64_t length_ns = record.end_ns - record.start_ns;
    op.duration_ns = length_ns;
    links.is_on_host = is_on_host(record);
    if (links.is_on_host) {
      if (record.kind == RecordKind::host_sync && links.producer != kNone) {
        const int64_t released_ns =
            std::max(record.start_ns, step.records[ops_[links.producer].row].end_ns);
        op.duration_ns = std::max<int64_t>(0, record.end_ns - released_ns);
      }
      host_ns = std::max(host_ns, record.end_ns);
      continue;
    }
    const auto [before, is_first] = last_on_stream.try_emplace(record.stream, place);
    if (!is_first) links.before = std::exchange(before->second, place);
  }
  return last_ns;
}

int64_t ReplayedRun::add_latency(Links& links, int64_t launched_ns, int64_t begun_ns) const {
  const int64_t free_ns =
      links.before == kNone ? launched_ns : record_of(ops_[links.before]).end_ns;
  const bool is_kept = links.producer != kNone &&
                       record_of(ops_[links.producer]).end_ns > std::max(launched_ns, free_ns);
  // Some devices start a kernel before the one ahead of it has ended.
  if (begun_ns < free_ns) links.gap_ns = begun_ns - free_ns;
  const int64_t late_ns = begun_ns - std::max(launched_ns, free_ns);
  if (!is_kept && late_ns > 0) {
    if (free_ns <= launched_ns && late_ns <= options_.start_latency_ns) links.latency_ns = late_ns;
    if (free_ns > launched_ns && late_ns <= options_.stream_gap_ns) links.gap_ns = late_ns;
  }
  return std::max(launched_ns + links.latency_ns, free_ns + links.gap_ns);
}

void ReplayedRun::find_slack(std::span<const DeviceWork> others) {
  for (const RankRows& rank : ranks_) {
    // Ends of device work, by time, to find who ended when something started that nobody explains.
    std::vector<std::pair<int64_t, uint32_t>> ends;
    base::reserve_large(ends, rank.ops.size());
    for (const uint32_t place : rank.ops) {
      if (!links_[place].is_on_host) ends.emplace_back(record_of(ops_[place]).end_ns, place);
    }
    std::sort(ends.begin(), ends.end());
    size_t near = 0;
    for (const uint32_t place : rank.ops) {
      ReplayOp& op = ops_[place];
      Links& links = links_[place];
      const TraceRecord& record = record_of(op);
      const bool is_sync = record.kind == RecordKind::host_sync;
      if (is_on_host(record) && !is_sync) continue;
      const int64_t begun_ns = is_sync ? record.end_ns : record.start_ns;
      int64_t earliest_ns = is_sync ? record.start_ns : record.launch_end_ns;
      if (!is_sync) earliest_ns = add_latency(links, earliest_ns, begun_ns);
      bool is_inferred = record.is_producer_inferred;
      if (links.producer == kNone && begun_ns > earliest_ns) {
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
      const bool is_alone = record.kind == RecordKind::collective && links.meeting == kNone;
      const bool is_lost = is_receive(record) && !is_numbered(record) && links.sender == kNone;
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
  for (const RankRows& rank : ranks_) {
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
    for (const uint32_t place : rank.ops) {
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

int64_t ReplayedRun::room_ns(const ReplayOp& op, const Links& links, const Change& change,
                             int64_t begun_ns, int64_t ended_ns) const {
  if (op.queue_lag_ns == 0) return begun_ns;
  if (links.queue_lead_ns > 0) return std::max(begun_ns, ended_ns - links.queue_lead_ns);
  // If that operation becomes shorter, the queue moves on sooner.
  const int64_t was_ns = ops_[links.queued_behind].duration_ns;
  const int64_t is_ns = changed(links.queued_behind, change).duration_ns;
  if (was_ns == is_ns || was_ns <= 0) return begun_ns + op.queue_lag_ns;
  return begun_ns + static_cast<int64_t>(static_cast<double>(op.queue_lag_ns) *
                                         static_cast<double>(is_ns) / static_cast<double>(was_ns));
}

namespace {

/// Bits of an entry of the order. A record of the host has the first alone.
constexpr uint32_t kLaunch = 1;
constexpr uint32_t kDevice = 2;
constexpr uint32_t kPlaceShift = 2;

}  // namespace

/// Finds an order of the parts of all operations: each has a launch and its part on the device.
/// What waits for what is stated by events: an operation has begun, or it has ended.
class ReplayedRun::Ordering {
 public:
  explicit Ordering(ReplayedRun& run)
      : run_(run),
        num_open_(2 * run.ops_.size()),
        is_launched_(run.ops_.size()),
        has_begun_(run.ops_.size()),
        has_ended_(run.ops_.size()),
        arrived_(run.meetings_.size()) {
    base::reserve_large(first_edge_, num_open_.size() + 1);
    first_edge_.resize(num_open_.size() + 1);
    for_each_edge([&](size_t event, uint32_t /*part*/) { ++first_edge_[event + 1]; });
    for (size_t i = 1; i < first_edge_.size(); ++i) first_edge_[i] += first_edge_[i - 1];
    base::reserve_large(edges_, first_edge_.back());
    edges_.resize(first_edge_.back());
    std::vector<uint32_t> next(first_edge_.begin(), first_edge_.end() - 1);
    for_each_edge([&](size_t event, uint32_t part) {
      edges_[next[event]++] = part;
      ++num_open_[part];
    });
    // A launch comes behind the one before it, and ahead of its operation.
    for (const RankRows& rank : run.ranks_) {
      for (const uint32_t place : rank.ops) {
        if (place != rank.ops.front()) ++num_open_[launch_of(place)];
        if (!is_host(place)) ++num_open_[device_of(place)];
      }
    }
  }

  std::vector<uint32_t> find() {
    base::reserve_large(order_, run_.ops_.size());
    for (const RankRows& rank : run_.ranks_) {
      if (!rank.ops.empty() && num_open_[launch_of(rank.ops.front())] == 0) {
        ready_.push_back(launch_of(rank.ops.front()));
      }
    }
    std::vector<size_t> first_open(run_.ranks_.size());
    do {
      while (!ready_.empty()) {
        const uint32_t part = ready_.back();
        ready_.pop_back();
        take(part);
      }
    } while (let_go(first_open));
    return std::move(order_);
  }

 private:
  static uint32_t launch_of(uint32_t place) { return 2 * place; }
  static uint32_t device_of(uint32_t place) { return 2 * place + 1; }
  static size_t begin_of(uint32_t place) { return 2 * size_t{place}; }
  static size_t end_of(uint32_t place) { return 2 * size_t{place} + 1; }
  [[nodiscard]] bool is_host(uint32_t place) const { return run_.links_[place].is_on_host; }

  /// Calls `visit(event, part that waits for it)`.
  template <typename Visit>
  void for_each_edge(const Visit& visit) const {
    for (uint32_t place = 0; place < run_.ops_.size(); ++place) {
      const Links& links = run_.links_[place];
      const uint32_t own = is_host(place) ? launch_of(place) : device_of(place);
      if (links.producer != kNone) visit(end_of(links.producer), own);
      if (links.before != kNone) visit(end_of(links.before), own);
      if (links.sender != kNone) visit(end_of(links.sender), own);
      if (links.queued_behind == kNone) continue;
      const bool is_end = links.queue_lead_ns > 0;
      visit(is_end ? end_of(links.queued_behind) : begin_of(links.queued_behind), launch_of(place));
    }
  }

  void release(uint32_t part) {
    if (--num_open_[part] == 0) ready_.push_back(part);
  }
  void release_all(size_t event) {
    for (size_t i = first_edge_[event]; i < first_edge_[event + 1]; ++i) release(edges_[i]);
  }

  void take(uint32_t part) {
    const uint32_t place = part / 2;
    const uint32_t entry = place << kPlaceShift;
    if (part == launch_of(place)) {
      order_.push_back(entry | kLaunch);
      is_launched_[place] = true;
      const std::vector<uint32_t>& own = run_.ranks_[run_.ops_[place].trace].ops;
      if (place != own.back()) release(launch_of(place + 1));
      if (is_host(place)) {
        end(place);
      } else {
        release(device_of(place));
      }
      return;
    }
    // Most begin as soon as they are launched.
    if (order_.back() == (entry | kLaunch)) {
      order_.back() |= kDevice;
    } else {
      order_.push_back(entry | kDevice);
    }
    has_begun_[place] = true;
    release_all(begin_of(place));
    const uint32_t meeting = run_.links_[place].meeting;
    if (meeting == kNone) return end(place);
    arrived_[meeting].push_back(place);
    if (arrived_[meeting].size() < run_.meetings_[meeting]) return;
    for (const uint32_t member : arrived_[meeting]) end(member);
  }

  void end(uint32_t place) {
    has_ended_[place] = true;
    release_all(end_of(place));
  }

  /// Lost records or wrong sequences have made ranks wait for each other: the first operation that
  /// stands still goes on by itself, with the time that it took. All before it on its own rank has
  /// ended, so it waits for another one. False where nothing is left.
  bool let_go(std::vector<size_t>& first_open) {
    if (launch_one()) return true;
    for (size_t rank = 0; rank < run_.ranks_.size(); ++rank) {
      const std::vector<uint32_t>& own = run_.ranks_[rank].ops;
      size_t& at = first_open[rank];
      while (at < own.size() && has_ended_[own[at]]) ++at;
      if (at == own.size()) continue;
      const uint32_t place = own[at];
      ReplayOp& op = run_.ops_[place];
      Links& links = run_.links_[place];
      const TraceRecord& record = run_.record_of(op);
      op.slack_ns += record.end_ns - record.start_ns - op.duration_ns;
      if (has_begun_[place]) {
        --run_.meetings_[links.meeting];
        std::erase(arrived_[links.meeting], place);
        links.meeting = kNone;
        end(place);
      } else {
        links.sender = kNone;
        release(device_of(place));
      }
      return true;
    }
    return false;
  }

  /// Of launches that are thought to follow the end of a communication: that waits for something
  /// launched later, so the first follows its start. False where there is none.
  bool launch_one() {
    first_unlaunched_.resize(run_.ranks_.size());
    for (size_t rank = 0; rank < run_.ranks_.size(); ++rank) {
      const std::vector<uint32_t>& own = run_.ranks_[rank].ops;
      size_t& at = first_unlaunched_[rank];
      while (at < own.size() && is_launched_[own[at]]) ++at;
      if (at == own.size()) continue;
      Links& links = run_.links_[own[at]];
      if (links.queue_lead_ns == 0 || !has_begun_[links.queued_behind] ||
          has_ended_[links.queued_behind]) {
        continue;
      }
      links.queue_lead_ns = 0;
      release(launch_of(own[at]));
      return true;
    }
    return false;
  }

  ReplayedRun& run_;
  std::vector<uint8_t> num_open_;         ///< by part: what it still waits for
  std::vector<uint32_t> first_edge_;      ///< by event: of edges_
  std::vector<uint32_t> edges_;           ///< parts that wait for the event
  std::vector<size_t> first_unlaunched_;  ///< by rank
  std::vector<bool> is_launched_;
  std::vector<bool> has_begun_;
  std::vector<bool> has_ended_;
  std::vector<std::vector<uint32_t>> arrived_;  ///< by meeting
  std::vector<uint32_t> ready_;
  std::vector<uint32_t> order_;
};

void ReplayedRun::find_order() {
  if (waits_for_later_) {
    order_ = Ordering(*this).find();
    return;
  }
  // Ranks that wait for none of the others: each in the order of its program.
  base::reserve_large(order_, ops_.size());
  for (uint32_t place = 0; place < ops_.size(); ++place) {
    order_.push_back((place << kPlaceShift) | kLaunch | (links_[place].is_on_host ? 0 : kDevice));
  }
}

int64_t ReplayedRun::step_ns(const std::vector<ReplayOp>& ops) const {
  ReplayRoom room;
  return step_ns([&](size_t place, ReplayOp& op) { op = ops[place]; }, room);
}

int64_t ReplayedRun::step_ns(const Change& change, ReplayRoom& room) const {
  std::vector<int64_t> host;
  for (const StepTrace& trace : traces_) host.push_back(trace.start_ns);
  std::vector<int64_t>& ends = room.ends;
  base::reserve_large(ends, ops_.size());
  ends.assign(ops_.size(), start_ns_);
  std::vector<int64_t>& begins = room.begins;  // of those launched that have not begun: launched
  base::reserve_large(begins, ops_.size());
  begins.assign(ops_.size(), 0);
  struct Meeting {
    uint32_t num_arrived = 0;
    int64_t latest_ns = 0;
    int64_t transfer_ns = 0;
  };
  std::vector<Meeting> meetings(meetings_.size());
  std::vector<std::vector<uint32_t>> arrived(meetings_.size());
  int64_t end_ns = start_ns_;
  for (const uint32_t entry : order_) {
    const uint32_t place = entry >> kPlaceShift;
    const ReplayOp op = changed(place, change);
    const Links& links = links_[place];
    if ((entry & kLaunch) != 0) {
      int64_t& host_ns = host[op.trace];
      host_ns += op.gap_ns + op.launch_ns;
      if (links.queued_behind != kNone) {
        host_ns = std::max(host_ns, room_ns(op, links, change, begins[links.queued_behind],
                                            ends[links.queued_behind]));
      }
      begins[place] = host_ns;
      if (links.is_on_host) {
        if (op.is_waiting && links.producer != kNone) {
          host_ns = std::max(host_ns, ends[links.producer]);
        }
        host_ns += op.slack_ns + op.duration_ns;
        ends[place] = host_ns;
        end_ns = std::max(end_ns, host_ns);
      }
    }
    if ((entry & kDevice) == 0) continue;
    int64_t ready_ns = begins[place] + links.latency_ns;
    if (links.before != kNone) ready_ns = std::max(ready_ns, ends[links.before] + links.gap_ns);
    if (links.producer != kNone) {
      ready_ns = std::max(ready_ns, ends[links.producer] + links.lag_ns);
    }
    ready_ns += op.slack_ns + op.shared_ns;
    begins[place] = ready_ns;
    if (links.meeting != kNone) {
      Meeting& meeting = meetings[links.meeting];
      meeting.latest_ns = std::max(meeting.latest_ns, ready_ns);
      meeting.transfer_ns = std::max(meeting.transfer_ns, op.duration_ns);
      arrived[links.meeting].push_back(place);
      if (++meeting.num_arrived < meetings_[links.meeting]) continue;
      for (const uint32_t member : arrived[links.meeting]) {
        const int64_t met_ns =
            changed(member, change).is_waiting ? meeting.latest_ns : begins[member];
        ends[member] = met_ns + meeting.transfer_ns;
        end_ns = std::max(end_ns, ends[member]);
      }
    } else if (links.sender != kNone) {
      ends[place] = op.is_waiting ? std::max(ready_ns + links.receive_ns, ends[links.sender])
                                  : ready_ns + op.duration_ns;
    } else {
      ends[place] = ready_ns + (op.is_waiting ? op.slot_wait_ns : 0) + op.duration_ns;
    }
    end_ns = std::max(end_ns, ends[place]);
  }
  for (const int64_t host_ns : host) end_ns = std::max(end_ns, host_ns);
  return end_ns - start_ns_ + tail_ns_;
}

}  // namespace moetune::profiler
