// Memory of the fake device, copies to and from it, and what it says of itself.
#include <cuda.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "tests/cuda/simt_fixture.h"

namespace moetune::simt {
BOOST_FIXTURE_TEST_SUITE(simt_memory, FreshDevice)

namespace {

constexpr size_t kMiB = size_t{1} << 20;

void set(int* to, int value) { to[threadIdx.x] = value; }

/// True when the byte can be read without a fault: the kernel is asked to.
bool is_readable(const void* address) {
  std::array<int, 2> ends{};
  BOOST_TEST_REQUIRE(pipe(ends.data()) == 0);
  const bool is_written = write(ends[1], address, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return is_written;
}

template <typename F>
F driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  CHECK_CUDA(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
  BOOST_TEST_REQUIRE(result == cudaDriverEntryPointSuccess);
  return reinterpret_cast<F>(found);
}
#define DRIVER(NAME) driver_function<decltype(&NAME)>(#NAME)

CUmemAllocationProp on_device(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

CUmemAccessDesc read_and_write(int device) {
  CUmemAccessDesc access{};
  access.location = on_device(device).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

}  // namespace

// --- copies -----------------------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(ordinary_memory_is_read_at_the_call_and_pinned_memory_later) {
  for (const cudaMemcpyKind kind : {cudaMemcpyHostToDevice, cudaMemcpyDefault}) {
    set_schedule(adversarial(1));
    const OwnStream stream;
    const OnDevice data(2);
    int pageable = 1;
    int* pinned = nullptr;
    CHECK_CUDA(cudaMallocHost(&pinned, sizeof(int)));
    *pinned = 1;
    CHECK_CUDA(cudaMemcpyAsync(data.data(), &pageable, 4, kind, stream));
    CHECK_CUDA(cudaMemcpyAsync(data.data() + 1, pinned, 4, kind, stream));
    BOOST_TEST(data.first() == -1);
    pageable = 2;
    *pinned = 2;
    CHECK_CUDA(cudaStreamSynchronize(stream));
    BOOST_TEST(data.read() == (std::vector<int>{1, 2}), boost::test_tools::per_element());
    CHECK_CUDA(cudaFreeHost(pinned));
  }
}

BOOST_AUTO_TEST_CASE(ordinary_memory_is_written_at_the_return_and_pinned_memory_later) {
  for (const cudaMemcpyKind kind : {cudaMemcpyDeviceToHost, cudaMemcpyDefault}) {
    set_schedule(adversarial(1));
    const OwnStream stream;
    const OnDevice data(1);
    int pageable = 0;
    int* pinned = nullptr;
    CHECK_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&pinned), sizeof(int), 0));
    *pinned = 0;
    CHECK_CUDA(cudaMemsetAsync(data.data(), 0x11, 4, stream));
    CHECK_CUDA(cudaMemcpyAsync(pinned, data.data(), 4, kind, stream));
    BOOST_TEST(*pinned == 0);
    CHECK_CUDA(cudaMemcpyAsync(&pageable, data.data(), 4, kind, stream));
    BOOST_TEST(pageable == 0x11111111);
    BOOST_TEST(*pinned == 0x11111111);  // came first on the stream
    CHECK_CUDA(cudaFreeHost(pinned));
  }
}

BOOST_AUTO_TEST_CASE(synchronous_copies_wait_unless_both_ends_are_on_the_device) {
  set_schedule(adversarial(1));
  const OnDevice data(2);
  int value = 5;
  CHECK_CUDA(cudaMemcpy(data.data(), &value, 4, cudaMemcpyHostToDevice));
  BOOST_TEST(data.first() == 5);
  CHECK_CUDA(cudaMemcpy(data.data() + 1, data.data(), 4, cudaMemcpyDeviceToDevice));
  BOOST_TEST(data.read()[1] == -1);
  CHECK_CUDA(cudaMemset(data.data(), 0, 4));  // nor does the host wait for a fill
  BOOST_TEST(data.first() == 5);
  CHECK_CUDA(cudaMemcpy(&value, data.data(), 4, cudaMemcpyDeviceToHost));
  BOOST_TEST(value == 0);
  BOOST_TEST(data.read()[1] == 5);
}

