// Device memory of one rank: every allocation is booked in the ledger by name and group, and lies
// in the arena of what lives as long as it does.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "engine/memory/block_allocator.h"
#include "kernels/backend.h"
#include "kernels/base/fnv.h"
#include "profiler/memory_ledger.h"

namespace moetune::engine {

using profiler::MemoryGroup;

/// Whether an allocation is as large in every step, or follows the routing. The second kind has
/// arenas of its own: otherwise it would move the first kind about, which captured graphs forbid.
enum class Sizing : uint8_t { fixed, routed };

/// Sees the blocks that are given out and taken back.
class MemoryObserver {
 public:
  virtual ~MemoryObserver() = default;
  virtual void on_allocate(MemoryGroup group, Sizing sizing, const void* at, int64_t bytes) = 0;
  virtual void on_release(MemoryGroup group, const void* at, int64_t bytes) = 0;
};

class DeviceMemory {
 public:
  DeviceMemory(kernels::Backend& backend, int rank, int64_t capacity_bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// Throws base::OutOfMemory past the capacity. Null for zero bytes. Contents are undefined.
  void* allocate(const char* name, MemoryGroup group, int64_t bytes, Sizing sizing = Sizing::fixed);
  void release(MemoryGroup group, void* pointer, int64_t bytes);
  /// Null: nobody. Must outlive the memory.
  void set_observer(MemoryObserver* observer) { observer_ = observer; }

  /// Hash of the addresses handed out since the last begin_trail(): equal programs leave equal
  /// trails.
  void begin_trail() { trail_ = kEmptyTrail; }
  [[nodiscard]] uint64_t trail() const { return trail_; }
  static constexpr uint64_t kEmptyTrail = base::kFnvStart;

  /// What arenas and workspaces have taken from the device: more than the ledger's peak by what
  /// lies between blocks and by arenas that are not full at the same time.
  [[nodiscard]] int64_t held_bytes() const;
  /// What the kernels' own workspaces have taken of it; in the ledger's group `workspace`, too.
  [[nodiscard]] int64_t workspace_bytes() const { return workspace_bytes_; }
  [[nodiscard]] const profiler::MemoryLedger& ledger() const { return ledger_; }

 private:
  /// Lifetime classes: from start to end, from forward to backward, within a part of a layer.
  enum class Lifetime : uint8_t { permanent, saved, scratch, count };
  struct Arena {
    std::unique_ptr<kernels::DeviceRange> range;  ///< made at the first allocation
    BlockAllocator blocks;
  };
  static Lifetime lifetime_of(MemoryGroup group);

  kernels::Backend& backend_;
  MemoryObserver* observer_ = nullptr;
  int rank_;
  profiler::MemoryLedger ledger_;
  int64_t capacity_bytes_;
  int64_t workspace_bytes_ = 0;
  uint64_t trail_ = kEmptyTrail;
  std::array<Arena, 2 * static_cast<size_t>(Lifetime::count)> arenas_;  ///< by sizing, lifetime
};

}  // namespace moetune::engine
