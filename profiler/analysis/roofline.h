// The least time that work takes on a device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "profiler/analysis/step_verdict.h"

namespace moetune::profiler {

/// The least time that a kernel's work takes on the device, where its peaks are known (Williams,
/// Waterman & Patterson 2009).
class Roofline {
 public:
  /// Sums over several kernels, to tell how near they are to that time.
  struct Sum {
    double least_ns = 0;
    double ns = 0;
    void add(double least, int64_t taken_ns) {
      least_ns += least;
      ns += static_cast<double>(taken_ns);
    }
    [[nodiscard]] double ratio() const { return ns > 0 ? least_ns / ns : 0; }
  };

  explicit Roofline(const StepFacts& facts)
      : ns_per_flop_(facts.peak_flops_per_s > 0 ? 1e9 / facts.peak_flops_per_s : 0),
        ns_per_byte_(facts.memory_bytes_per_s > 0 ? 1e9 / facts.memory_bytes_per_s : 0) {}

  [[nodiscard]] bool is_known() const { return ns_per_flop_ > 0 && ns_per_byte_ > 0; }
  [[nodiscard]] double flops_ns(const TraceRecord& record) const {
    return ns_per_flop_ * static_cast<double>(record.flops);
  }
  [[nodiscard]] double bytes_ns(const TraceRecord& record) const {
    return ns_per_byte_ * static_cast<double>(record.bytes);
  }
  [[nodiscard]] double least_ns(const TraceRecord& record) const {
    return std::max(flops_ns(record), bytes_ns(record));
  }
  [[nodiscard]] bool is_flop_bound(const TraceRecord& record) const {
    return flops_ns(record) >= bytes_ns(record);
  }

 private:
  double ns_per_flop_;
  double ns_per_byte_;
};

}  // namespace moetune::profiler
