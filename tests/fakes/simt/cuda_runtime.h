// Stands in for the toolkit's header of the same name when kernels are compiled for the host: the
// built-in variables and functions of device code, and the launch. Types and the declarations of
// the runtime's C functions are the toolkit's own; simt_*.cpp define those that are needed.
#pragma once

#include <cuda_runtime_api.h>
#include <driver_types.h>
#include <math.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>

#include "tests/fakes/simt/simt.h"

#define __launch_bounds__(...)
#define MOETUNE_SIMT

// Not const: they change while a thread waits.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
inline constexpr int warpSize = 32;

// --- launching --------------------------------------------------------------------------------

namespace moetune::simt {

/// Checks the launch as the driver does and enqueues the grid. What fails keeps its text for
/// cudaGetErrorString. `owned_body` makes the same as `body` with the arguments copied, for a grid
/// that does not run at once.
cudaError_t launch(const void* kernel, const cudaLaunchConfig_t& config,
                   const std::function<void()>& body,
                   const std::function<std::function<void()>()>& owned_body);

}  // namespace moetune::simt

template <typename... P, typename... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...),
                               A&&... args) {
  const std::tuple<P...> parameters(std::forward<A>(args)...);
  return moetune::simt::launch(
      reinterpret_cast<const void*>(kernel), *config, [&] { std::apply(kernel, parameters); },
      [&] { return [kernel, parameters] { std::apply(kernel, parameters); }; });
}

template <typename T>
cudaError_t cudaMalloc(T** pointer, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}
template <typename T>
cudaError_t cudaMallocHost(T** pointer, size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void**>(pointer), bytes);
}

// --- barriers, votes and shuffles -------------------------------------------------------------

using SimtSite = moetune::simt::Site;

inline void __syncthreads(SimtSite site = SimtSite::current()) {
  moetune::simt::block_barrier(false, site);
}
inline int __syncthreads_count(int predicate, SimtSite site = SimtSite::current()) {
  return moetune::simt::block_barrier(predicate != 0, site);
}
inline int __syncthreads_or(int predicate, SimtSite site = SimtSite::current()) {
  return moetune::simt::block_barrier(predicate != 0, site) > 0 ? 1 : 0;
}
inline int __syncthreads_and(int predicate, SimtSite site = SimtSite::current()) {
  return moetune::simt::block_barrier(predicate == 0, site) == 0 ? 1 : 0;
}

