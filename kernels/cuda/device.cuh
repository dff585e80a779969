// What the kernels share on the device: element conversion, 16-byte packs of elements, sums over a
// warp or a block, and the choice of the element type from a run-time dtype.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/base/error.h"
#include "kernels/tensor.h"

namespace moetune::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

/// The dynamic shared memory of the block. Kernels reach it through block_shared() only.
extern __shared__ __align__(16) unsigned char dynamic_shared[];

/// The block's dynamic shared memory seen as T; its length is LaunchShape::shared_bytes.
template <typename T>
__device__ inline T* block_shared() {
  return reinterpret_cast<T*>(dynamic_shared);
}

// --- elements ---------------------------------------------------------------------------------

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float to_float(int32_t value) { return static_cast<float>(value); }

/// Rounds to nearest even.
template <typename T>
__device__ inline T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

/// Bytes of the widest access of one thread.
inline constexpr int kPackBytes = 16;

/// Elements of T in one pack.
template <typename T>
inline constexpr int kPackOf = kPackBytes / static_cast<int>(sizeof(T));

/// N elements moved as words of 16 bytes where they fill them; N = 1 is the path for columns or
/// addresses that are not divisible.
template <typename T, int N>
struct alignas(N * sizeof(T)) Pack {
  T at[N];
};

