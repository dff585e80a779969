// The sum that a reduction over ranks takes of their buffers, where the ranks share a device: each
// source is read once, whatever their number, and the order of the additions is that of the ranks.
#include <algorithm>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace moetune::kernels::cuda {
namespace {

constexpr int kThreads = 256;

struct Sources {
  const void* data[SumArgs::kMaxSources];
  int count;
};

// What an element is added up in.
__device__ inline float widened(float value) { return value; }
__device__ inline float widened(__nv_bfloat16 value) { return to_float(value); }
__device__ inline double widened(double value) { return value; }
__device__ inline int32_t widened(int32_t value) { return value; }
template <typename T, typename Wide>
__device__ inline T narrowed(Wide value) {
  if constexpr (std::is_same_v<T, Wide>) {
    return value;
  } else {
    return from_float<T>(value);
  }
}

// The target may be one of the sources: a thread reads its elements of all of them before it
// writes.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(const Sources sources, T* target, int64_t packs) {
  using Wide = decltype(widened(T{}));
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t pack = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; pack < packs;
       pack += step) {
    Wide sums[N] = {};
    for (int source = 0; source < sources.count; ++source) {
      const auto held = load_pack<T, N>(static_cast<const T*>(sources.data[source]) + pack * N);
      for (int i = 0; i < N; ++i) sums[i] += widened(held.at[i]);
    }
    Pack<T, N> out;
    for (int i = 0; i < N; ++i) out.at[i] = narrowed<T>(sums[i]);
    store_pack<T, N>(target + pack * N, out);
  }
}

template <typename T, int N>
void launch_sum(Stream stream, const Sources& sources, void* target, int64_t numel) {
  const int64_t packs = numel / N;
  launch(sum_kernel<T, N>, {grid_of(ceil_div(packs, kThreads), kNumSms * 16), dim3(kThreads)},
         stream, sources, static_cast<T*>(target), packs);
}

bool has_whole_packs(const SumArgs& args) {
  const auto divides = [](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % kPackBytes == 0;
  };
  bool is_aligned =
      divides(args.target) && args.numel * base::size_of(args.dtype) % kPackBytes == 0;
  for (const void* source : args.sources) is_aligned = is_aligned && divides(source);
  return is_aligned;
}

}  // namespace

void sum(Stream stream, const SumArgs& args) {
  MOETUNE_CHECK(args.sources.size() <= SumArgs::kMaxSources, "sum: {} sources, {} at most",
                args.sources.size(), SumArgs::kMaxSources);
  Sources sources{};
  std::copy(args.sources.begin(), args.sources.end(), sources.data);
  sources.count = static_cast<int>(args.sources.size());
  const auto run = [&]<typename T>(std::type_identity<T>) {
    if (has_whole_packs(args)) {
      launch_sum<T, kPackOf<T>>(stream, sources, args.target, args.numel);
    } else {
      launch_sum<T, 1>(stream, sources, args.target, args.numel);
    }
  };
  if (args.dtype == DType::f64) {
    launch_sum<double, 1>(stream, sources, args.target, args.numel);
  } else if (args.dtype == DType::i32) {
    launch_sum<int32_t, 1>(stream, sources, args.target, args.numel);
  } else {
    dispatch_float(args.dtype, run);
  }
}

}  // namespace moetune::kernels::cuda
