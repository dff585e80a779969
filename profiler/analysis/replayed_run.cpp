#include "profiler/analysis/replayed_run.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace moetune::profiler {
namespace {

/// Of what ended just before, so many are looked at.
constexpr int kMostCandidates = 64;
/// A synchronisation that nothing explains and that took so long waited for something.
constexpr int64_t kLongSyncNs = 100'000;

bool is_on_host(const TraceRecord& record) {
  return record.kind == RecordKind::host_sync || record.kind == RecordKind::host_work;
}

bool is_receive(const TraceRecord& record) {
  return record.kind == RecordKind::p2p && record.name.text().find("recv") != std::string::npos;
}

bool is_backward(const TraceRecord& record) {
  return record.name.text().find("backward") != std::string::npos;
}

}  // namespace

ReplayedRun::ReplayedRun(std::span<const StepTrace> traces, const GroupInstances& communicators,
                         const ReplayOptions& options)
    : traces_(traces), options_(options) {
  size_t num_records = 0;
  for (const StepTrace& trace : traces) num_records += trace.records.size();
  ops_.reserve(num_records);
  links_.reserve(num_records);
  if (!traces.empty()) start_ns_ = traces.front().start_ns;
  int64_t last_ns = start_ns_;
  int64_t end_ns = start_ns_;
  for (uint32_t i = 0; i < traces.size(); ++i) {
    add_rank(i);
    end_ns = std::max(end_ns, traces[i].end_ns);
    for (const TraceRecord& record : traces[i].records) {
      last_ns = std::max({last_ns, record.end_ns, record.launch_end_ns});
    }
  }
  tail_ns_ = std::max<int64_t>(0, end_ns - last_ns);
  match(communicators);
  match_messages();
  find_slack();
  find_order();
}

