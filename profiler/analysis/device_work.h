// What the other ranks of a trial did on the device that all of them share: work that was enqueued
// may have waited for it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "profiler/analysis/intervals.h"
#include "profiler/record.h"

namespace moetune::profiler {

/// When a device was at work. Copies between memories have engines of their own: they hold up
/// copies only.
struct DeviceWork {
  IntervalSet kernels;  ///< with the transfers of communication, without its waiting
  IntervalSet copies;

  /// How much of `time`, in which `record` was enqueued and had not started, such work ran.
  [[nodiscard]] int64_t held_up_ns(const TraceRecord& record, const Interval& time) const;
};

/// For each trace the work of all others. `traces`: of one step, on one device and one clock.
std::vector<DeviceWork> work_of_others(std::span<const StepTrace> traces);

}  // namespace moetune::profiler