BOOST_AUTO_TEST_CASE(rows_are_copied_and_filled) {
  for (const Schedule schedule : {in_order(), adversarial(1)}) {
    set_schedule(schedule);
    const OwnStream stream;
    const OnDevice data(12);  // rows of 4
    std::vector<int> host(6);
    for (int i = 0; i < 6; ++i) host[i] = i;
    CHECK_CUDA(
        cudaMemcpy2DAsync(data.data(), 16, host.data(), 8, 8, 3, cudaMemcpyHostToDevice, stream));
    host.assign(6, 9);
    CHECK_CUDA(cudaMemset2DAsync(data.data() + 3, 16, 0, 4, 3, stream));
    CHECK_CUDA(cudaStreamSynchronize(stream));
    const std::vector<int> expected{0, 1, -1, 0, 2, 3, -1, 0, 4, 5, -1, 0};
    BOOST_TEST(data.read() == expected, boost::test_tools::per_element());
    CHECK_CUDA(cudaMemcpy2D(host.data(), 8, data.data(), 16, 8, 3, cudaMemcpyDeviceToHost));
    BOOST_TEST(host == (std::vector<int>{0, 1, 2, 3, 4, 5}), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(copies_are_checked) {
  const OwnStream stream;
  const OnDevice data(4);
  std::array<int, 8> host{};
  CHECK_REFUSED(cudaMemcpyAsync(host.data(), host.data(), 4, cudaMemcpyHostToDevice, stream),
                cudaErrorInvalidValue);
  CHECK_REFUSED(cudaMemcpyAsync(data.data(), data.data(), 4, cudaMemcpyHostToDevice, stream),
                cudaErrorInvalidValue);
  CHECK_REFUSED(cudaMemcpyAsync(data.data(), host.data(), 20, cudaMemcpyHostToDevice, stream),
                cudaErrorInvalidValue);
  CHECK_REFUSED(cudaMemcpyAsync(host.data(), data.data() + 1, 16, cudaMemcpyDefault, stream),
                cudaErrorInvalidValue);
  CHECK_REFUSED(cudaMemsetAsync(host.data(), 0, 4, stream), cudaErrorInvalidValue);
  CHECK_REFUSED(cudaMemsetAsync(data.data(), 0, 17, stream), cudaErrorInvalidValue);
  CHECK_REFUSED(cudaMemcpy2DAsync(data.data(), 8, host.data(), 8, 12, 2, cudaMemcpyDefault, stream),
                cudaErrorInvalidPitchValue);
  BOOST_TEST(data.read() == std::vector<int>(4, -1), boost::test_tools::per_element());
  CHECK_CUDA(cudaMemcpyAsync(data.data() + 1, host.data(), 12, cudaMemcpyDefault, stream));
  CHECK_CUDA(cudaMemcpyAsync(nullptr, nullptr, 0, cudaMemcpyDefault, stream));
}

// --- allocations ------------------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(the_capacity_is_the_end) {
  const int64_t before = used_memory_bytes();
  set_memory_capacity(before + 1000);
  void* first = nullptr;
  void* second = nullptr;
  CHECK_CUDA(cudaMalloc(&first, 600));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  CHECK_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  BOOST_TEST(free_bytes == 400U);
  BOOST_TEST(total_bytes == static_cast<size_t>(before) + 1000);
  CHECK_REFUSED(cudaMalloc(&second, 401), cudaErrorMemoryAllocation);
  BOOST_TEST(cudaGetErrorString(cudaErrorMemoryAllocation) == std::string("out of memory"));
  BOOST_TEST(second == nullptr);
  CHECK_CUDA(cudaMalloc(&second, 400));
  CHECK_CUDA(cudaFree(second));
  CHECK_CUDA(cudaFree(first));
  BOOST_TEST(used_memory_bytes() == before);
  CHECK_REFUSED(cudaFree(first), cudaErrorInvalidValue);
  CHECK_CUDA(cudaFree(nullptr));
}

BOOST_AUTO_TEST_CASE(a_free_waits_for_the_device) {
  set_schedule(adversarial(1));
  const OwnStream stream;
  void* memory = nullptr;
  CHECK_CUDA(cudaMalloc(&memory, 64));
  CHECK_CUDA(start(stream, 16, set, static_cast<int*>(memory), 1));
  BOOST_TEST(num_pending() == 1);
  CHECK_CUDA(cudaFree(memory));
  BOOST_TEST(num_pending() == 0);
}

BOOST_AUTO_TEST_CASE(places_are_known) {
  const OnDevice data(4);
  int* pinned = nullptr;
  int pageable = 0;
  CHECK_CUDA(cudaMallocHost(&pinned, 16));
  const auto type_of = [](const void* pointer) {
    cudaPointerAttributes attributes{};
    CHECK_CUDA(cudaPointerGetAttributes(&attributes, pointer));
    return attributes.type;
  };
  BOOST_TEST(type_of(data.data()) == cudaMemoryTypeDevice);
  BOOST_TEST(type_of(data.data() + 3) == cudaMemoryTypeDevice);
  BOOST_TEST(type_of(pinned + 3) == cudaMemoryTypeHost);
  BOOST_TEST(type_of(&pageable) == cudaMemoryTypeUnregistered);
  CHECK_REFUSED(cudaFree(pinned), cudaErrorInvalidValue);
  CHECK_CUDA(cudaFreeHost(pinned));
  BOOST_TEST(type_of(pinned) == cudaMemoryTypeUnregistered);
}

// --- virtual memory ---------------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(a_reserved_range_is_filled_piece_by_piece) {
  const int64_t before = used_memory_bytes();
  set_memory_capacity(before + static_cast<int64_t>(7 * kMiB));
  const auto reserve = DRIVER(cuMemAddressReserve);
  const auto create = DRIVER(cuMemCreate);
  const auto map = DRIVER(cuMemMap);
  const auto unmap = DRIVER(cuMemUnmap);
  const auto release = DRIVER(cuMemRelease);
  const auto set_access = DRIVER(cuMemSetAccess);
  const CUmemAllocationProp properties = on_device(0);
  const CUmemAccessDesc access = read_and_write(0);
  size_t unit = 0;
  BOOST_TEST_REQUIRE(DRIVER(cuMemGetAllocationGranularity)(
                         &unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS);
  BOOST_TEST(unit == 2 * kMiB);

  CUdeviceptr range = 0;
  BOOST_TEST(reserve(&range, kMiB, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  BOOST_TEST_REQUIRE(reserve(&range, 64 * kMiB, 0, 0, 0) == CUDA_SUCCESS);
  BOOST_TEST(range % unit == 0U);
  auto* const begin = reinterpret_cast<unsigned char*>(range);
  BOOST_TEST(!is_readable(begin));

  // Two pieces of different size, one behind the other.
  size_t offset = 0;
  for (const size_t bytes : {2 * kMiB, 4 * kMiB}) {
    CUmemGenericAllocationHandle handle = 0;
    BOOST_TEST_REQUIRE(create(&handle, bytes, &properties, 0) == CUDA_SUCCESS);
    BOOST_TEST_REQUIRE(map(range + offset, bytes, 0, handle, 0) == CUDA_SUCCESS);
    BOOST_TEST(map(range + offset, bytes, 0, handle, 0) == CUDA_ERROR_INVALID_VALUE);  // taken
    BOOST_TEST(release(handle) == CUDA_SUCCESS);
    BOOST_TEST(release(handle) == CUDA_ERROR_INVALID_VALUE);
    BOOST_TEST(!is_readable(begin + offset));
    BOOST_TEST_REQUIRE(set_access(range + offset, bytes, &access, 1) == CUDA_SUCCESS);
    offset += bytes;
    BOOST_TEST(is_readable(begin + offset - 1));
    BOOST_TEST(begin[offset - 1] == 0xFF);
    BOOST_TEST(!is_readable(begin + offset));
  }
  BOOST_TEST(used_memory_bytes() == before + static_cast<int64_t>(6 * kMiB));
  CUmemGenericAllocationHandle handle = 0;
  BOOST_TEST(create(&handle, 2 * kMiB, &properties, 0) == CUDA_ERROR_OUT_OF_MEMORY);
  BOOST_TEST(create(&handle, kMiB, &properties, 0) == CUDA_ERROR_INVALID_VALUE);

  // It is device memory to the runtime, over the border of the pieces too.
  std::vector<unsigned char> host(3 * kMiB, 7);
  CHECK_CUDA(cudaMemcpy(begin + kMiB, host.data(), host.size(), cudaMemcpyHostToDevice));
  BOOST_TEST(begin[2 * kMiB] == 7);
  CHECK_REFUSED(cudaMemset(begin + 4 * kMiB, 0, 2 * kMiB + 1), cudaErrorInvalidValue);
  CHECK_REFUSED(cudaMemset(begin + 6 * kMiB, 0, 1), cudaErrorInvalidValue);
  CHECK_REFUSED(cudaFree(begin), cudaErrorInvalidValue);

  const auto free_range = DRIVER(cuMemAddressFree);
  BOOST_TEST(free_range(range, 64 * kMiB) == CUDA_ERROR_INVALID_VALUE);  // still mapped
  BOOST_TEST(unmap(range, kMiB) == CUDA_ERROR_INVALID_VALUE);
  BOOST_TEST(unmap(range, 2 * kMiB) == CUDA_SUCCESS);
  BOOST_TEST(!is_readable(begin));
  BOOST_TEST(is_readable(begin + 2 * kMiB));
  BOOST_TEST(unmap(range + 2 * kMiB, 4 * kMiB) == CUDA_SUCCESS);
  BOOST_TEST(used_memory_bytes() == before);
  BOOST_TEST(free_range(range, 64 * kMiB) == CUDA_SUCCESS);
}

BOOST_AUTO_TEST_CASE(driver_functions_are_found_by_version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuMemMap", &found, 9000, 0, &result));
  BOOST_TEST(result == cudaDriverEntryPointVersionNotSufficent);
  BOOST_TEST(found == nullptr);
  CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &found, 12000, 0, &result));
  BOOST_TEST(result == cudaDriverEntryPointSymbolNotFound);
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  BOOST_TEST(DRIVER(cuMemGetInfo)(&free_bytes, &total_bytes) == CUDA_SUCCESS);
  BOOST_TEST(total_bytes - free_bytes == static_cast<size_t>(used_memory_bytes()));
  const char* text = nullptr;
  BOOST_TEST(DRIVER(cuGetErrorString)(CUDA_ERROR_OUT_OF_MEMORY, &text) == CUDA_SUCCESS);
  BOOST_TEST(text == std::string("out of memory"));
}

// --- the device -------------------------------------------------------------------------------

BOOST_AUTO_TEST_CASE(the_device_describes_itself) {
  set_memory_capacity(12345678);
  set_compute_capability(10, 3);
  cudaDeviceProp properties{};
  CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
  BOOST_TEST(properties.name == std::string("SIMT fake"));
  BOOST_TEST(properties.major == 10);
  BOOST_TEST(properties.minor == 3);
  BOOST_TEST(properties.multiProcessorCount == 132);
  BOOST_TEST(properties.totalGlobalMem == 12345678U);
  const auto attribute = [](int which) {
    int value = -1;
    CHECK_CUDA(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(which), 0));
    return value;
  };
  BOOST_TEST(attribute(cudaDevAttrComputeCapabilityMajor) == 10);
  BOOST_TEST(attribute(cudaDevAttrMultiProcessorCount) == 132);
  BOOST_TEST(attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) == 1);
  int version = 0;
  CHECK_CUDA(cudaRuntimeGetVersion(&version));
  BOOST_TEST(version == CUDART_VERSION);
  int lowest = 0;
  int highest = 0;
  CHECK_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  BOOST_TEST(highest < lowest);
  cudaStream_t stream = nullptr;
  CHECK_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest));
  int priority = 0;
  CHECK_CUDA(cudaStreamGetPriority(stream, &priority));
  BOOST_TEST(priority == highest);
  CHECK_CUDA(cudaStreamDestroy(stream));
}

