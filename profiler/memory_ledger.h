// Every device allocation of a rank has a name and a group and passes here first: the ledger knows
// what is in use, what the peak was made of, and refuses what goes past the capacity.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace moetune::profiler {

enum class MemoryGroup : uint8_t {
  weights,
  gradients,
  optimizer,
  activations,  ///< saved for backward
  workspace,    ///< lives within one half of a layer
  communication,
};
constexpr int kNumMemoryGroups = 6;
const char* name_of(MemoryGroup group);

/// Allocations are rounded up to this, as the backends align them.
constexpr int64_t kAllocationAlignment = 256;
constexpr int64_t aligned_bytes(int64_t bytes) {
  return (bytes + kAllocationAlignment - 1) / kAllocationAlignment * kAllocationAlignment;
}

using GroupBytes = std::array<int64_t, kNumMemoryGroups>;

/// Accounting for one rank. A capacity of 0 means unlimited. Not thread-safe.
class MemoryLedger {
 public:
  MemoryLedger(int rank, int64_t capacity_bytes);

  /// Books `bytes` (rounded up). Throws base::OutOfMemory naming the allocation when the capacity
  /// is passed; nothing is booked then.
  void allocate(const char* name, MemoryGroup group, int64_t bytes);
  void release(MemoryGroup group, int64_t bytes);

  [[nodiscard]] int64_t in_use_bytes() const { return in_use_bytes_; }
  [[nodiscard]] int64_t peak_bytes() const { return peak_bytes_; }
  [[nodiscard]] int64_t capacity_bytes() const { return capacity_bytes_; }
  /// In use per group at the moment of the peak; sums to peak_bytes().
  [[nodiscard]] const GroupBytes& peak_by_group() const { return peak_by_group_; }
  /// The allocation that set the peak.
  [[nodiscard]] const std::string& peak_allocation() const { return peak_allocation_; }
  [[nodiscard]] int64_t num_allocations() const { return num_allocations_; }

 private:
  int rank_;
  int64_t capacity_bytes_;
  int64_t in_use_bytes_ = 0;
  int64_t peak_bytes_ = 0;
  int64_t num_allocations_ = 0;
  GroupBytes in_use_by_group_{};
  GroupBytes peak_by_group_{};
  std::string peak_allocation_;
};

}  // namespace moetune::profiler
