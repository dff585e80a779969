// Which addresses are memory of a device or pinned memory of the host; everything else is ordinary
// memory of the host, which a device cannot reach.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moetune::simt {

enum class Place : uint8_t { pageable, pinned, device };

struct Region {
  size_t bytes = 0;
  Place place{};
  int device = 0;
  bool is_mapped = false;  ///< by the driver's virtual-memory management, not from cudaMalloc
};

// The lock of world() is held by callers.

void add_region(const void* begin, const Region& region);
void remove_region(const void* begin);

/// The region that `address` is in, or null.
const Region* find_region(const void* address);
Place place_of(const void* address);

/// True when all bytes are memory of the address's place: no further than what was allocated.
bool is_inside(const void* address, size_t bytes);

/// Counts memory against the device's capacity; false when there is not enough left.
bool take_memory(int device, size_t bytes);
void give_memory(int device, size_t bytes);
size_t free_memory(int device);

}  // namespace moetune::simt
