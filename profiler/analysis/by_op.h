// What is known of some operations of a trace, such as the collectives among them. Many ranks have
// a million of those: a map of them would take several times the memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace moetune::profiler {

template <typename Value>
class ByOp {
 public:
  struct Entry {
    uint32_t op = 0;  ///< row of the trace's ops
    Value value;
  };

  ByOp() = default;
  /// In any order. Of several entries of one operation the last one counts.
  explicit ByOp(std::vector<Entry> entries) : entries_(std::move(entries)) {
    if (!std::ranges::is_sorted(entries_, {}, &Entry::op)) {
      std::ranges::stable_sort(entries_, {}, &Entry::op);
    }
  }

  /// Null: nothing is known of that operation.
  [[nodiscard]] const Value* find(uint32_t op) const {
    const auto behind = std::ranges::upper_bound(entries_, op, {}, &Entry::op);
    if (behind == entries_.begin() || std::prev(behind)->op != op) return nullptr;
    return &std::prev(behind)->value;
  }
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;  ///< by op
};

/// The same of each trace, from the entries of each.
template <typename Value>
std::vector<ByOp<Value>> sorted_by_op(
    std::vector<std::vector<typename ByOp<Value>::Entry>> entries) {
  std::vector<ByOp<Value>> by_trace;
  for (auto& own : entries) by_trace.emplace_back(std::move(own));
  return by_trace;
}

}  // namespace moetune::profiler
