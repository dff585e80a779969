// The driver's virtual-memory management for the fake device: addresses are reserved without access
// and physical memory, an anonymous file, is put there by mmap, so that touching what is not mapped
// ends the program. Reached as on a card, by asking the runtime for the driver's functions.
#include <cuda.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string_view>

#include "tests/fakes/simt/simt_memory.h"
#include "tests/fakes/simt/simt_streams.h"

namespace moetune::simt {
namespace {

constexpr size_t kGranularity = size_t{2} << 20;

struct Physical {
  int file = -1;
  size_t bytes = 0;
  int device = 0;
  int num_uses = 1;  ///< the handle and the mappings
};

struct Mapping {
  size_t bytes = 0;
  CUmemGenericAllocationHandle memory = 0;
};

struct Driver {
  std::map<CUdeviceptr, size_t> ranges;  ///< reserved addresses
  std::map<CUdeviceptr, Mapping> mappings;
  std::map<CUmemGenericAllocationHandle, Physical> memory;
  std::map<CUmemGenericAllocationHandle, bool> handles;  ///< not released yet
  CUmemGenericAllocationHandle last_handle = 0;
};

Driver& driver() {
  static auto* all = new Driver;
  return *all;
}

void* address_of(CUdeviceptr pointer) {
  return reinterpret_cast<void*>(static_cast<uintptr_t>(pointer));
}

/// The frame of each function of the driver.
template <typename Body>
CUresult drive(const char* function, const Body& body) {
  const std::lock_guard lock(world().mutex);
  cudaError_t error = cudaSuccess;
  if (is_faulty(function, error)) return CUDA_ERROR_UNKNOWN;
  if (world().device_count == 0) return CUDA_ERROR_NO_DEVICE;
  if (world().failure != cudaSuccess) return CUDA_ERROR_LAUNCH_FAILED;
  return body();
}

bool is_granular(size_t bytes) { return bytes > 0 && bytes % kGranularity == 0; }

/// The reserved range that holds all of it.
bool is_reserved(CUdeviceptr begin, size_t bytes) {
  auto found = driver().ranges.upper_bound(begin);
  if (found == driver().ranges.begin()) return false;
  --found;
  return begin + bytes <= found->first + found->second;
}

/// The first mapping that ends behind `begin`, if it begins before `end`.
std::map<CUdeviceptr, Mapping>::iterator first_mapping(CUdeviceptr begin, CUdeviceptr end) {
  auto& mappings = driver().mappings;
  auto found = mappings.upper_bound(begin);
  if (found != mappings.begin() &&
      std::prev(found)->first + std::prev(found)->second.bytes > begin) {
    --found;
  }
  return found != mappings.end() && found->first < end ? found : mappings.end();
}

/// True when mappings begin and end with the range and leave no hole in it.
bool is_mapped_whole(CUdeviceptr begin, size_t bytes) {
  CUdeviceptr reached = begin;
  for (auto it = first_mapping(begin, begin + bytes);
       it != driver().mappings.end() && it->first == reached && reached < begin + bytes; ++it) {
    reached += it->second.bytes;
  }
  return reached == begin + bytes;
}

void drop_use(CUmemGenericAllocationHandle handle) {
  const auto found = driver().memory.find(handle);
  if (--found->second.num_uses > 0) return;
  close(found->second.file);
  give_memory(found->second.device, found->second.bytes);
  driver().memory.erase(found);
}

CUresult reserve(CUdeviceptr* pointer, size_t bytes, size_t alignment, CUdeviceptr,
                 unsigned long long) {
  return drive("cuMemAddressReserve", [&] {
    if (!is_granular(bytes)) return CUDA_ERROR_INVALID_VALUE;
    const size_t unit = std::max(alignment, kGranularity);
    if ((unit & (unit - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
    void* found =
        mmap(nullptr, bytes + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    const auto begin = reinterpret_cast<uintptr_t>(found);
    const uintptr_t aligned = (begin + unit - 1) / unit * unit;
    if (aligned > begin) munmap(found, aligned - begin);
    munmap(address_of(aligned + bytes), begin + unit - aligned);
    *pointer = aligned;
    driver().ranges[aligned] = bytes;
    return CUDA_SUCCESS;
  });
}

CUresult free_range(CUdeviceptr pointer, size_t bytes) {
  return drive("cuMemAddressFree", [&] {
    const auto found = driver().ranges.find(pointer);
    if (found == driver().ranges.end() || found->second != bytes ||
        first_mapping(pointer, pointer + bytes) != driver().mappings.end()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    munmap(address_of(pointer), bytes);
    driver().ranges.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t bytes,
                const CUmemAllocationProp* properties, unsigned long long) {
  return drive("cuMemCreate", [&] {
    if (!is_granular(bytes) || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const int device = properties->location.id;
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0 ||
        device >= world().device_count) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!take_memory(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    const int file = memfd_create("simt", MFD_CLOEXEC);
    void* fresh = MAP_FAILED;
    if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0) {
      fresh = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    if (fresh == MAP_FAILED) {
      if (file >= 0) close(file);
      give_memory(device, bytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    std::memset(fresh, 0xFF, bytes);
    munmap(fresh, bytes);
    *handle = ++driver().last_handle;
    driver().memory[*handle] = {file, bytes, device, 1};
    driver().handles[*handle] = true;
    return CUDA_SUCCESS;
  });
}

CUresult release(CUmemGenericAllocationHandle handle) {
  return drive("cuMemRelease", [&] {
    if (driver().handles.erase(handle) == 0) return CUDA_ERROR_INVALID_VALUE;
    drop_use(handle);
    return CUDA_SUCCESS;
  });
}

CUresult map(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
             unsigned long long) {
  return drive("cuMemMap", [&] {
    if (!driver().handles.contains(handle)) return CUDA_ERROR_INVALID_VALUE;
    Physical& memory = driver().memory.at(handle);
    const bool is_free = first_mapping(pointer, pointer + bytes) == driver().mappings.end();
    if (offset != 0 || bytes != memory.bytes || pointer % kGranularity != 0 ||
        !is_reserved(pointer, bytes) || !is_free) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (mmap(address_of(pointer), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory.file, 0) ==
        MAP_FAILED) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ++memory.num_uses;
    driver().mappings[pointer] = {bytes, handle};
    add_region(address_of(pointer), {bytes, Place::device, memory.device, true});
    return CUDA_SUCCESS;
  });
}

CUresult unmap(CUdeviceptr pointer, size_t bytes) {
  return drive("cuMemUnmap", [&] {
    if (bytes == 0 || !is_mapped_whole(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
    mmap(address_of(pointer), bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    for (auto it = driver().mappings.find(pointer);
         it != driver().mappings.end() && it->first < pointer + bytes;) {
      remove_region(address_of(it->first));
      drop_use(it->second.memory);
      it = driver().mappings.erase(it);
    }
    return CUDA_SUCCESS;
  });
}

CUresult set_access(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc* access,
                    size_t count) {
  return drive("cuMemSetAccess", [&] {
    if (bytes == 0 || !is_mapped_whole(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
    int allowed = PROT_NONE;
    for (size_t i = 0; i < count; ++i) {
      if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
      if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ) allowed |= PROT_READ;
      if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) allowed |= PROT_READ | PROT_WRITE;
    }
    mprotect(address_of(pointer), bytes, allowed);
    return CUDA_SUCCESS;
  });
}

CUresult granularity(size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  return drive("cuMemGetAllocationGranularity", [&] {
    *bytes = kGranularity;
    return CUDA_SUCCESS;
  });
}

CUresult memory_info(size_t* free, size_t* total) {
  return drive("cuMemGetInfo", [&] {
    *free = free_memory(current_device());
    *total = static_cast<size_t>(world().capacity_bytes);
    return CUDA_SUCCESS;
  });
}

CUresult error_string(CUresult error, const char** text) {
  switch (error) {
    case CUDA_SUCCESS:
      *text = "no error";
      break;
    case CUDA_ERROR_INVALID_VALUE:
      *text = "invalid argument";
      break;
    case CUDA_ERROR_OUT_OF_MEMORY:
      *text = "out of memory";
      break;
    case CUDA_ERROR_NO_DEVICE:
      *text = "no CUDA-capable device is detected";
      break;
    case CUDA_ERROR_INVALID_DEVICE:
      *text = "invalid device ordinal";
      break;
    case CUDA_ERROR_LAUNCH_FAILED:
      *text = "unspecified launch failure";
      break;
    case CUDA_ERROR_UNKNOWN:
      *text = "unknown error";
      break;
    default:
      *text = nullptr;
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

struct Entry {
  void* function = nullptr;
  unsigned since = 0;  ///< the version of CUDA that brought it
};

template <typename F>
void* pointer_of(F* function) {
  return reinterpret_cast<void*>(function);
}

Entry find_entry(std::string_view name) {
  static const auto* entries = new std::map<std::string_view, Entry>{
      {"cuMemAddressReserve", {pointer_of(reserve), 10020}},
      {"cuMemAddressFree", {pointer_of(free_range), 10020}},
      {"cuMemCreate", {pointer_of(create), 10020}},
      {"cuMemRelease", {pointer_of(release), 10020}},
      {"cuMemMap", {pointer_of(map), 10020}},
      {"cuMemUnmap", {pointer_of(unmap), 10020}},
      {"cuMemSetAccess", {pointer_of(set_access), 10020}},
      {"cuMemGetAllocationGranularity", {pointer_of(granularity), 10020}},
      {"cuMemGetInfo", {pointer_of(memory_info), 3020}},
      {"cuGetErrorString", {pointer_of(error_string), 6000}},
  };
  const auto found = entries->find(name);
  return found == entries->end() ? Entry{} : found->second;
}

cudaError_t entry_point(const char* symbol, void** function, unsigned version,
                        cudaDriverEntryPointQueryResult* result) {
  const Entry entry = find_entry(symbol);
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSuccess;
  if (entry.function == nullptr) found = cudaDriverEntryPointSymbolNotFound;
  if (entry.since > version) found = cudaDriverEntryPointVersionNotSufficent;
  *function = found == cudaDriverEntryPointSuccess ? entry.function : nullptr;
  if (result != nullptr) *result = found;
  return cudaSuccess;
}

}  // namespace
}  // namespace moetune::simt

using namespace moetune::simt;

extern "C" {

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  return call("cudaGetDriverEntryPointByVersion",
              [&] { return entry_point(symbol, function, version, result); });
}

cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long,
                                    cudaDriverEntryPointQueryResult* result) {
  return call("cudaGetDriverEntryPoint",
              [&] { return entry_point(symbol, function, CUDART_VERSION, result); });
}

}  // extern "C"
