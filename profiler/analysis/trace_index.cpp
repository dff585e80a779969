// Sorts the records, links them, and refuses a trace whose times or numbers contradict each other.
#include "profiler/analysis/trace_index.h"

#include <algorithm>
#include <unordered_map>

#include "kernels/base/error.h"

namespace moetune::profiler {

TraceIndex::TraceIndex(const StepTrace& trace, const ClassificationRules& rules)
    : trace_(trace), window_{trace.start_ns, trace.end_ns}, last_host_ns_(trace.start_ns) {
  MOETUNE_CHECK(trace.end_ns >= trace.start_ns,
                "step {} of rank {} ends at {} ns before it starts at {} ns", trace.step,
                trace.rank, trace.end_ns, trace.start_ns);
  records_.reserve(trace.records.size());
  for (const TraceRecord& record : trace.records) {
    MOETUNE_CHECK(record.end_ns >= record.start_ns,
                  "record {} ('{}') of rank {} ends at {} ns before it starts at {} ns", record.id,
                  record.name, trace.rank, record.end_ns, record.start_ns);
    records_.push_back({&record, classify(record, rules)});
  }
  const auto by_id = [](const Entry& a, const Entry& b) { return a.record->id < b.record->id; };
  if (!std::is_sorted(records_.begin(), records_.end(), by_id)) {
    std::sort(records_.begin(), records_.end(), by_id);
  }

  std::unordered_map<int32_t, int64_t> last_on_stream;
  for (int64_t i = 0; i < size(); ++i) {
    Entry& entry = records_[static_cast<size_t>(i)];
    const TraceRecord& r = *entry.record;
    MOETUNE_CHECK(i == 0 || record(i - 1).id < r.id, "record id {} of rank {} is there twice", r.id,
                  trace.rank);
    entry.producer = position_of(r.producer_id, i);
    last_host_ns_ = std::max(last_host_ns_, r.launch_end_ns);
    if (entry.op_class == OpClass::host) {
      // Work of the host waits for nothing: what it delays is late by the host.
      if (r.kind == RecordKind::host_sync) host_syncs_.push_back(i);
      last_host_ns_ = std::max(last_host_ns_, r.end_ns);
      continue;
    }
    const auto [last, is_first] = last_on_stream.try_emplace(r.stream, i);
    if (!is_first) {
      entry.stream_predecessor = last->second;
      last->second = i;
    }
    if (last_device_record_ == kNoPosition || r.end_ns >= record(last_device_record_).end_ns) {
      last_device_record_ = i;
    }
  }

  std::stable_sort(host_syncs_.begin(), host_syncs_.end(), [this](int64_t a, int64_t b) {
    return record(a).start_ns < record(b).start_ns;
  });
  for (const int64_t sync : host_syncs_) {
    const int64_t end = record(sync).end_ns;
    latest_sync_end_.push_back(latest_sync_end_.empty() ? end
                                                        : std::max(latest_sync_end_.back(), end));
  }
}

int64_t TraceIndex::position_of(int64_t id, int64_t before) const {
  if (id == kNoRecord) return kNoPosition;
  const auto end = records_.begin() + before;
  const auto found =
      std::lower_bound(records_.begin(), end, id,
                       [](const Entry& e, int64_t wanted) { return e.record->id < wanted; });
  return found != end && found->record->id == id ? found - records_.begin() : kNoPosition;
}

int64_t TraceIndex::binding_predecessor(int64_t position) const {
  const int64_t event = producer(position);
  const int64_t stream = stream_predecessor(position);
  if (event == kNoPosition) return stream;
  if (stream == kNoPosition) return event;
  return waited_until_ns(position, event) >= record(stream).end_ns ? event : stream;
}

int64_t TraceIndex::waited_until_ns(int64_t position, int64_t predecessor) const {
  const TraceRecord& awaited = record(predecessor);
  const bool is_on_its_way =
      awaited.kind == RecordKind::p2p && awaited.end_ns > record(position).start_ns;
  return is_on_its_way ? std::max(awaited.start_ns, awaited.end_ns - awaited.transfer_ns)
                       : awaited.end_ns;
}

size_t TraceIndex::first_sync_after(int64_t time_ns) const {
  const auto found = std::upper_bound(latest_sync_end_.begin(), latest_sync_end_.end(), time_ns);
  return static_cast<size_t>(found - latest_sync_end_.begin());
}

}  // namespace moetune::profiler
