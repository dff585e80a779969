// Device memory by the driver's virtual-memory management: one range of addresses per rank, to
// which physical memory is added as it is needed. What has been handed out never moves, freed
// blocks grow together again, and nothing is lost to an allocator's size classes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

namespace moetune::kernels::cuda {

struct ArenaDriver;

/// Memory of the current device. One thread uses it.
class DeviceArena {
 public:
  /// Null where the driver or the device has no virtual-memory management.
  static std::unique_ptr<DeviceArena> make(int device);
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  /// Aligned to kAlignment. Throws base::OutOfMemory when the device has no more.
  void* allocate(int64_t bytes);
  /// The caller has seen to it that nothing on the device uses the block any more. The memory stays
  /// with the arena.
  void free(void* pointer) noexcept;

  [[nodiscard]] int64_t mapped_bytes() const { return mapped_; }
  [[nodiscard]] int64_t used_bytes() const { return used_; }

  static constexpr int64_t kAlignment = 512;

 private:
  DeviceArena(int device, const ArenaDriver& driver, int64_t granularity, uint64_t base,
              int64_t reserved);
  /// Maps physical memory at the end of what is mapped, at least `bytes`.
  void grow(int64_t bytes);
  /// Makes [offset, offset + bytes) free and joins it with free neighbours.
  void add_free(int64_t offset, int64_t bytes);

  int device_;
  const ArenaDriver& driver_;
  int64_t granularity_;
  uint64_t base_;
  int64_t reserved_;
  int64_t mapped_ = 0;
  int64_t used_ = 0;
  std::map<int64_t, int64_t> chunks_;  ///< mapped pieces: offset -> bytes
  std::map<int64_t, int64_t> free_;    ///< offset -> bytes
  std::map<int64_t, int64_t> blocks_;  ///< handed out: offset -> bytes
};

}  // namespace moetune::kernels::cuda
