// See metric_names.h.
#include "sweeps/bisect/metric_names.h"

#include <algorithm>
#include <array>

namespace moetune::sweeps {

std::string stored_metric(const std::string& metric) {
  if (metric == "step_time") return "step_ns";
  if (metric == "peak_memory") return "peak_bytes";
  return metric;
}

bool is_duration_metric(const std::string& name) {
  constexpr std::array kEnds = {"_ns", "_us", "_ms", "_s", "_sec", "_seconds", "_time"};
  if (name.ends_with("_per_s") || name.ends_with("_per_sec")) return false;
  return std::any_of(kEnds.begin(), kEnds.end(),
                     [&](const char* end) { return name.ends_with(end); });
}

std::optional<double> seconds_per_unit(const std::string& name) {
  if (!is_duration_metric(name)) return std::nullopt;
  if (name.ends_with("_ns")) return 1e-9;
  if (name.ends_with("_us")) return 1e-6;
  if (name.ends_with("_ms")) return 1e-3;
  return name.ends_with("_time") ? std::nullopt : std::optional(1.0);
}

bool is_exact_metric(const std::string& name) {
  constexpr std::array kEnds = {"_bytes", "_count", "_flops", "_memory"};
  if (name == "flops") return true;
  // Rates, times and what the system counts.
  constexpr std::array kExcept = {"rss", "dram_", "_per_", "tflops", "gflops", "percent", "ratio"};
  if (is_duration_metric(name) ||
      std::any_of(kExcept.begin(), kExcept.end(),
                  [&](const char* word) { return name.find(word) != std::string::npos; })) {
    return false;
  }
  return name.starts_with("num_") || name.starts_with("memory_") || name.starts_with("peak_") ||
         std::any_of(kEnds.begin(), kEnds.end(),
                     [&](const char* end) { return name.ends_with(end); });
}

}  // namespace moetune::sweeps
