// Memory of the fake device: that of the host, but counted, known by its address, and fresh when it
// is new. See simt_memory.h.
#include "tests/fakes/simt/simt_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>

#include "tests/fakes/simt/simt_streams.h"

namespace moetune::simt {
namespace {

constexpr size_t kAlignmentBytes = 256;

struct Memory {
  std::map<uintptr_t, Region> regions;
  std::map<int, size_t> used;
};

Memory& memory() {
  static auto* all = new Memory;
  return *all;
}

uintptr_t number_of(const void* address) { return reinterpret_cast<uintptr_t>(address); }

std::map<uintptr_t, Region>::const_iterator region_at(uintptr_t address) {
  const auto& regions = memory().regions;
  auto found = regions.upper_bound(address);
  if (found == regions.begin()) return regions.end();
  --found;
  return address - found->first < std::max<size_t>(found->second.bytes, 1) ? found : regions.end();
}

cudaError_t allocate_host(void** pointer, size_t bytes, const char* function) {
  if (const cudaError_t status = refuse_while_capturing(function); status != cudaSuccess) {
    return status;
  }
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (posix_memalign(pointer, kAlignmentBytes, bytes) != 0) return cudaErrorMemoryAllocation;
  std::memset(*pointer, 0xFF, bytes);
  add_region(*pointer, {bytes, Place::pinned, current_device(), false});
  return cudaSuccess;
}

/// Frees what was allocated at `pointer` in this place, once nothing uses it any more.
cudaError_t release(void* pointer, Place place, const char* function) {
  if (pointer == nullptr) return cudaSuccess;
  if (const cudaError_t status = refuse_while_capturing(function); status != cudaSuccess) {
    return status;
  }
  const auto& regions = memory().regions;
  const auto found = regions.find(number_of(pointer));
  if (found == regions.end() || found->second.place != place || found->second.is_mapped) {
    return refuse(cudaErrorInvalidValue, fmt::format("{} of what was not allocated", function));
  }
  const Region region = found->second;
  const cudaError_t status = finish_device(region.device);
  remove_region(pointer);
  if (place == Place::device) give_memory(region.device, region.bytes);
  std::free(pointer);
  return status;
}

}  // namespace

void add_region(const void* begin, const Region& region) {
  memory().regions[number_of(begin)] = region;
}
void remove_region(const void* begin) { memory().regions.erase(number_of(begin)); }

const Region* find_region(const void* address) {
  const auto found = region_at(number_of(address));
  return found == memory().regions.end() ? nullptr : &found->second;
}

Place place_of(const void* address) {
  const Region* region = find_region(address);
  return region == nullptr ? Place::pageable : region->place;
}

bool is_inside(const void* address, size_t bytes) {
  const uintptr_t begin = number_of(address);
  const uintptr_t end = begin + bytes;
  auto found = region_at(begin);
  if (found == memory().regions.end()) return true;
  // Mapped pieces of one range follow each other.
  const Region first = found->second;
  uintptr_t reached = begin;
  while (found != memory().regions.end() && found->first <= reached &&
         found->second.place == first.place && found->second.is_mapped == first.is_mapped) {
    reached = found->first + found->second.bytes;
    if (reached >= end) return true;
    if (!first.is_mapped) return false;
    ++found;
  }
  return false;
}

bool take_memory(int device, size_t bytes) {
  if (bytes > free_memory(device)) return false;
  memory().used[device] += bytes;
  return true;
}
void give_memory(int device, size_t bytes) { memory().used[device] -= bytes; }

size_t free_memory(int device) {
  const auto capacity = static_cast<size_t>(world().capacity_bytes);
  const auto of_others = static_cast<size_t>(world().bytes_of_others);
  return capacity - std::min(capacity, memory().used[device] + of_others);
}

int64_t used_memory_bytes(int device) {
  const std::lock_guard lock(world().mutex);
  return static_cast<int64_t>(memory().used[device]);
}

}  // namespace moetune::simt

using namespace moetune::simt;

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return call("cudaMalloc", [&] {
    const cudaError_t status = refuse_while_capturing("cudaMalloc");
    if (status != cudaSuccess) return status;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    const int device = current_device();
    if (!take_memory(device, bytes)) return cudaErrorMemoryAllocation;
    // Exactly that long, so that the address sanitizer sees what goes past the end.
    if (posix_memalign(pointer, kAlignmentBytes, bytes) != 0) {
      give_memory(device, bytes);
      return cudaErrorMemoryAllocation;
    }
    std::memset(*pointer, 0xFF, bytes);
    add_region(*pointer, {bytes, Place::device, device, false});
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* pointer) {
  return call("cudaFree", [&] { return release(pointer, Place::device, "cudaFree"); });
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return call("cudaMallocHost", [&] { return allocate_host(pointer, bytes, "cudaMallocHost"); });
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  return call("cudaHostAlloc", [&] { return allocate_host(pointer, bytes, "cudaHostAlloc"); });
}
cudaError_t cudaFreeHost(void* pointer) {
  return call("cudaFreeHost", [&] { return release(pointer, Place::pinned, "cudaFreeHost"); });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call("cudaMemGetInfo", [&] {
    *free = free_memory(current_device());
    *total = static_cast<size_t>(world().capacity_bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return call("cudaPointerGetAttributes", [&] {
    const Region* region = find_region(pointer);
    *attributes = {};
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;  // cudaInvalidDeviceId
    if (region != nullptr) {
      const bool is_host = region->place == Place::pinned;
      attributes->type = is_host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
      attributes->device = region->device;
      attributes->devicePointer = const_cast<void*>(pointer);
      if (is_host) attributes->hostPointer = const_cast<void*>(pointer);
    } else {
      attributes->hostPointer = const_cast<void*>(pointer);
    }
    return cudaSuccess;
  });
}

}  // extern "C"
