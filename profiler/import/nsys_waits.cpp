#include "profiler/import/nsys_waits.h"

#include <algorithm>
#include <string_view>
#include <tuple>

namespace moetune::profiler {
namespace {

// What Nsight Systems writes where there is none.
constexpr int64_t kNone = 0xFFFFFFFF;
bool is_id(int64_t id) { return id > 0 && id < kNone; }

/// What a call waits for, by a word in its name.
constexpr std::pair<std::string_view, SyncKind> kSyncCalls[] = {
    {"EventSynchronize", SyncKind::event},
    {"StreamSynchronize", SyncKind::stream},
    {"DeviceSynchronize", SyncKind::device},
    {"CtxSynchronize", SyncKind::device},
};
/// By CUpti_ActivitySynchronizationType, where the call is not in the trace.
constexpr SyncKind kSyncTypes[] = {SyncKind::other, SyncKind::event, SyncKind::stream_wait,
                                   SyncKind::stream, SyncKind::device};

std::tuple<int64_t, int64_t, uint32_t> event_key(const RecordedEvent& event) {
  return {event.process, event.event, event.correlation};
}

}  // namespace

NsysWaits::NsysWaits(RankTraces& traces) {
  for (auto& [id, process] : traces.processes()) {
    std::vector<Waiting>& calls = calls_[id];
    for (const HostCall& call : process.host.calls) {
      Waiting waiting;
      waiting.correlation = call.correlation;
      waiting.is_query = call.kind == CallKind::query;
      if (call.kind == CallKind::stream_wait) waiting.kind = SyncKind::stream_wait;
      if (call.kind == CallKind::sync) {
        for (const auto& [word, kind] : kSyncCalls) {
          if (traces.names[call.name].find(word) != std::string::npos) waiting.kind = kind;
        }
      }
      const bool is_known = waiting.is_query || waiting.kind != SyncKind::other;
      if (is_known && call.correlation != 0) calls.push_back(waiting);
    }
    std::ranges::stable_sort(calls, {}, &Waiting::correlation);
  }
}

void NsysWaits::add(const RecordedEvent& event) {
  events_.push_back(event);
  is_sorted_ = false;
}

void NsysWaits::sort() {
  std::ranges::stable_sort(events_, {}, event_key);
  by_sync_.clear();
  for (size_t row = 0; row < events_.size(); ++row) {
    if (is_id(events_[row].sync)) {
      by_sync_.push_back({{events_[row].process, events_[row].sync}, static_cast<uint32_t>(row)});
    }
  }
  std::ranges::sort(by_sync_);
  is_sorted_ = true;
}

const NsysWaits::Waiting* NsysWaits::call_of(int64_t process, uint32_t correlation) const {
  const auto calls = calls_.find(process);
  if (calls == calls_.end() || correlation == 0) return nullptr;
  const auto at = std::ranges::lower_bound(calls->second, correlation, {}, &Waiting::correlation);
  return at == calls->second.end() || at->correlation != correlation ? nullptr : &*at;
}

const RecordedEvent* NsysWaits::recorded_by(int64_t process, int64_t event_sync) const {
  if (!is_id(event_sync)) return nullptr;
  const std::pair key(process, event_sync);
  const auto at =
      std::ranges::lower_bound(by_sync_, key, {}, [](const auto& row) { return row.first; });
  return at == by_sync_.end() || at->first != key ? nullptr : &events_[at->second];
}

const RecordedEvent* NsysWaits::recorded_before(int64_t process, int64_t event,
                                                uint32_t correlation) const {
  if (!is_id(event) || correlation == 0) return nullptr;
  const std::tuple key(process, event, correlation);
  const auto behind = std::ranges::lower_bound(events_, key, {}, event_key);
  if (behind == events_.begin()) return nullptr;
  const RecordedEvent& last = *std::prev(behind);
  const bool is_same = last.process == process && last.event == event && last.correlation != 0;
  return is_same ? &last : nullptr;
}

void NsysWaits::add(RankTraces::Rank& rank, ImportedSync sync, int64_t type, int64_t stream,
                    int64_t event, int64_t event_sync) {
  if (!is_sorted_) sort();
  const Waiting* call = call_of(rank.process, sync.correlation);
  if (call != nullptr && call->is_query) return;
  const bool is_type = type >= 0 && type < static_cast<int64_t>(std::size(kSyncTypes));
  sync.kind = call != nullptr ? call->kind : is_type ? kSyncTypes[type] : SyncKind::other;
  const auto row_of = [&](int64_t id) -> uint32_t {
    return id >= 0 && id < kNone ? rank.trace.stream_row({rank.device, id}) : kNoRow;
  };
  sync.stream = row_of(stream);
  if (is_id(event)) sync.event = static_cast<uint64_t>(event);
  if (sync.kind == SyncKind::stream_wait || sync.kind == SyncKind::event) {
    const RecordedEvent* recorded = recorded_by(rank.process, event_sync);
    if (recorded == nullptr) recorded = recorded_before(rank.process, event, sync.correlation);
    if (recorded != nullptr) {
      sync.record_correlation = recorded->correlation;
      sync.producer_stream = row_of(recorded->stream);
    }
  }
  rank.trace.syncs.push_back(sync);
}

}  // namespace moetune::profiler
