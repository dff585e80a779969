// In which order the operations of a replayed step are looked at, and when each of them begins and
// ends.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/base/large_memory.h"
#include "profiler/analysis/replayed_run.h"

namespace moetune::profiler {
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
    base::reserve_large(first_edge_, num_open_.size() + 2);
    first_edge_.resize(num_open_.size() + 2);
    for_each_edge([&](size_t event, uint32_t /*part*/) { ++first_edge_[event + 2]; });
    for (size_t i = 1; i < first_edge_.size(); ++i) first_edge_[i] += first_edge_[i - 1];
    base::reserve_large(edges_, first_edge_.back());
    edges_.resize(first_edge_.back());
    // The entry behind an event's own is where its next part goes, and at last where it ends.
    for_each_edge([&](size_t event, uint32_t part) {
      edges_[first_edge_[event + 1]++] = part;
      ++num_open_[part];
    });
    // A launch comes behind the one before it, and ahead of its operation.
    for (const RankOps& rank : run.ranks_) {
      for (uint32_t place = rank.begin; place < rank.end; ++place) {
        if (place != rank.begin) ++num_open_[launch_of(place)];
        if (!is_host(place)) ++num_open_[device_of(place)];
      }
    }
  }

  std::vector<uint32_t> find() {
    base::reserve_large(order_, run_.ops_.size());
    for (const RankOps& rank : run_.ranks_) {
      if (!rank.empty() && num_open_[launch_of(rank.begin)] == 0) {
        ready_.push_back(launch_of(rank.begin));
      }
    }
    std::vector<uint32_t> first_open = first_ops();
    first_unlaunched_ = first_ops();
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
  [[nodiscard]] bool is_host(uint32_t place) const { return run_.ops_[place].is_on_host; }
  /// By rank.
  [[nodiscard]] std::vector<uint32_t> first_ops() const {
    std::vector<uint32_t> first;
    for (const RankOps& rank : run_.ranks_) first.push_back(rank.begin);
    return first;
  }

  /// Calls `visit(event, part that waits for it)`.
  template <typename Visit>
  void for_each_edge(const Visit& visit) const {
    for (uint32_t place = 0; place < run_.ops_.size(); ++place) {
      const Links& links = run_.links_[place];
      const uint32_t own = is_host(place) ? launch_of(place) : device_of(place);
      if (links.producer != kNone) visit(end_of(links.producer), own);
      run_.for_each_further(place,
                            [&](const FurtherLink& link) { visit(end_of(link.producer), own); });
      if (links.before != kNone) visit(end_of(links.before), own);
      const uint32_t sender = run_.sender_of(links);
      if (sender != kNone) visit(end_of(sender), own);
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
      if (place + 1 != run_.ranks_[run_.ops_[place].trace].end) release(launch_of(place + 1));
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
    const uint32_t meeting = run_.meeting_of(run_.links_[place]);
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
  bool let_go(std::vector<uint32_t>& first_open) {
    if (launch_one()) return true;
    for (size_t rank = 0; rank < run_.ranks_.size(); ++rank) {
      uint32_t& place = first_open[rank];
      while (place < run_.ranks_[rank].end && has_ended_[place]) ++place;
      if (place == run_.ranks_[rank].end) continue;
      ReplayOp& op = run_.ops_[place];
      const TraceRecord& record = run_.record_of(op);
      op.slack_ns += record.end_ns - record.start_ns - op.duration_ns;
      if (has_begun_[place]) {
        uint32_t& meeting = run_.exchange_of(place).meeting;
        --run_.meetings_[meeting];
        std::erase(arrived_[meeting], place);
        meeting = kNone;
        end(place);
      } else {
        if (run_.links_[place].exchange != kNone) run_.exchange_of(place).sender = kNone;
        let_go(is_launched_[place] ? device_of(place) : launch_of(place));
      }
      return true;
    }
    return false;
  }

  /// Whatever it waits for: each call takes one more part, so the search ends for any records.
  void let_go(uint32_t part) {
    num_open_[part] = 1;
    release(part);
  }

  /// Of launches that are thought to follow the end of a communication: that waits for something
  /// launched later, so the first follows its start. False where there is none.
  bool launch_one() {
    for (size_t rank = 0; rank < run_.ranks_.size(); ++rank) {
      uint32_t& place = first_unlaunched_[rank];
      while (place < run_.ranks_[rank].end && is_launched_[place]) ++place;
      if (place == run_.ranks_[rank].end) continue;
      Links& links = run_.links_[place];
      if (links.queue_lead_ns == 0 || !has_begun_[links.queued_behind] ||
          has_ended_[links.queued_behind]) {
        continue;
      }
      links.queue_lead_ns = 0;
      release(launch_of(place));
      return true;
    }
    return false;
  }

  ReplayedRun& run_;
  std::vector<uint32_t> num_open_;          ///< by part: what it still waits for
  std::vector<uint32_t> first_edge_;        ///< by event: of edges_
  std::vector<uint32_t> edges_;             ///< parts that wait for the event
  std::vector<uint32_t> first_unlaunched_;  ///< by rank
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
    order_.push_back((place << kPlaceShift) | kLaunch | (ops_[place].is_on_host ? 0 : kDevice));
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
      if (op.is_on_host) {
        if (op.is_waiting && links.producer != kNone) {
          host_ns = std::max(host_ns, ends[links.producer]);
        }
        if (op.is_waiting && links.further != kNone) {
          for_each_further(place, [&](const FurtherLink& link) {
            host_ns = std::max(host_ns, ends[link.producer]);
          });
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
    for_each_further(place, [&](const FurtherLink& link) {
      ready_ns = std::max(ready_ns, ends[link.producer] + link.lag_ns);
    });
    ready_ns += op.slack_ns + op.shared_ns;
    begins[place] = ready_ns;
    const uint32_t met = meeting_of(links);
    if (met != kNone) {
      Meeting& meeting = meetings[met];
      meeting.latest_ns = std::max(meeting.latest_ns, ready_ns);
      meeting.transfer_ns = std::max(meeting.transfer_ns, op.duration_ns);
      arrived[met].push_back(place);
      if (++meeting.num_arrived < meetings_[met]) continue;
      for (const uint32_t member : arrived[met]) {
        const int64_t met_ns =
            changed(member, change).is_waiting ? meeting.latest_ns : begins[member];
        ends[member] = met_ns + meeting.transfer_ns;
        end_ns = std::max(end_ns, ends[member]);
      }
    } else if (const uint32_t sender = sender_of(links); sender != kNone) {
      const int64_t received_ns = ready_ns + exchanges_[links.exchange].receive_ns;
      ends[place] = op.is_waiting ? std::max(received_ns, ends[sender]) : ready_ns + op.duration_ns;
    } else {
      const bool waits_for_slot = op.is_waiting && links.exchange != kNone;
      ends[place] = ready_ns + op.duration_ns +
                    (waits_for_slot ? exchanges_[links.exchange].slot_wait_ns : 0);
    }
    end_ns = std::max(end_ns, ends[place]);
  }
  for (const int64_t host_ns : host) end_ns = std::max(end_ns, host_ns);
  return end_ns - start_ns_ + tail_ns_;
}

}  // namespace moetune::profiler