BOOST_AUTO_TEST_CASE(devices_can_be_missing_or_several) {
  int count = -1;
  set_device_count(0);
  CHECK_REFUSED(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  BOOST_TEST(count == 0);
  set_device_count(1);
  set_failure("cudaGetDeviceCount", cudaErrorInsufficientDriver);
  CHECK_REFUSED(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  set_failure("cudaGetDeviceCount", cudaSuccess);
  set_device_count(2);
  CHECK_CUDA(cudaGetDeviceCount(&count));
  BOOST_TEST(count == 2);
  CHECK_REFUSED(cudaSetDevice(2), cudaErrorInvalidDevice);
  const OwnStream of_first;
  CHECK_CUDA(cudaSetDevice(1));
  {
    const OnDevice data(4);
    BOOST_TEST(used_memory_bytes(1) == 16);
    CHECK_REFUSED(start(of_first, 1, set, data.data(), 1), cudaErrorInvalidResourceHandle);
    const OwnEvent event;
    CHECK_REFUSED(cudaEventRecord(event, of_first), cudaErrorInvalidResourceHandle);
    const OwnStream of_second;
    CHECK_CUDA(start(of_second, 1, set, data.data(), 1));
  }
  CHECK_CUDA(cudaSetDevice(0));
}

BOOST_AUTO_TEST_CASE(calls_fail_when_they_are_told_to) {
  const OwnStream stream;
  const OnDevice data(1);
  set_failure("cudaLaunchKernelEx", cudaErrorIllegalAddress, 2);
  CHECK_CUDA(start(stream, 1, set, data.data(), 1));
  CHECK_CUDA(start(stream, 1, set, data.data(), 2));
  CHECK_REFUSED(start(stream, 1, set, data.data(), 3), cudaErrorIllegalAddress);
  CHECK_REFUSED(start(stream, 1, set, data.data(), 3), cudaErrorIllegalAddress);
  BOOST_TEST(data.first() == 2);
  BOOST_TEST(cudaGetLastError() == cudaErrorIllegalAddress);
  set_failure("cudaLaunchKernelEx", cudaSuccess);
  CHECK_CUDA(start(stream, 1, set, data.data(), 3));
  BOOST_TEST(data.first() == 3);
  set_failure("cuMemCreate", cudaErrorUnknown);
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = on_device(0);
  BOOST_TEST(DRIVER(cuMemCreate)(&handle, 2 * kMiB, &properties, 0) == CUDA_ERROR_UNKNOWN);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::simt
