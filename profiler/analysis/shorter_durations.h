// What a cause adds to operations, as what these would take without it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace moetune::profiler {

/// Durations of a replay's operations without a cause, in ns, of those that it may make longer.
class ShorterDurations {
 public:
  explicit ShorterDurations(size_t num_ops) : num_ops_(num_ops) {}

  void set(size_t op, int64_t ns) {
    if (ns_.empty()) ns_.assign(num_ops_, kNone);
    ns_[op] = ns;
  }
  [[nodiscard]] bool empty() const { return ns_.empty(); }
  [[nodiscard]] bool has(size_t op) const { return !empty() && ns_[op] != kNone; }
  /// Only where has() is true.
  [[nodiscard]] int64_t of(size_t op) const { return ns_[op]; }
  /// Never makes it longer.
  void shorten(size_t op, int64_t& duration_ns) const {
    if (has(op)) duration_ns = std::min(duration_ns, ns_[op]);
  }

 private:
  static constexpr int64_t kNone = -1;
  size_t num_ops_;
  std::vector<int64_t> ns_;  ///< by operation; empty: none
};

}  // namespace moetune::profiler
