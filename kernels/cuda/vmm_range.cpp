// Memory mapped piece by piece into reserved addresses. The driver's functions are asked for at run
// time: the program links no driver and starts on machines without one.
#include "kernels/cuda/vmm_range.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/cuda/runtime_check.h"

namespace moetune::kernels::cuda {

struct VmmDriver {
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

constexpr int64_t kMostAheadBytes = int64_t{64} << 20;

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

VmmDriver find_driver() {
  VmmDriver d;
  d.is_complete = find("cuMemAddressReserve", d.reserve) &&
                  find("cuMemAddressFree", d.release_range) && find("cuMemCreate", d.create) &&
                  find("cuMemRelease", d.release) && find("cuMemMap", d.map) &&
                  find("cuMemUnmap", d.unmap) && find("cuMemSetAccess", d.set_access) &&
                  find("cuMemGetAllocationGranularity", d.granularity) &&
                  find("cuGetErrorString", d.error_string);
  return d;
}

const VmmDriver& the_driver() {
  static const VmmDriver driver = find_driver();
  return driver;
}

void check_driver(const VmmDriver& driver, CUresult status, const char* what) {
  const char* text = nullptr;
  if (status != CUDA_SUCCESS) static_cast<void>(driver.error_string(status, &text));
  if (status == CUDA_SUCCESS) return;
  throw_library_error(fmt::format("CUDA, {}: {}", what, text == nullptr ? "error" : text),
                      status == CUDA_ERROR_OUT_OF_MEMORY);
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

VmmRange::VmmRange(int device, int64_t most_bytes) : device_(device), driver_(the_driver()) {
  MOETUNE_CHECK(driver_.is_complete && has_virtual_memory(device),
                "GPU {} or its driver has no virtual-memory management", device);
  size_t granularity = 0;
  const CUmemAllocationProp made = properties(device);
  check_driver(driver_,
               driver_.granularity(&granularity, &made, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
               "granularity of memory");
  granularity_ = static_cast<int64_t>(granularity);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "memory information");
  const auto total = static_cast<int64_t>(total_bytes);
  reserved_ = round_up(most_bytes > 0 ? std::min(most_bytes, total) : total, granularity_);
  CUdeviceptr base = 0;
  check_driver(driver_, driver_.reserve(&base, static_cast<size_t>(reserved_), 0, 0, 0),
               "reserving addresses");
  base_ = reinterpret_cast<char*>(base);
}

VmmRange::~VmmRange() {
  static_cast<void>(cudaDeviceSynchronize());
  const auto base = reinterpret_cast<CUdeviceptr>(base_);
  for (const Piece& piece : pieces_) {
    static_cast<void>(driver_.unmap(base + static_cast<CUdeviceptr>(piece.offset),
                                    static_cast<size_t>(piece.bytes)));
  }
  static_cast<void>(driver_.release_range(base, static_cast<size_t>(reserved_)));
}

void VmmRange::grow(int64_t bytes) {
  if (bytes <= usable_bytes_) return;
  const int64_t needed = round_up(bytes - usable_bytes_, granularity_);
  if (usable_bytes_ + needed > reserved_) throw_out_of_memory(device_, bytes);
  // Ahead of what is asked for, so that few calls are needed, yet little is left over at the end.
  const int64_t ahead = std::min(kMostAheadBytes, round_up(usable_bytes_ / 8, granularity_));
  const int64_t piece = std::min(std::max(needed, ahead), reserved_ - usable_bytes_);
  if (map_piece(piece)) return;
  if (piece == needed || !map_piece(needed)) throw_allocation_failed(device_, needed);
}

bool VmmRange::map_piece(int64_t bytes) {
  const std::scoped_lock lock(measuring_mutex());
  const CUmemAllocationProp made = properties(device_);
  const auto size = static_cast<size_t>(bytes);
  CUmemGenericAllocationHandle handle = 0;
  CUresult status = driver_.create(&handle, size, &made, 0);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return false;
  check_driver(driver_, status, "allocation");
  const auto at = reinterpret_cast<CUdeviceptr>(base_ + usable_bytes_);
  status = driver_.map(at, size, 0, handle, 0);
  // The mapping keeps the memory; the handle is not needed again.
  static_cast<void>(driver_.release(handle));
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return false;
  check_driver(driver_, status, "mapping memory");
  pieces_.push_back({usable_bytes_, bytes});
  CUmemAccessDesc access{};
  access.location = made.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check_driver(driver_, driver_.set_access(at, size, &access, 1), "access to memory");
  usable_bytes_ += bytes;
  return true;
}

}  // namespace moetune::kernels::cuda
