// Books an allocation first and gives it a place in its arena afterwards, so that what the ledger
// refuses was never taken.
#include "engine/memory/device_memory.h"

#include "kernels/base/error.h"
#include "kernels/base/fnv.h"

namespace moetune::engine {
namespace {

/// An arena's blocks do not fit as tightly as the ledger counts; the emulated device may be a
/// little larger than it says, so that only the ledger decides what fits.
constexpr int64_t kSlackFactor = 2;

}  // namespace

DeviceMemory::DeviceMemory(kernels::Backend& backend, int rank, int64_t capacity_bytes)
    : backend_(backend),
      rank_(rank),
      ledger_(rank, capacity_bytes),
      capacity_bytes_(capacity_bytes) {
  backend_.set_workspace_booking([this](int64_t bytes) {
    ledger_.allocate("workspaces of kernels", MemoryGroup::workspace, bytes);
    workspace_bytes_ += profiler::aligned_bytes(bytes);
  });
}

DeviceMemory::~DeviceMemory() { backend_.set_workspace_booking({}); }

DeviceMemory::Lifetime DeviceMemory::lifetime_of(MemoryGroup group) {
  switch (group) {
    case MemoryGroup::weights:
    case MemoryGroup::gradients:
    case MemoryGroup::optimizer:
      return Lifetime::permanent;
    case MemoryGroup::activations:
      return Lifetime::saved;
    case MemoryGroup::workspace:
    case MemoryGroup::communication:
      break;
  }
  return Lifetime::scratch;
}

void* DeviceMemory::allocate(const char* name, MemoryGroup group, int64_t bytes, Sizing sizing) {
  if (bytes == 0) return nullptr;
  ledger_.allocate(name, group, bytes);
  const auto index = static_cast<size_t>(sizing) * static_cast<size_t>(Lifetime::count) +
                     static_cast<size_t>(lifetime_of(group));
  Arena& arena = arenas_[index];
  if (!arena.range) arena.range = backend_.make_range(capacity_bytes_ * kSlackFactor);
  const int64_t size = profiler::aligned_bytes(bytes);
  std::optional<int64_t> offset = arena.blocks.allocate(size);
  if (!offset) {
    try {
      arena.range->grow(arena.blocks.size_bytes() + arena.blocks.missing_bytes(size));
    } catch (const base::OutOfMemory& error) {
      // The driver knows neither the name nor the rank.
      throw base::OutOfMemory(fmt::format("{}, as the driver says", name), name_of(group), bytes,
                              error.in_use_bytes, error.capacity_bytes, rank_);
    }
    arena.blocks.extend(arena.range->usable_bytes() - arena.blocks.size_bytes());
    offset = arena.blocks.allocate(size);
  }
  char* place = arena.range->base() + offset.value();
  trail_ = base::fnv_with(trail_, reinterpret_cast<uint64_t>(place));
  if (observer_ != nullptr) observer_->on_allocate(group, sizing, place, bytes);
  return place;
}

void DeviceMemory::release(MemoryGroup group, void* pointer, int64_t bytes) {
  if (pointer == nullptr) return;
  ledger_.release(group, bytes);
  if (observer_ != nullptr) observer_->on_release(group, pointer, bytes);
  const char* at = static_cast<const char*>(pointer);
  for (Arena& arena : arenas_) {
    if (!arena.range || at < arena.range->base()) continue;
    const int64_t offset = at - arena.range->base();
    if (offset >= arena.blocks.size_bytes()) continue;
    arena.blocks.free(offset, profiler::aligned_bytes(bytes));
    return;
  }
  throw base::Error("a block is released that is in no arena");
}

int64_t DeviceMemory::held_bytes() const {
  int64_t held = workspace_bytes_;
  for (const Arena& arena : arenas_) held += arena.blocks.size_bytes();
  return held;
}

}  // namespace moetune::engine