template <typename T, int N>
__device__ inline Pack<T, N> load_pack(const T* from) {
  Pack<T, N> pack;
  if constexpr (sizeof(pack) % kPackBytes == 0) {
    // A pack of two-byte classes is not fetched as one word of its own accord.
    for (int i = 0; i < static_cast<int>(sizeof(pack)) / kPackBytes; ++i) {
      reinterpret_cast<uint4*>(&pack)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
  } else {
    for (int i = 0; i < N; ++i) pack.at[i] = from[i];
  }
  return pack;
}

/// To global memory only. An ordinary assignment may be taken apart into the elements again; this
/// instruction stays whole. It also keeps later loads behind it: load what is independent first.
template <typename T, int N>
__device__ inline void store_pack(T* to, const Pack<T, N>& pack) {
  if constexpr (sizeof(pack) % kPackBytes == 0) {
    for (int i = 0; i < static_cast<int>(sizeof(pack)) / kPackBytes; ++i) {
      __stcg(reinterpret_cast<uint4*>(to) + i, reinterpret_cast<const uint4*>(&pack)[i]);
    }
  } else {
    for (int i = 0; i < N; ++i) to[i] = pack.at[i];
  }
}

/// True when rows of `tensor` can be read in units of `bytes`: start, row distance and length all
/// divide. Host side; decides between the packed and the scalar instance of a kernel.
inline bool is_divisible(const Tensor& tensor, int64_t bytes = kPackBytes) {
  const int64_t size = base::size_of(tensor.dtype);
  const bool rows_align = tensor.rows <= 1 || tensor.ld * size % bytes == 0;
  return reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(bytes) == 0 &&
         rows_align && tensor.cols * size % bytes == 0;
}

// --- threads and reductions -------------------------------------------------------------------

/// The thread's number in its block, x fastest.
__device__ inline int thread_rank() {
  return static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}

__device__ inline int block_threads() {
  return static_cast<int>(blockDim.x * blockDim.y * blockDim.z);
}

// Where lanes combine their values in several steps, those of the tests' device (MOETUNE_SIMT) meet
// once: it is much faster there, and gives the same bits.

/// Combines the values of lanes whose numbers differ in the bits from `lowest` up to, but not
/// including, `width`, powers of two up to 32; all 32 lanes must call. The order is fixed, and where
/// combine(a, b) is combine(b, a) every lane gets the same bits.
template <typename Combine>
__device__ inline float combine_lanes(float value, int lowest, int width, Combine combine) {
#ifdef MOETUNE_SIMT
  return simt_meet(kAllLanes, value, [&](auto& values) {
    for (int distance = width / 2; distance >= lowest; distance /= 2) {
      const auto before = values;
      for (int i = 0; i < kWarp; ++i) values[i] = combine(before[i], before[i ^ distance]);
    }
  });
#else
  for (int distance = width / 2; distance >= lowest; distance /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
#endif
}

/// The sum of the values of this lane and those below; all 32 lanes must call.
__device__ inline int sum_up_to_lane(int value) {
#ifdef MOETUNE_SIMT
  return simt_meet(kAllLanes, value, [](auto& values) {
    for (int i = 1; i < kWarp; ++i) values[i] += values[i - 1];
  });
#else
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int below = __shfl_up_sync(kAllLanes, value, distance);
    if (lane >= distance) value += below;
  }
  return value;
#endif
}

/// The sum over each `width` lanes, in each of them; from `lowest` on as above.
__device__ inline float sum_lanes(float value, int width, int lowest = 1) {
  return combine_lanes(value, lowest, width, [](float a, float b) { return a + b; });
}

/// The sum over the warp, in every lane; all 32 lanes must call.
__device__ inline float warp_sum(float value) { return sum_lanes(value, kWarp); }

/// The larger value, or NaN when either is NaN: plain maxima drop a NaN, which then would not show
/// in the loss.
__device__ inline float max_or_nan(float a, float b) { return a > b || a != a ? a : b; }

/// The maximum over each `width` lanes, in each of them; all 32 lanes must call. NaN wins.
__device__ inline float max_lanes(float value, int width) {
  return combine_lanes(value, 1, width, [](float a, float b) { return max_or_nan(a, b); });
}

/// The maximum over the warp, in every lane; all 32 lanes must call. NaN wins.
__device__ inline float warp_max(float value) { return max_lanes(value, kWarp); }

/// Combines one value per warp over the block; `scratch` holds 32 floats of shared memory and may
/// be used again by the next call. All threads of a block of whole warps must call.
template <typename Reduce>
__device__ inline float block_reduce(float value, float neutral, float* scratch, Reduce reduce) {
  value = reduce(value);
  const int num_warps = block_threads() / kWarp;
  if (num_warps == 1) return value;
  const int lane = thread_rank() % kWarp;
  __syncthreads();  // the previous call may still be reading
  if (lane == 0) scratch[thread_rank() / kWarp] = value;
  __syncthreads();
  return reduce(lane < num_warps ? scratch[lane] : neutral);
}

/// The sum over the block, in every thread.
__device__ inline float block_sum(float value, float* scratch) {
  return block_reduce(value, 0.0F, scratch, [](float x) { return warp_sum(x); });
}

/// The maximum over the block, in every thread; NaN wins.
__device__ inline float block_max(float value, float* scratch) {
  return block_reduce(value, -INFINITY, scratch, [](float x) { return warp_max(x); });
}

/// The sum over one row of the block along x, whose width is a power of two up to 32 or whole
/// warps. Every thread of the block must call. `scratch` holds 64 floats; `round` alternates
/// between its halves, so that one barrier per call is enough.
__device__ inline float row_sum(float value, float* scratch, int round) {
  const int width = static_cast<int>(blockDim.x);
  if (width <= kWarp) return sum_lanes(value, width);
  value = warp_sum(value);
  float* sums = scratch + (round % 2) * kWarp;
  if (thread_rank() % kWarp == 0) sums[thread_rank() / kWarp] = value;
  __syncthreads();
  const int warps = width / kWarp;
  const int first = static_cast<int>(threadIdx.y) * warps;
  float total = 0.0F;
  for (int warp = first; warp < first + warps; ++warp) total += sums[warp];
  return total;
}

// --- host side --------------------------------------------------------------------------------

/// Calls body(std::type_identity<T>{}) with T = float or __nv_bfloat16.
template <typename Body>
void dispatch_float(DType dtype, Body&& body) {
  if (dtype == DType::bf16) {
    body(std::type_identity<__nv_bfloat16>{});
  } else {
    MOETUNE_CHECK(dtype == DType::f32, "this operation needs f32 or bf16 elements on CUDA, not {}",
                  base::name_of(dtype));
    body(std::type_identity<float>{});
  }
}

}  // namespace moetune::kernels::cuda
