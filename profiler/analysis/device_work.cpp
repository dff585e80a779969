// Unions of the records of all ranks before, and of all behind, each one.
#include "profiler/analysis/device_work.h"

#include <algorithm>
#include <utility>

namespace moetune::profiler {
namespace {

DeviceWork work_of(const StepTrace& trace) {
  std::vector<Interval> kernels;
  std::vector<Interval> copies;
  for (const TraceRecord& record : trace.records) {
    const int64_t length_ns = std::max<int64_t>(0, record.end_ns - record.start_ns);
    switch (record.kind) {
      case RecordKind::kernel:
        kernels.push_back({record.start_ns, record.end_ns});
        break;
      case RecordKind::collective:
      case RecordKind::p2p: {
        const int64_t transfer_ns = std::clamp<int64_t>(record.transfer_ns, 0, length_ns);
        kernels.push_back({record.end_ns - transfer_ns, record.end_ns});
        break;
      }
      case RecordKind::memcpy:
        copies.push_back({record.start_ns, record.end_ns});
        break;
      case RecordKind::host_sync:
      case RecordKind::host_work:
        break;
    }
  }
  return {IntervalSet(std::move(kernels)), IntervalSet(std::move(copies))};
}

void add(const DeviceWork& more, DeviceWork& work) {
  work.kernels = unite(work.kernels, more.kernels);
  work.copies = unite(work.copies, more.copies);
}

}  // namespace

int64_t DeviceWork::held_up_ns(const TraceRecord& record, const Interval& time) const {
  if (time.length_ns() == 0) return 0;
  return covered_ns(record.kind == RecordKind::memcpy ? copies : kernels, time);
}

std::vector<DeviceWork> work_of_others(std::span<const StepTrace> traces) {
  std::vector<DeviceWork> own;
  own.reserve(traces.size());
  for (const StepTrace& trace : traces) own.push_back(work_of(trace));
  std::vector<DeviceWork> others(traces.size());
  DeviceWork before;
  for (size_t i = 0; i < own.size(); ++i) {
    others[i] = before;
    add(own[i], before);
  }
  DeviceWork behind;
  for (size_t i = own.size(); i-- > 0;) {
    add(behind, others[i]);
    add(own[i], behind);
  }
  return others;
}

}  // namespace moetune::profiler
