// Booking and reuse of device blocks; see device_memory.h.
#include "engine/memory/device_memory.h"

#include <algorithm>

namespace moetune::engine {

DeviceMemory::~DeviceMemory() {
  for (void* block : blocks_) backend_.free(block);
}

void* DeviceMemory::allocate(const char* name, MemoryGroup group, int64_t bytes) {
  if (bytes == 0) return nullptr;
  ledger_.allocate(name, group, bytes);
  std::vector<void*>& reusable = free_blocks_[profiler::aligned_bytes(bytes)];
  if (!reusable.empty()) {
    void* block = reusable.back();
    reusable.pop_back();
    return block;
  }
  void* block = backend_.allocate(profiler::aligned_bytes(bytes));
  blocks_.push_back(block);
  held_bytes_ += profiler::aligned_bytes(bytes);
  return block;
}

void DeviceMemory::release(MemoryGroup group, void* pointer, int64_t bytes) {
  if (pointer == nullptr) return;
  ledger_.release(group, bytes);
  free_blocks_[profiler::aligned_bytes(bytes)].push_back(pointer);
}

void DeviceMemory::begin_step() {
  for (auto& [bytes, blocks] : free_blocks_) std::sort(blocks.begin(), blocks.end());
}

}  // namespace moetune::engine
