// Finds which communication of a replay's ranks belongs together.
#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <tuple>

#include "profiler/analysis/replayed_records.h"
#include "profiler/analysis/replayed_run.h"

namespace moetune::profiler {
namespace {

bool is_backward(const TraceRecord& record) {
  return record.name.text().find("backward") != std::string::npos;
}

}  // namespace

void ReplayedRun::match(const GroupInstances& communicators) {
  std::map<std::pair<std::string, int64_t>, int32_t> instances;
  std::map<std::pair<int32_t, int64_t>, std::vector<uint32_t>> members;
  for (const uint32_t place : communication_) {
    const TraceRecord& record = record_of(ops_[place]);
    if (record.group.empty() || is_on_host(record)) continue;
    ops_[place].duration_ns =
        std::clamp<int64_t>(record.transfer_ns, 0, record.end_ns - record.start_ns);
    const auto key = communicators.find({record.rank, record.group});
    const int64_t communicator = key == communicators.end() ? 0 : key->second;
    const auto found = instances.try_emplace({record.group, communicator}, num_instances_);
    if (found.second) ++num_instances_;
    exchange_of(place).instance = found.first->second;
    if (record.kind == RecordKind::collective && record.sequence >= 0) {
      members[{exchange_of(place).instance, record.sequence}].push_back(place);
    }
  }
  for (const auto& [instance, places] : members) {
    // One that nobody else has recorded keeps its length: who was late is not in the traces.
    if (places.size() < 2) continue;
    for (const uint32_t place : places) {
      exchange_of(place).meeting = static_cast<uint32_t>(meetings_.size());
    }
    meetings_.push_back(static_cast<uint32_t>(places.size()));
  }
}

void ReplayedRun::match_messages() {
  std::map<int32_t, std::vector<int32_t>> ring;  // ranks of each instance that send or receive
  std::map<std::tuple<int32_t, int32_t, bool, int64_t>, std::deque<uint32_t>> sends;
  std::map<std::pair<int32_t, int64_t>, std::vector<uint32_t>> numbered;
  for (const uint32_t place : communication_) {
    const TraceRecord& record = record_of(ops_[place]);
    if (record.kind != RecordKind::p2p) continue;
    if (is_numbered(record)) {
      numbered[{exchange_of(place).instance, record.sequence}].push_back(place);
      continue;
    }
    std::vector<int32_t>& ranks = ring[exchange_of(place).instance];
    if (ranks.empty() || ranks.back() != record.rank) ranks.push_back(record.rank);
    if (is_receive(record)) continue;
    sends[{exchange_of(place).instance, record.rank, is_backward(record), record.micro_batch}]
        .push_back(place);
    exchange_of(place).slot_wait_ns =
        std::max<int64_t>(0, record.end_ns - record.start_ns - ops_[place].duration_ns);
  }
  for (auto& [instance, ranks] : ring) std::sort(ranks.begin(), ranks.end());
  for (const uint32_t place : communication_) {
    const TraceRecord& record = record_of(ops_[place]);
    if (!is_receive(record) || is_numbered(record)) continue;
    const std::vector<int32_t>& ranks = ring[exchange_of(place).instance];
    const size_t n = ranks.size();
    const auto own = static_cast<size_t>(std::ranges::find(ranks, record.rank) - ranks.begin());
    const int32_t peer = ranks[is_backward(record) ? (own + 1) % n : (own + n - 1) % n];
    const auto queue =
        sends.find({exchange_of(place).instance, peer, is_backward(record), record.micro_batch});
    if (queue == sends.end() || queue->second.empty()) continue;
    exchange_of(place).sender = queue->second.front();
    queue->second.pop_front();
  }
  for (const auto& [number, ends] : numbered) match_numbered(ends);
  const auto has_sender = [&](uint32_t place) { return exchange_of(place).sender != kNone; };
  waits_for_later_ = !meetings_.empty() || std::ranges::any_of(communication_, has_sender);
}

std::vector<uint32_t> ReplayedRun::awaited_elsewhere() const {
  std::vector<uint32_t> latest(meetings_.size(), kNoPlace);
  const auto start_of = [&](uint32_t place) { return record_of(ops_[place]).start_ns; };
  for (const uint32_t place : communication_) {
    const uint32_t meeting = exchange_of(place).meeting;
    if (meeting == kNone) continue;
    uint32_t& last = latest[meeting];
    if (last == kNoPlace || start_of(place) > start_of(last)) last = place;
  }
  std::vector<uint32_t> awaited(ops_.size(), kNoPlace);
  for (const uint32_t place : communication_) {
    const Exchange& own = exchange_of(place);
    const uint32_t other = own.meeting == kNone ? own.sender : latest[own.meeting];
    if (other != kNoPlace && ops_[other].trace != ops_[place].trace) awaited[place] = other;
  }
  return awaited;
}

void ReplayedRun::match_numbered(const std::vector<uint32_t>& ends) {
  int64_t last_start_ns = record_of(ops_[ends[0]]).start_ns;
  int64_t first_end_ns = record_of(ops_[ends[0]]).end_ns;
  for (const uint32_t place : ends) {
    const TraceRecord& record = record_of(ops_[place]);
    last_start_ns = std::max(last_start_ns, record.start_ns);
    first_end_ns = std::min(first_end_ns, record.end_ns);
  }
  const bool is_between_two = ends.size() == 2 && ops_[ends[0]].trace != ops_[ends[1]].trace;
  if (is_between_two && last_start_ns <= first_end_ns) {
    for (const uint32_t place : ends) {
      exchange_of(place).meeting = static_cast<uint32_t>(meetings_.size());
    }
    meetings_.push_back(2);
    return;
  }
  // Sent and kept until it was asked for, or its other end is in no trace.
  for (const uint32_t place : ends) {
    const TraceRecord& record = record_of(ops_[place]);
    const uint32_t other = place == ends.front() ? ends.back() : ends.front();
    const int64_t length_ns = record.end_ns - record.start_ns;
    if (is_between_two && is_receive(record) && !is_receive(record_of(ops_[other])) &&
        record_of(ops_[other]).end_ns < record.start_ns) {
      exchange_of(place).sender = other;
      exchange_of(place).receive_ns = length_ns;
    } else {
      exchange_of(place).slot_wait_ns = length_ns - ops_[place].duration_ns;
    }
  }
}

}  // namespace moetune::profiler
