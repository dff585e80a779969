// Which work of one stream waits for which of another, as events and the order of calls tell.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "profiler/analysis/imported_steps.h"
#include "profiler/analysis/launch_order.h"

namespace moetune::profiler {

void ImportedSteps::find_stream_waits(Rank& rank) const {
  const ImportedTrace& trace = traces_[rank.trace];
  std::unordered_map<uint32_t, int64_t> calls;  // by correlation
  for (const ImportedSync& sync : trace.syncs) {
    if (sync.kind != SyncKind::stream_wait) continue;
    for (const uint32_t correlation : {sync.correlation, sync.record_correlation}) {
      if (correlation != 0) calls.emplace(correlation, -1);
    }
  }
  if (!calls.empty()) {
    for (const HostCall& call : trace.calls) {
      const auto at = calls.find(call.correlation);
      if (at != calls.end() && at->second < 0) at->second = call.start_ns;
    }
  }
  // By correlation of the call, of waits whose producer the file does not say: the stream, if it
  // says that.
  std::unordered_map<uint32_t, uint32_t> waiting_streams;
  std::vector<uint32_t> stated;
  for (const ImportedSync& sync : trace.syncs) {
    if (sync.kind != SyncKind::stream_wait || sync.correlation == 0) continue;
    const int64_t wait_ns = calls[sync.correlation];
    if (wait_ns < 0) continue;
    if (sync.stream == kNoRow || sync.producer_stream == kNoRow) {
      waiting_streams.emplace(sync.correlation, sync.stream);
      continue;
    }
    stated.push_back(sync.correlation);
    const int64_t record_ns = sync.record_correlation == 0 ? -1 : calls[sync.record_correlation];
    rank.stream_waits.push_back({wait_ns, record_ns < 0 ? wait_ns : std::min(record_ns, wait_ns),
                                 sync.stream, sync.producer_stream, false});
  }
  for (const HostCall& call : trace.calls) {
    if (call.kind == CallKind::stream_wait) waiting_streams.emplace(call.correlation, kNoRow);
  }
  for (const uint32_t correlation : stated) waiting_streams.erase(correlation);
  if (!waiting_streams.empty()) infer_stream_waits(rank, waiting_streams);
  std::ranges::stable_sort(rank.stream_waits, {}, &StreamWait::wait_ns);
}

/// `waiting_streams` by correlation of the waiting calls; kNoRow: not known.
void ImportedSteps::infer_stream_waits(
    Rank& rank, const std::unordered_map<uint32_t, uint32_t>& waiting_streams) const {
  const ImportedTrace& trace = traces_[rank.trace];
  std::unordered_map<uint32_t, uint32_t> launched_on;  // by row of the call: the stream
  for (const ImportedOp& op : trace.ops) {
    if (op.call != kNoRow) launched_on.emplace(op.call, op.stream);
  }
  struct Thread {
    uint32_t stream = kNoRow;              ///< of the launch before
    std::map<uint32_t, int64_t> recorded;  ///< by stream: the last event, when
    std::vector<int64_t> open;             ///< waits since, when
  };
  std::vector<Thread> threads(trace.threads.size());
  // Those that wait for another stream than their own.
  const auto close = [&](const Thread& thread, int64_t wait_ns, uint32_t stream) {
    StreamWait wait = {wait_ns, -1, stream, kNoRow, true};
    for (const auto& [other, recorded_ns] : thread.recorded) {
      if (other == stream || recorded_ns > wait_ns || recorded_ns <= wait.record_ns) continue;
      wait.record_ns = recorded_ns;
      wait.producer_stream = other;
    }
    if (wait.producer_stream != kNoRow) rank.stream_waits.push_back(wait);
  };
  for (uint32_t row = 0; row < trace.calls.size(); ++row) {
    const HostCall& call = trace.calls[row];
    Thread& thread = threads[call.thread];
    if (call.kind == CallKind::event_record && thread.stream != kNoRow) {
      thread.recorded[thread.stream] = call.start_ns;
    }
    if (call.kind == CallKind::stream_wait) {
      const auto waiting = waiting_streams.find(call.correlation);
      if (waiting == waiting_streams.end()) continue;
      if (waiting->second != kNoRow) {
        close(thread, call.start_ns, waiting->second);
      } else {
        thread.open.push_back(call.start_ns);
      }
    }
    const auto launched = launched_on.find(row);
    if (launched == launched_on.end()) continue;
    for (const int64_t wait_ns : thread.open) close(thread, wait_ns, launched->second);
    thread.open.clear();
    thread.stream = launched->second;
  }
}

/// A host that is late hides from the times that its work needed a message, too; the order of the
/// program still tells it. Without that, dropping the host's time would let work start before what
/// it works on has come.
void ImportedSteps::infer_message_waits(Rank& rank) const {
  const ImportedTrace& trace = traces_[rank.trace];
  const ByOp<MatchedOp>& matched_ops = matched_ops_[rank.trace];
  const auto is_receive = [](const auto& entry) { return entry.value.is_receive; };
  if (std::ranges::none_of(matched_ops.entries(), is_receive)) return;
  std::vector<StreamWait> waits;
  std::vector<uint32_t> received;  // since the last kernel
  uint32_t last_call = kNoRow;
  for (const uint32_t row : ops_by_call(trace, [](const ImportedOp&) { return true; })) {
    const ImportedOp& op = trace.ops[row];
    // Of the several operations of a call the first.
    if (std::exchange(last_call, op.call) == op.call) continue;
    const MatchedOp* matched = matched_ops.find(row);
    if (matched != nullptr && matched->is_receive) received.push_back(row);
    const bool is_kernel = op.kind == ActivityKind::kernel || op.kind == ActivityKind::graph;
    if (!is_kernel || rank.work.of(op) == WorkClass::communication) continue;
    for (const uint32_t one : received) {
      const ImportedOp& message = trace.ops[one];
      if (message.stream == op.stream) continue;
      // This program lets the two run beside each other.
      if (op.start_ns < message.end_ns - kRoundingNs) return;
      waits.push_back({trace.calls[op.call].start_ns, trace.calls[message.call].start_ns, op.stream,
                       message.stream, true});
    }
    received.clear();
  }
  rank.stream_waits = std::move(waits);
}

}  // namespace moetune::profiler