void ReplayedRun::add_rank(uint32_t trace) {
  const StepTrace& step = traces_[trace];
  RankRows& rank = ranks_.emplace_back();
  std::unordered_map<int64_t, uint32_t> by_id;
  std::map<int32_t, uint32_t> last_on_stream;
  int64_t host_ns = step.start_ns;
  for (uint32_t row = 0; row < step.records.size(); ++row) {
    const TraceRecord& record = step.records[row];
    const auto place = static_cast<uint32_t>(ops_.size());
    ReplayOp& op = ops_.emplace_back();
    Links& links = links_.emplace_back();
    rank.ops.push_back(place);
    by_id.emplace(record.id, place);
    op.trace = trace;
    op.row = row;
    op.gap_ns = std::max<int64_t>(0, record.launch_start_ns - host_ns);
    op.launch_ns =
        std::max<int64_t>(0, record.launch_end_ns - std::max(host_ns, record.launch_start_ns));
    host_ns = std::max(host_ns, record.launch_end_ns);
    const auto producer = by_id.find(record.producer_id);
    if (record.producer_id != kNoRecord && producer != by_id.end()) {
      links.producer = producer->second;
    }
    const int64_t length_ns = record.end_ns - record.start_ns;
    op.duration_ns = length_ns;
    if (is_on_host(record)) {
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
}

void ReplayedRun::match(const GroupInstances& communicators) {
  std::map<std::pair<std::string, int64_t>, int32_t> instances;
  std::map<std::pair<int32_t, int64_t>, std::vector<uint32_t>> members;
  for (uint32_t place = 0; place < ops_.size(); ++place) {
    const TraceRecord& record = record_of(ops_[place]);
    if (record.group.empty() || is_on_host(record)) continue;
    ops_[place].duration_ns =
        std::clamp<int64_t>(record.transfer_ns, 0, record.end_ns - record.start_ns);
    const auto key = communicators.find({record.rank, record.group});
    const int64_t communicator = key == communicators.end() ? 0 : key->second;
    const auto found = instances.try_emplace({record.group, communicator}, num_instances_);
    if (found.second) ++num_instances_;
    links_[place].instance = found.first->second;
    if (record.kind == RecordKind::collective && record.sequence >= 0) {
      members[{links_[place].instance, record.sequence}].push_back(place);
    }
  }
  for (const auto& [instance, places] : members) {
    // One that nobody else has recorded keeps its length: who was late is not in the traces.
    if (places.size() < 2) continue;
    for (const uint32_t place : places) {
      links_[place].meeting = static_cast<uint32_t>(meetings_.size());
    }
    meetings_.push_back(static_cast<uint32_t>(places.size()));
  }
}

void ReplayedRun::match_messages() {
  std::map<int32_t, std::vector<int32_t>> ring;  // ranks of each instance that send or receive
  std::map<std::tuple<int32_t, int32_t, bool, int64_t>, std::deque<uint32_t>> sends;
  for (uint32_t place = 0; place < ops_.size(); ++place) {
    const TraceRecord& record = record_of(ops_[place]);
    if (record.kind != RecordKind::p2p) continue;
    std::vector<int32_t>& ranks = ring[links_[place].instance];
    if (ranks.empty() || ranks.back() != record.rank) ranks.push_back(record.rank);
    if (is_receive(record)) continue;
    sends[{links_[place].instance, record.rank, is_backward(record), record.micro_batch}].push_back(
        place);
    ops_[place].slot_wait_ns =
        std::max<int64_t>(0, record.end_ns - record.start_ns - ops_[place].duration_ns);
  }
  for (auto& [instance, ranks] : ring) std::sort(ranks.begin(), ranks.end());
  for (uint32_t place = 0; place < ops_.size(); ++place) {
    const TraceRecord& record = record_of(ops_[place]);
    if (!is_receive(record)) continue;
    const std::vector<int32_t>& ranks = ring[links_[place].instance];
    const size_t n = ranks.size();
    const auto own = static_cast<size_t>(std::ranges::find(ranks, record.rank) - ranks.begin());
    const int32_t peer = ranks[is_backward(record) ? (own + 1) % n : (own + n - 1) % n];
    const auto queue =
        sends.find({links_[place].instance, peer, is_backward(record), record.micro_batch});
    if (queue == sends.end() || queue->second.empty()) continue;
    links_[place].sender = queue->second.front();
    queue->second.pop_front();
  }
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

void ReplayedRun::find_slack() {
  for (const RankRows& rank : ranks_) {
    // Ends of device work, by time, to find who ended when something started that nobody explains.
    std::vector<std::pair<int64_t, uint32_t>> ends;
    for (const uint32_t place : rank.ops) {
      const TraceRecord& record = record_of(ops_[place]);
      if (!is_on_host(record)) ends.emplace_back(record.end_ns, place);
    }
    std::sort(ends.begin(), ends.end());
    for (const uint32_t place : rank.ops) {
      ReplayOp& op = ops_[place];
      Links& links = links_[place];
      const TraceRecord& record = record_of(op);
      const bool is_sync = record.kind == RecordKind::host_sync;
      if (is_on_host(record) && !is_sync) continue;
      const int64_t begun_ns = is_sync ? record.end_ns : record.start_ns;
      int64_t earliest_ns = is_sync ? record.start_ns : record.launch_end_ns;
      if (!is_sync) earliest_ns = add_latency(links, earliest_ns, begun_ns);
      if (links.producer == kNone && begun_ns > earliest_ns) {
        // The last end just before.
        auto at = std::upper_bound(ends.begin(), ends.end(), std::pair(begun_ns, kNone));
        for (int looked_at = 0; looked_at < kMostCandidates; ++looked_at) {
          if (at == ends.begin() || begun_ns - std::prev(at)->first > options_.start_latency_ns)
            break;
          --at;
          const TraceRecord& other = record_of(ops_[at->second]);
          if (at->second >= place || (!is_sync && other.stream == record.stream)) continue;
          if (is_sync && other.end_ns <= record.start_ns) continue;
          links.producer = at->second;
          ++num_inferred_;
          if (is_sync) op.duration_ns = record.end_ns - std::max(record.start_ns, other.end_ns);
          break;
        }
      }
      if (links.producer != kNone) {
        ++num_edges_;
        const int64_t produced_ns = record_of(ops_[links.producer]).end_ns;
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
      if (record.group.empty()) continue;
      const bool is_alone = record.kind == RecordKind::collective && links.meeting == kNone;
      const bool is_lost = is_receive(record) && links.sender == kNone;
      if (is_alone || is_lost) {
        op.slack_ns += record.end_ns - record.start_ns - op.duration_ns;
      }
    }
  }
}

void ReplayedRun::find_order() {
  order_.reserve(ops_.size());
  std::vector<size_t> next(ranks_.size());
  std::vector<bool> is_done(ops_.size());
  std::vector<uint32_t> num_arrived(meetings_.size());
  std::vector<bool> has_arrived(ops_.size());
  const auto advance = [&](size_t rank) {
    const uint32_t place = ranks_[rank].ops[next[rank]];
    Links& links = links_[place];
    if (links.meeting != kNone) {
      if (!has_arrived[place]) {
        has_arrived[place] = true;
        order_.push_back(place);
        ++num_arrived[links.meeting];
      }
      if (num_arrived[links.meeting] < meetings_[links.meeting]) return false;
    } else {
      if (links.sender != kNone && !is_done[links.sender]) return false;
      order_.push_back(place);
    }
    is_done[place] = true;
    ++next[rank];
    return true;
  };
  while (true) {
    bool has_moved = false;
    bool is_complete = true;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      while (next[rank] < ranks_[rank].ops.size() && advance(rank)) has_moved = true;
      is_complete = is_complete && next[rank] == ranks_[rank].ops.size();
    }
    if (is_complete) return;
    if (has_moved) continue;
    // Lost records or wrong sequences have made ranks wait for each other: the first of those that
    // stand still goes on by itself, with the time that it took.
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (next[rank] == ranks_[rank].ops.size()) continue;
      const uint32_t place = ranks_[rank].ops[next[rank]];
      ReplayOp& op = ops_[place];
      const TraceRecord& record = record_of(op);
      op.slack_ns += record.end_ns - record.start_ns - op.duration_ns;
      if (links_[place].meeting != kNone) {  // it is in the order already
        --meetings_[links_[place].meeting];
        --num_arrived[links_[place].meeting];
        links_[place].meeting = kNone;
        is_done[place] = true;
        ++next[rank];
      }
      links_[place].sender = kNone;
      break;
    }
  }
}

int64_t ReplayedRun::step_ns(const std::vector<ReplayOp>& ops) const {
  std::vector<int64_t> host;
  for (const StepTrace& trace : traces_) host.push_back(trace.start_ns);
  std::vector<int64_t> ends(ops.size(), start_ns_);
  struct Meeting {
    uint32_t num_arrived = 0;
    int64_t latest_ns = 0;
    int64_t transfer_ns = 0;
  };
  std::vector<Meeting> meetings(meetings_.size());
  std::vector<std::vector<uint32_t>> arrived(meetings_.size());
  int64_t end_ns = start_ns_;
  for (const uint32_t place : order_) {
    const ReplayOp& op = ops[place];
    const Links& links = links_[place];
    const TraceRecord& record = record_of(op);
    int64_t& host_ns = host[op.trace];
    host_ns += op.gap_ns + op.launch_ns;
    if (is_on_host(record)) {
      if (op.is_waiting && links.producer != kNone) {
        host_ns = std::max(host_ns, ends[links.producer]);
      }
      host_ns += op.slack_ns + op.duration_ns;
      ends[place] = host_ns;
      end_ns = std::max(end_ns, host_ns);
      continue;
    }
    int64_t ready_ns = host_ns + links.latency_ns;
    if (links.before != kNone) ready_ns = std::max(ready_ns, ends[links.before] + links.gap_ns);
    if (links.producer != kNone) {
      ready_ns = std::max(ready_ns, ends[links.producer] + links.lag_ns);
    }
    ready_ns += op.slack_ns;
    if (links.meeting != kNone) {
      Meeting& meeting = meetings[links.meeting];
      meeting.latest_ns = std::max(meeting.latest_ns, ready_ns);
      meeting.transfer_ns = std::max(meeting.transfer_ns, op.duration_ns);
      arrived[links.meeting].push_back(place);
      if (++meeting.num_arrived < meetings_[links.meeting]) continue;
      for (const uint32_t member : arrived[links.meeting]) {
        ends[member] = meeting.latest_ns + meeting.transfer_ns;
      }
    } else if (links.sender != kNone) {
      ends[place] =
          op.is_waiting ? std::max(ready_ns, ends[links.sender]) : ready_ns + op.duration_ns;
    } else {
      ends[place] = ready_ns + (op.is_waiting ? op.slot_wait_ns : 0) + op.duration_ns;
    }
    end_ns = std::max(end_ns, ends[place]);
  }
  for (const int64_t host_ns : host) end_ns = std::max(end_ns, host_ns);
  return end_ns - start_ns_ + tail_ns_;
}

}  // namespace moetune::profiler
