// The place of CUPTI, which measures what really ran on a GPU: cupti_recorder.cpp implements it in
// a build that has CUPTI, cupti_stub.cpp stands in elsewhere; the linker chooses.
#pragma once

#include <memory>

#include "profiler/record.h"

namespace moetune::profiler {

/// Records the device activity of one rank, step by step. Not thread-safe.
class DeviceRecorder {
 public:
  virtual ~DeviceRecorder() = default;

  virtual void begin_step(int step) = 0;
  /// Waits for the device; returns the step's records in launch order, on the clock of wall_ns().
  virtual StepTrace end_step() = 0;
};

/// Whether this build can record GPU activity.
bool has_cupti();

/// The recorder of a rank on the current CUDA device; at most one per process, as CUPTI allows one
/// subscriber. Null in a build without CUPTI. Throws base::Error when another tool is attached.
std::unique_ptr<DeviceRecorder> make_cupti_recorder(int rank);

}  // namespace moetune::profiler
