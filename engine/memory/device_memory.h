// Device memory of one rank: every allocation is booked in the ledger by name and group; blocks are
// kept and reused by size, so that a step after the first asks the device for nothing.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kernels/backend.h"
#include "profiler/memory_ledger.h"

namespace moetune::engine {

using profiler::MemoryGroup;

class DeviceMemory {
 public:
  DeviceMemory(kernels::Backend& backend, int rank, int64_t capacity_bytes)
      : backend_(backend), ledger_(rank, capacity_bytes) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// Throws base::OutOfMemory past the capacity. Null for zero bytes. Contents are undefined.
  void* allocate(const char* name, MemoryGroup group, int64_t bytes);
  void release(MemoryGroup group, void* pointer, int64_t bytes);
  /// Brings the free blocks into an order that does not depend on the step before: equal steps then
  /// get equal addresses, which is what captured graphs live on.
  void begin_step();

  /// What has been taken from the device: what is in use and what is kept for reuse.
  [[nodiscard]] int64_t held_bytes() const { return held_bytes_; }
  [[nodiscard]] const profiler::MemoryLedger& ledger() const { return ledger_; }

 private:
  kernels::Backend& backend_;
  profiler::MemoryLedger ledger_;
  std::map<int64_t, std::vector<void*>> free_blocks_;  ///< by aligned size
  std::vector<void*> blocks_;
  int64_t held_bytes_ = 0;
};

}  // namespace moetune::engine