inline void __syncwarp(unsigned mask = 0xFFFFFFFFU, SimtSite site = SimtSite::current()) {
  moetune::simt::warp_exchange(mask, 0, moetune::simt::Collective::sync, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, SimtSite site = SimtSite::current()) {
  const auto& votes = moetune::simt::warp_exchange(mask, predicate != 0 ? 1 : 0,
                                                   moetune::simt::Collective::vote, site);
  unsigned ballot = 0;
  for (unsigned i = 0; i < 32; ++i) {
    if ((mask >> i & 1U) != 0 && votes[i] != 0) ballot |= 1U << i;
  }
  return ballot;
}
inline int __any_sync(unsigned mask, int predicate, SimtSite site = SimtSite::current()) {
  return __ballot_sync(mask, predicate, site) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate, SimtSite site = SimtSite::current()) {
  return __ballot_sync(mask, predicate, site) == mask ? 1 : 0;
}

template <typename T>
unsigned __match_any_sync(unsigned mask, T value, SimtSite site = SimtSite::current()) {
  const uint64_t own = moetune::simt::to_bits(value);
  const auto& values =
      moetune::simt::warp_exchange(mask, own, moetune::simt::Collective::match, site);
  unsigned same = 0;
  for (unsigned i = 0; i < 32; ++i) {
    if ((mask >> i & 1U) != 0 && values[i] == own) same |= 1U << i;
  }
  return same;
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              SimtSite site = SimtSite::current()) {
  const int segment = moetune::simt::lane() & ~(width - 1);
  return moetune::simt::shuffle(mask, value, segment + (source & (width - 1)), site);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 SimtSite site = SimtSite::current()) {
  const int lane = moetune::simt::lane();
  const int source = lane - static_cast<int>(delta);
  const bool is_inside = source >= (lane & ~(width - 1));
  return moetune::simt::shuffle(mask, value, is_inside ? source : lane, site);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   SimtSite site = SimtSite::current()) {
  const int lane = moetune::simt::lane();
  const int source = lane + static_cast<int>(delta);
  const bool is_inside = source < (lane & ~(width - 1)) + width;
  return moetune::simt::shuffle(mask, value, is_inside ? source : lane, site);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  SimtSite site = SimtSite::current()) {
  const int lane = moetune::simt::lane();
  const int source = lane ^ lane_mask;
  const bool is_inside = source < (lane & ~(width - 1)) + width;
  return moetune::simt::shuffle(mask, value, is_inside ? source : lane, site);
}

// What device code does with several shuffles behind each other, in one meeting of the lanes:
// `make` gets the values of all 32 and puts the results in their place. Each shuffle would have
// every lane wait for all others.
template <typename T, typename Make>
T simt_meet(unsigned mask, T value, const Make& make, SimtSite site = SimtSite::current()) {
  const auto finish = [](moetune::simt::LaneValues& bits, const void* context) {
    std::array<T, moetune::simt::kWarpLanes> values;
    for (size_t i = 0; i < values.size(); ++i) values[i] = moetune::simt::from_bits<T>(bits[i]);
    (*static_cast<const Make*>(context))(values);
    for (size_t i = 0; i < values.size(); ++i) bits[i] = moetune::simt::to_bits(values[i]);
  };
  const auto& values =
      moetune::simt::warp_exchange(mask, moetune::simt::to_bits(value),
                                   moetune::simt::Collective::shuffle, site, {finish, &make});
  return moetune::simt::from_bits<T>(values[static_cast<size_t>(moetune::simt::lane())]);
}

// Reductions of the warp over integers (sm_80 and later).
template <typename T, typename Combine>
T simt_reduce(unsigned mask, T value, const SimtSite& site, Combine combine) {
  const auto& values = moetune::simt::warp_exchange(mask, moetune::simt::to_bits(value),
                                                    moetune::simt::Collective::reduce, site);
  T total = value;
  for (int i = 0; i < 32; ++i) {
    if (i != moetune::simt::lane() && (mask >> i & 1U) != 0) {
      total = combine(total, moetune::simt::from_bits<T>(values[static_cast<size_t>(i)]));
    }
  }
  return total;
}
template <typename T>
T __reduce_add_sync(unsigned mask, T value, SimtSite site = SimtSite::current()) {
  return simt_reduce(mask, value, site, [](T a, T b) { return a + b; });
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value, SimtSite site = SimtSite::current()) {
  return simt_reduce(mask, value, site, [](T a, T b) { return a > b ? a : b; });
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value, SimtSite site = SimtSite::current()) {
  return simt_reduce(mask, value, site, [](T a, T b) { return a < b ? a : b; });
}

// --- memory -----------------------------------------------------------------------------------

inline void __threadfence() {}
inline void __threadfence_block() {}

template <typename T>
T __ldg(const T* from) {
  return *from;
}
template <typename T>
T __ldcs(const T* from) {
  return *from;
}
template <typename T>
T __ldcg(const T* from) {
  return *from;
}
template <typename T>
void __stcs(T* to, T value) {
  *to = value;
}
template <typename T>
void __stcg(T* to, T value) {
  *to = value;
}

// Only one thread runs at a time, so read-modify-write is enough. Each takes the types that the
// device has.
template <typename T, typename Combine>
T simt_update(T* at, Combine combine) {
  const T old = *at;
  *at = combine(old);
  return old;
}
#define MOETUNE_SIMT_ATOMIC(NAME, TYPE, EXPRESSION)                                        \
  inline TYPE NAME(TYPE* at, TYPE value) {                                                 \
    return simt_update(at, [&]([[maybe_unused]] TYPE old) -> TYPE { return EXPRESSION; }); \
  }
#define MOETUNE_SIMT_ATOMIC_INTEGERS(NAME, EXPRESSION) \
  MOETUNE_SIMT_ATOMIC(NAME, int, EXPRESSION)           \
  MOETUNE_SIMT_ATOMIC(NAME, unsigned, EXPRESSION)      \
  MOETUNE_SIMT_ATOMIC(NAME, unsigned long long, EXPRESSION)
MOETUNE_SIMT_ATOMIC_INTEGERS(atomicAdd, old + value)
MOETUNE_SIMT_ATOMIC(atomicAdd, float, old + value)
MOETUNE_SIMT_ATOMIC(atomicAdd, double, old + value)
MOETUNE_SIMT_ATOMIC_INTEGERS(atomicMax, std::max(old, value))
MOETUNE_SIMT_ATOMIC_INTEGERS(atomicMin, std::min(old, value))
MOETUNE_SIMT_ATOMIC_INTEGERS(atomicAnd, old& value)
MOETUNE_SIMT_ATOMIC_INTEGERS(atomicOr, old | value)
MOETUNE_SIMT_ATOMIC_INTEGERS(atomicExch, value)
MOETUNE_SIMT_ATOMIC(atomicExch, float, value)
MOETUNE_SIMT_ATOMIC(atomicSub, int, old - value)
MOETUNE_SIMT_ATOMIC(atomicSub, unsigned, old - value)
MOETUNE_SIMT_ATOMIC(atomicInc, unsigned, old >= value ? 0U : old + 1U)
#undef MOETUNE_SIMT_ATOMIC
#undef MOETUNE_SIMT_ATOMIC_INTEGERS
template <typename T>
T atomicCAS(T* at, T expected, T desired) {
  return simt_update(at, [&](T old) { return old == expected ? desired : old; });
}

// --- arithmetic -------------------------------------------------------------------------------

inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return std::pow(10.0F, x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0F / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __saturatef(float x) { return x > 0.0F ? std::min(x, 1.0F) : 0.0F; }
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __frsqrt_rn(float x) { return 1.0F / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __popcll(unsigned long long x) { return std::popcount(x); }

// The maxima of device code, which drop a NaN.
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline long min(long a, long b) { return a < b ? a : b; }
inline long max(long a, long b) { return a > b ? a : b; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline long long max(long long a, long long b) { return a > b ? a : b; }
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }

[[noreturn]] inline void __trap(SimtSite site = SimtSite::current()) {
  moetune::simt::fail("the kernel trapped", site);
}
