// Booking and reuse of device blocks; see device_memory.h.
#include "engine/memory/device_memory.h"

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
  return block;
}

void DeviceMemory::release(MemoryGroup group, void* pointer, int64_t bytes) {
  if (pointer == nullptr) return;
  ledger_.release(group, bytes);
  free_blocks_[profiler::aligned_bytes(bytes)].push_back(pointer);
}

}  // namespace moetune::engine
