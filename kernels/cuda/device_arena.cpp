// See device_arena.h. The driver's functions are asked for at run time: the program links no driver
// and starts on machines without one.
#include "kernels/cuda/device_arena.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/cuda/runtime_check.h"

namespace moetune::kernels::cuda {

struct ArenaDriver {
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) release_range = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuGetErrorString) error_string = nullptr;
  bool is_complete = false;
};

namespace {

/// Physical memory comes in pieces of at least this size, so that few calls are needed.
constexpr int64_t kPieceBytes = int64_t{64} << 20;

constexpr int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

template <typename F>
bool find(const char* name, F& function) {
  constexpr unsigned kVersion = 12000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess) return false;
  function = reinterpret_cast<F>(found);
  return function != nullptr;
}

ArenaDriver find_driver() {
  ArenaDriver d;
  d.is_complete = find("cuMemAddressReserve", d.reserve) &&
                  find("cuMemAddressFree", d.release_range) && find("cuMemCreate", d.create) &&
                  find("cuMemRelease", d.release) && find("cuMemMap", d.map) &&
                  find("cuMemUnmap", d.unmap) && find("cuMemSetAccess", d.set_access) &&
                  find("cuMemGetAllocationGranularity", d.granularity) &&
                  find("cuGetErrorString", d.error_string);
  return d;
}

void check_driver(const ArenaDriver& driver, CUresult status, const char* what) {
  const char* text = nullptr;
  if (status != CUDA_SUCCESS) static_cast<void>(driver.error_string(status, &text));
  MOETUNE_CHECK(status == CUDA_SUCCESS, "CUDA, {}: {}", what, text == nullptr ? "error" : text);
}

CUmemAllocationProp properties(int device) {
  CUmemAllocationProp made{};
  made.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  made.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  made.location.id = device;
  return made;
}

bool has_virtual_memory(int device) {
  int value = 0;
  // The runtime's enumeration does not name this one; the numbers are the driver's.
  constexpr auto kAttribute =
      static_cast<cudaDeviceAttr>(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  if (cudaDeviceGetAttribute(&value, kAttribute, device) == cudaSuccess) return value != 0;
  static_cast<void>(cudaGetLastError());
  return false;
}

}  // namespace

std::unique_ptr<DeviceArena> DeviceArena::make(int device) {
  static const ArenaDriver driver = find_driver();
  if (!driver.is_complete || !has_virtual_memory(device)) return nullptr;
  size_t granularity = 0;
  const CUmemAllocationProp made = properties(device);
  check_driver(driver,
               driver.granularity(&granularity, &made, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
               "granularity of memory");
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "memory information");
  const int64_t reserved = round_up(static_cast<int64_t>(total_bytes),
                                    std::max(kPieceBytes, static_cast<int64_t>(granularity)));
  CUdeviceptr base = 0;
  check_driver(driver, driver.reserve(&base, static_cast<size_t>(reserved), 0, 0, 0),
               "reserving addresses");
  return std::unique_ptr<DeviceArena>(
      new DeviceArena(device, driver, static_cast<int64_t>(granularity), base, reserved));
}

DeviceArena::DeviceArena(int device, const ArenaDriver& driver, int64_t granularity, uint64_t base,
                         int64_t reserved)
    : device_(device),
      driver_(driver),
      granularity_(granularity),
      base_(base),
      reserved_(reserved) {}

DeviceArena::~DeviceArena() {
  static_cast<void>(cudaDeviceSynchronize());
  for (const auto& [offset, bytes] : chunks_) {
    static_cast<void>(
        driver_.unmap(base_ + static_cast<uint64_t>(offset), static_cast<size_t>(bytes)));
  }
  static_cast<void>(driver_.release_range(base_, static_cast<size_t>(reserved_)));
}

void DeviceArena::grow(int64_t bytes) {
  const CUmemAllocationProp made = properties(device_);
  const int64_t needed = round_up(bytes, granularity_);
  int64_t piece = std::min(std::max(needed, kPieceBytes), reserved_ - mapped_);
  if (piece < needed) throw_out_of_memory(device_, bytes);
  CUmemGenericAllocationHandle handle = 0;
  CUresult status = driver_.create(&handle, static_cast<size_t>(piece), &made, 0);
  if (status == CUDA_ERROR_OUT_OF_MEMORY && piece > needed) {
    piece = needed;
    status = driver_.create(&handle, static_cast<size_t>(piece), &made, 0);
  }
  if (status == CUDA_ERROR_OUT_OF_MEMORY) throw_out_of_memory(device_, bytes);
  check_driver(driver_, status, "allocation");
  const uint64_t at = base_ + static_cast<uint64_t>(mapped_);
  status = driver_.map(at, static_cast<size_t>(piece), 0, handle, 0);
  // The mapping keeps the memory; the handle is not needed again.
  static_cast<void>(driver_.release(handle));
  check_driver(driver_, status, "mapping memory");
  chunks_[mapped_] = piece;
  add_free(mapped_, piece);
  mapped_ += piece;
  CUmemAccessDesc access{};
  access.location = made.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check_driver(driver_, driver_.set_access(at, static_cast<size_t>(piece), &access, 1),
               "access to memory");
}

void* DeviceArena::allocate(int64_t bytes) {
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), kAlignment);
  const auto best_fit = [&] {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second >= size && (best == free_.end() || it->second < best->second)) best = it;
    }
    return best;
  };
  auto found = best_fit();
  if (found == free_.end()) {
    // A free end of what is mapped counts.
    const bool has_tail =
        !free_.empty() && free_.rbegin()->first + free_.rbegin()->second == mapped_;
    grow(size - (has_tail ? free_.rbegin()->second : 0));
    found = best_fit();
  }
  const auto [offset, length] = *found;
  free_.erase(found);
  if (length > size) free_[offset + size] = length - size;
  blocks_[offset] = size;
  used_ += size;
  return reinterpret_cast<void*>(base_ + static_cast<uint64_t>(offset));
}

void DeviceArena::free(void* pointer) noexcept {
  const auto offset = static_cast<int64_t>(reinterpret_cast<uint64_t>(pointer) - base_);
  const auto found = blocks_.find(offset);
  if (found == blocks_.end()) return;
  used_ -= found->second;
  add_free(offset, found->second);
  blocks_.erase(found);
}

void DeviceArena::add_free(int64_t offset, int64_t bytes) {
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

}  // namespace moetune::kernels::cuda
