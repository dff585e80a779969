// Traces and counters of a device while steps are traced.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "engine/trial_recorder.h"
#include "profiler/device/cupti_recorder.h"
#include "profiler/device/device_counters.h"
#include "profiler/device/device_trace.h"
#include "profiler/timeline.h"

namespace moetune::engine {

/// The traces of a device: one recorder for all ranks of the process, started and read by the first
/// of them.
class DeviceTracing {
 public:
  DeviceTracing(const spec::TrialSpec& trial, const std::vector<int>& ranks);

  void begin(int64_t step);

  void end(TrialRecorder& recorder);

  [[nodiscard]] profiler::DeviceRecorder* recorder() const { return recorder_.get(); }
  /// Why the trace lacks something; "" when it is complete.
  [[nodiscard]] std::string note() const;
  /// Records of all traced steps that were lost.
  [[nodiscard]] int64_t num_lost() const { return counts_.num_dropped; }
  [[nodiscard]] int64_t device_buffer_bytes() const;

 private:
  std::unique_ptr<profiler::DeviceCounters> counters_;
  std::unique_ptr<profiler::DeviceRecorder> recorder_;
  bool is_set_up_ = false;
  bool counts_overhead_ = false;      ///< that the tracing interface reports of itself
  profiler::RecordingCounts counts_;  ///< of all traced steps
  bool has_truncated_counters_ = false;
};

}  // namespace moetune::engine
