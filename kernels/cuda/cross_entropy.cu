// Softmax cross-entropy with its gradient, in place on one chunk of logits: a block per row, one
// pass for the maximum and the sum together, one for the gradient.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace moetune::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kScratch = 32;  // floats that a reduction over the block needs

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

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(T* logits, int64_t ld, int64_t vocabulary, const int32_t* targets,
                         float grad_scale, double* loss_sum) {
  auto* scratch = block_shared<float>();
  T* row = logits + blockIdx.x * ld;
  const int64_t target = targets[blockIdx.x];
  // A target out of range cannot throw here; it shows as a loss that is NaN.
  const bool is_target_real = target >= 0 && target < vocabulary;
  const float target_logit = is_target_real ? to_float(row[target]) : NAN;
  const int64_t own = int64_t{threadIdx.x} * N;
  constexpr int64_t kStride = int64_t{kThreads} * N;

  // fmaxf drops a NaN, but then the sum is NaN, and with it the loss and the row's gradient.
  Online online;
#pragma unroll 4
  for (int64_t i = own; i < vocabulary; i += kStride) add<T, N>(online, load_pack<T, N>(row + i));
  const float largest = block_max(online.largest, scratch);
  const float total =
      block_sum(online.sum * exp_of<T>(online.largest - largest), scratch + kScratch);
  if (threadIdx.x == 0) {
    const double loss = log(static_cast<double>(total)) +
                        (static_cast<double>(largest) - static_cast<double>(target_logit));
    atomicAdd(loss_sum, rint(loss / kQuantum) * kQuantum);
  }

  // From the end: what was read last is still in the cache. All have read the target's logit by
  // now.
  const float scale = grad_scale / total;
  const int64_t steps = (vocabulary + kStride - 1) / kStride;
#pragma unroll 4
  for (int64_t step = steps - 1; step >= 0; --step) {
    const int64_t first = step * kStride + own;
    if (first >= vocabulary) continue;
    Pack<T, N> pack = load_pack<T, N>(row + first);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float gradient = exp_of<T>(to_float(pack.at[i]) - largest) * scale;
      if (first + i == target) gradient -= grad_scale;
      pack.at[i] = from_float<T>(gradient);
    }
    store_pack<T, N>(row + first, pack);
  }
}

}  // namespace

void cross_entropy(Stream stream, const CrossEntropyArgs& args) {
  if (args.logits.numel() == 0) return;
  MOETUNE_CHECK(args.targets.rows == args.logits.rows, "cross_entropy: {} targets for {} rows",
                args.targets.rows, args.logits.rows);
  dispatch_float(args.logits.dtype, [&]<typename T>(std::type_identity<T>) {
    auto* kernel = is_divisible(args.logits) ? cross_entropy_kernel<T, kPackOf<T>>
                                             : cross_entropy_kernel<T, 1>;
    launch(kernel,
           {dim3(static_cast<unsigned>(args.logits.rows)), dim3(kThreads),
            2 * kScratch * sizeof(float)},
           stream, static_cast<T*>(args.logits.data), args.logits.ld, args.logits.cols,
           static_cast<const int32_t*>(args.targets.data), static_cast<float>(args.grad_scale),
           args.loss_sum);
  });
}

}  // namespace moetune::kernels::cuda
