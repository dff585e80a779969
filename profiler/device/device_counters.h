// Hardware counters of a GPU over a training step: how busy the SMs and their tensor pipes were and
// what went over the memory bus. cupti_counters.cpp takes them by CUPTI's PM sampling in a build
// that has CUPTI, counters_stub.cpp stands in elsewhere; the linker chooses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "profiler/device/counter_sums.h"

namespace moetune::profiler {

struct CounterOptions {
  int32_t device = -1;  ///< CUDA's number of it; -1: the current one of the calling thread
  /// Chips that sample by clock cycles only (Turing, GA100) take one cycle for one nanosecond.
  int64_t sampling_interval_ns = 100'000;
  /// Where the hardware keeps its samples until they are read at the end of the step. When it is
  /// full the oldest go, and the step is truncated. 0.5 GiB is what NVIDIA's own tools take.
  int64_t hardware_buffer_bytes = int64_t{512} << 20;
  int64_t samples_per_read = 4096;  ///< in host memory at a time
};

/// The counters of one step.
struct CounterStep : CounterSums {
  CounterWindow window;  ///< the step on wall_ns()
  /// The hardware's buffer overflowed, or reading it ended early: covered_ns is all there is.
  bool is_truncated = false;
  /// The samples' times are wall_ns(), like those of records. Where not (none of them lies in the
  /// step), the sums are over all samples and their times are good for nothing but lengths.
  bool is_on_wall_clock = true;
  /// As read, in the order of the hardware; sum_counters() tells of any part of the step.
  std::vector<CounterSample> samples;
};

/// Counts what the whole GPU does, other processes included, step by step. The hardware counts for
/// one at a time: other tools that count (ncu, nsys with GPU metrics, DCGM) stand in the way. CUPTI
/// may fix the clock rates while it samples, hence: steps with counters are not for timing. With a
/// DeviceRecorder, create the counters first and destroy them last.
class DeviceCounters {
 public:
  virtual ~DeviceCounters() = default;

  /// Why nothing, or not everything, is counted, in sentences for the user; empty when all is well.
  /// Inactive counters can be used like any other and return empty steps.
  [[nodiscard]] virtual std::string note() const = 0;
  [[nodiscard]] virtual bool is_active() const = 0;

  virtual void begin_step() = 0;
  /// Waits for the current device. Reading the samples is not part of the step.
  virtual CounterStep end_step() = 0;

  /// NVIDIA's names of what is sampled.
  [[nodiscard]] virtual std::vector<std::string> metrics() const = 0;
  /// What the hardware's buffer takes, possibly of device memory; 0 when inactive.
  [[nodiscard]] virtual int64_t buffer_bytes() const = 0;
};

/// Never throws for what the machine lacks: without a driver, permission or a chip that can, or
/// with another tool at the counters, they are inactive and their note says why. One at most per
/// device. Null in a build without CUPTI.
std::unique_ptr<DeviceCounters> make_device_counters(const CounterOptions& options);

}  // namespace moetune::profiler
