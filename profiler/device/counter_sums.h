// Sums over samples of a GPU's hardware counters: pure functions, which know neither CUPTI nor how
// samples come about. device_counters.h takes the samples.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace moetune::profiler {

/// What is counted; the index into a sample's values.
enum class Counter : uint8_t {
  sm_active,      ///< ratio 0..1: share of (SM, time) with at least one warp in flight
  tensor_active,  ///< ratio 0..1: share of (SM, time) in which the tensor pipe worked
  dram_read,      ///< bytes from device memory
  dram_write,     ///< bytes to device memory
};
constexpr size_t kNumCounters = 4;

/// What the hardware counted between two points in time.
struct CounterSample {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  /// By Counter; NaN where the chip does not have it.
  std::array<double, kNumCounters> values{};

  [[nodiscard]] double value(Counter counter) const { return values[static_cast<size_t>(counter)]; }
};

/// A stretch of time; by default all of it.
struct CounterWindow {
  int64_t start_ns = std::numeric_limits<int64_t>::min();
  int64_t end_ns = std::numeric_limits<int64_t>::max();
};

/// Sums and means of the samples over a window. A value is empty if no sample has it.
struct CounterSums {
  /// Means over the covered time, not over the window.
  std::optional<double> sm_active_ratio;
  std::optional<double> tensor_active_ratio;
  /// Sums over the covered time, not extrapolated: divide by covered_ns for a bandwidth.
  std::optional<int64_t> dram_read_bytes;
  std::optional<int64_t> dram_write_bytes;
  int64_t num_samples = 0;   ///< samples that count, fully or in part
  int64_t num_rejected = 0;  ///< samples of length 0, or without a value that others have
  int64_t covered_ns = 0;    ///< time of the window that samples cover, each instant once
};

/// Sums the samples of a window. A sample that overlaps it in part counts with that part of its
/// bytes. A counter that no sample has stays empty. If only some samples have a counter, the others
/// are rejected, so that all sums cover the same time. Samples may come in any order and leave
/// gaps.
CounterSums sum_counters(std::span<const CounterSample> samples, const CounterWindow& window = {});

/// Whether any sample overlaps the window: none does if the clocks differ.
bool any_sample_in(std::span<const CounterSample> samples, const CounterWindow& window);

}  // namespace moetune::profiler
