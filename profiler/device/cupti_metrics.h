// Which of NVIDIA's metrics stand for our counters on a chip, and what a sample's raw data is in
// them. Works from the name of the chip and needs no GPU; only cupti_metrics.cpp knows CUPTI's
// types.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "profiler/device/counter_sums.h"

namespace moetune::profiler {

/// A choice of metrics that the hardware counts at the same time.
class CuptiMetrics {
 public:
  CuptiMetrics() = default;
  ~CuptiMetrics();
  CuptiMetrics(const CuptiMetrics&) = delete;
  CuptiMetrics& operator=(const CuptiMetrics&) = delete;

  /// Empty when there is something to count, otherwise why not. `availability`: CUPTI's image of
  /// which counters the device lets us have; empty for all that the chip has. Once per object.
  std::string choose(const std::string& chip, std::vector<uint8_t> availability);

  /// The counters that are left out and why; empty when all are there.
  [[nodiscard]] const std::string& left_out() const { return left_out_; }
  [[nodiscard]] const std::vector<const char*>& names() const { return names_; }
  /// Tells the hardware what to count. CUPTI keeps pointers into it.
  [[nodiscard]] const std::vector<uint8_t>& config_image() const { return config_image_; }

  /// Our values of sample `index` of a counter data image: NaN for those that are left out, and for
  /// all when CUPTI refuses.
  [[nodiscard]] std::array<double, kNumCounters> evaluate(std::span<const uint8_t> image,
                                                          size_t index) const;

 private:
  std::vector<uint8_t> availability_;
  std::vector<uint8_t> config_image_;
  std::vector<const char*> names_;
  std::vector<size_t> entries_;  ///< of each name, in the table of candidates
  std::string left_out_;
  void* host_ = nullptr;
};

}  // namespace moetune::profiler
