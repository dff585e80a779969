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
  return name.starts_with("phases.") ||
         std::any_of(kEnds.begin(), kEnds.end(),
                     [&](const char* end) { return name.ends_with(end); });
}

bool is_own_operation(const std::string& name) {
  return name.starts_with("op_") && name.ends_with("_ns") && !name.starts_with("op_host_sync");
}

std::optional<double> seconds_per_unit(const std::string& name) {
  if (!is_duration_metric(name)) return std::nullopt;
  if (name.ends_with("_ns")) return 1e-9;
  if (name.ends_with("_us")) return 1e-6;
  if (name.ends_with("_ms")) return 1e-3;
  constexpr std::array kSeconds = {"_s", "_sec", "_seconds"};
  const bool says_seconds = std::any_of(kSeconds.begin(), kSeconds.end(),
                                        [&](const char* end) { return name.ends_with(end); });
  return says_seconds ? std::optional(1.0) : std::nullopt;
}

namespace {

/// Rates, times and what the system counts.
bool is_measured(const std::string& name) {
  constexpr std::array kWords = {"rss", "dram_", "_per_", "tflops", "gflops", "percent", "ratio"};
  return is_duration_metric(name) ||
         std::any_of(kWords.begin(), kWords.end(),
                     [&](const char* word) { return name.find(word) != std::string::npos; });
}

}  // namespace

bool may_be_counter(const std::string& name, const std::vector<double>& a,
                    const std::vector<double>& b) {
  constexpr size_t kFewest = 3;
  return is_exact_metric(name) ||
         (!is_measured(name) && a.size() >= kFewest && b.size() >= kFewest);
}

bool is_exact_metric(const std::string& name) {
  constexpr std::array kEnds = {"_bytes", "_count", "_flops", "_memory"};
  if (name == "flops") return true;
  if (is_measured(name)) return false;
  return name.starts_with("num_") || name.starts_with("memory_") || name.starts_with("peak_") ||
         std::any_of(kEnds.begin(), kEnds.end(),
                     [&](const char* end) { return name.ends_with(end); });
}

}  // namespace moetune::sweeps
