// What binds the compute of traces of other tools: their kernels against the roofline, as far as
// the shapes of their operators are known (Williams, Waterman & Patterson 2009).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/analysis/kernel_classes.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// What good kernels reach on the traced device. Zeros are not known.
struct DevicePeaks {
  double flops_per_s = 0;            ///< of 16 bits
  double eight_bit_flops_per_s = 0;  ///< of 8 bits
  double memory_bytes_per_s = 0;
  std::string device;  ///< that they are of, for people

  [[nodiscard]] bool is_known() const { return flops_per_s > 0 && memory_bytes_per_s > 0; }
};

/// Time of compute kernels, in nanoseconds.
struct ImportedRoofline {
  double all_ns = 0;
  double known_ns = 0;      ///< of kernels whose work is known; the rest splits these:
  double over_ns = 0;       ///< longer than the roofline has it: too small, or badly shaped
  double bandwidth_ns = 0;  ///< would go with endless bandwidth
  [[nodiscard]] double flops_ns() const {
    return over_ns + bandwidth_ns < known_ns ? known_ns - over_ns - bandwidth_ns : 0;
  }
  [[nodiscard]] double known_ratio() const { return all_ns > 0 ? known_ns / all_ns : 0; }

  /// Adds kernels of one trace (rows of its `ops`, ascending).
  void add(const ImportedTrace& trace, const std::vector<uint32_t>& ops, const WorkClasses& wide,
           const DevicePeaks& peaks);
};

/// Why such sums do not tell what binds compute; empty: they do.
std::string why_unsplit(std::span<const ImportedTrace> traces, const ImportedRoofline& roofline,
                        const DevicePeaks& peaks);

}  // namespace moetune::profiler
