// Softmax cross-entropy with its gradient, in place on one chunk of logits: a block per row, one
// pass for the maximum and the sum together, one for the gradient. As much of the row as fits waits
// in shared memory for the second pass; the rest is read again, from the L2 cache.
#include <algorithm>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace moetune::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kScratch = 32;  // floats that a reduction over the block needs
constexpr int kAtOnce = 4;    // packs that a thread has in flight
constexpr size_t kScratchBytes = 2 * kScratch * sizeof(float);

// The loss of a row is rounded to this before it is added up. Sums of such numbers are exact in a
// double up to 2^25 (millions of tokens), so atomics give the same loss in any order and for any
// size of the chunks; a row loses less than 2e-9.
constexpr double kQuantum = 1.0 / (1 << 28);

// Far below every logit, but finite: -infinity minus itself would be NaN.
constexpr float kLowest = -3.0e38F;

template <typename T>
__device__ float exp_of(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return expf(x);
  } else {
    return __expf(x);  // its error of some 1e-6 is far below a bf16's
  }
}

// The sum of exp(x - largest) over the elements seen so far.
struct Online {
  float largest = kLowest;
  float sum = 0.0F;
};

template <typename T, int N>
__device__ void add(Online& online, const Pack<T, N>& pack) {
  float largest = online.largest;
#pragma unroll
  for (int i = 0; i < N; ++i) largest = fmaxf(largest, to_float(pack.at[i]));
  float sum = online.sum * exp_of<T>(online.largest - largest);
#pragma unroll
  for (int i = 0; i < N; ++i) sum += exp_of<T>(to_float(pack.at[i]) - largest);
  online = {largest, sum};
}

// A pack as one word where it is one: what is copied as a word stays one.
template <typename T, int N>
using WordOf = std::conditional_t<sizeof(Pack<T, N>) == kPackBytes, uint4, Pack<T, N>>;

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(T* logits, int64_t ld, int64_t vocabulary, const int32_t* targets,
                         float grad_scale, double* loss_sum, int64_t num_held) {
  using Word = WordOf<T, N>;
  auto* scratch = block_shared<float>();
  // Own words of the steps [0, num_held).
  Word* held = reinterpret_cast<Word*>(scratch + 2 * kScratch) + threadIdx.x;
  T* row = logits + blockIdx.x * ld;
  const int64_t target = targets[blockIdx.x];
  // A target out of range cannot throw here; it shows as a loss that is NaN.
  const bool is_target_real = target >= 0 && target < vocabulary;
  const float target_logit = is_target_real ? to_float(row[target]) : NAN;
  const int64_t own = int64_t{threadIdx.x} * N;
  constexpr int64_t kStride = int64_t{kThreads} * N;
  const int64_t steps = (vocabulary + kStride - 1) / kStride;
  const auto first_of = [&](int64_t step) { return step * kStride + own; };

  // fmaxf drops a NaN, but then the sum is NaN, and with it the loss and the row's gradient.
  Online online;
  for (int64_t step = 0; step < steps; step += kAtOnce) {
    Word words[kAtOnce] = {};
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (first_of(step + k) >= vocabulary) continue;
      words[k] = *reinterpret_cast<const Word*>(row + first_of(step + k));
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (first_of(step + k) >= vocabulary) continue;
      if (step + k < num_held) held[(step + k) * kThreads] = words[k];
      add<T, N>(online, *reinterpret_cast<const Pack<T, N>*>(&words[k]));
    }
  }
  const float largest = block_max(online.largest, scratch);
  const float total =
      block_sum(online.sum * exp_of<T>(online.largest - largest), scratch + kScratch);
  if (threadIdx.x == 0) {
    const double loss = log(static_cast<double>(total)) +
                        (static_cast<double>(largest) - static_cast<double>(target_logit));
    atomicAdd(loss_sum, rint(loss / kQuantum) * kQuantum);
  }

  // All have read the target's logit by now.
  const float scale = grad_scale / total;
  const auto write = [&](int64_t first, const Word& word) {
    Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(&word);
    const bool is_here = target >= first && target < first + N;
    const int place = is_here ? static_cast<int>(target - first) : -1;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float gradient = exp_of<T>(to_float(pack.at[i]) - largest) * scale;
      if (i == place) gradient -= grad_scale;
      pack.at[i] = from_float<T>(gradient);
    }
    store_pack<T, N>(row + first, pack);
  };
  // What was read last is still in the cache.
  for (int64_t step = num_held; step < steps; step += kAtOnce) {
    Word words[kAtOnce] = {};
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (first_of(step + k) >= vocabulary) continue;
      words[k] = *reinterpret_cast<const Word*>(row + first_of(step + k));
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (first_of(step + k) < vocabulary) write(first_of(step + k), words[k]);
    }
  }
  for (int64_t step = 0; step < num_held; ++step) {
    if (first_of(step) < vocabulary) write(first_of(step), held[step * kThreads]);
  }
}

/// Dynamic shared memory that a block may ask for.
int64_t most_shared_bytes() {
  int device = 0;
  int bytes = 0;
  check(cudaGetDevice(&device), "the current device");
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "shared memory of the device");
  return bytes;
}

}  // namespace

void cross_entropy(Stream stream, const CrossEntropyArgs& args) {
  if (args.logits.numel() == 0) return;
  MOETUNE_CHECK(args.targets.rows == args.logits.rows, "cross_entropy: {} targets for {} rows",
                args.targets.rows, args.logits.rows);
  dispatch_float(args.logits.dtype, [&]<typename T>(std::type_identity<T>) {
    const auto run = [&]<int N>(std::integral_constant<int, N>) {
      constexpr auto kStepBytes = int64_t{kThreads} * static_cast<int64_t>(sizeof(Pack<T, N>));
      const int64_t most = (most_shared_bytes() - static_cast<int64_t>(kScratchBytes)) / kStepBytes;
      const int64_t num_held =
          std::min(ceil_div(args.logits.cols, int64_t{kThreads} * N), std::max<int64_t>(most, 0));
      launch(cross_entropy_kernel<T, N>,
             {dim3(static_cast<unsigned>(args.logits.rows)), dim3(kThreads),
              kScratchBytes + static_cast<size_t>(num_held * kStepBytes)},
             stream, static_cast<T*>(args.logits.data), args.logits.ld, args.logits.cols,
             static_cast<const int32_t*>(args.targets.data), static_cast<float>(args.grad_scale),
             args.loss_sum, num_held);
    };
    if (is_divisible(args.logits)) {
      run(std::integral_constant<int, kPackOf<T>>{});
    } else {
      run(std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace moetune::kernels::cuda
