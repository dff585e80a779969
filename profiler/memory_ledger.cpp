// Keeps the sums by group, and copies them whenever a rank reaches a new peak.
#include "profiler/memory_ledger.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace moetune::profiler {

const char* name_of(MemoryGroup group) {
  static constexpr std::array<const char*, kNumMemoryGroups> kNames = {
      "weights", "gradients", "optimizer", "activations", "workspace", "communication"};
  return kNames[static_cast<size_t>(group)];
}

MemoryLedger::MemoryLedger(int rank, int64_t capacity_bytes)
    : rank_(rank), capacity_bytes_(capacity_bytes) {}

void MemoryLedger::allocate(const char* name, MemoryGroup group, int64_t bytes) {
  const int64_t booked = aligned_bytes(bytes);
  if (capacity_bytes_ > 0 && in_use_bytes_ + booked > capacity_bytes_) {
    throw base::OutOfMemory(name, name_of(group), booked, in_use_bytes_, capacity_bytes_, rank_);
  }
  const auto index = static_cast<size_t>(group);
  in_use_bytes_ += booked;
  in_use_by_group_[index] += booked;
  ++num_allocations_;
  if (in_use_bytes_ > peak_bytes_) {
    peak_bytes_ = in_use_bytes_;
    peak_by_group_ = in_use_by_group_;
    peak_allocation_ = name;
  }
}

void MemoryLedger::release(MemoryGroup group, int64_t bytes) {
  const int64_t booked = aligned_bytes(bytes);
  in_use_bytes_ -= booked;
  in_use_by_group_[static_cast<size_t>(group)] -= booked;
}

}  // namespace moetune::profiler
