// Softmax cross-entropy with its gradient, in place on one chunk of logits: a block per row, one
// pass for the maximum and the sum together, one for the gradient. As much of the row as fits waits
// in shared memory for the second pass; the rest is read again, from the L2 cache. Of one shard of
// the vocabulary the passes are kernels of their own: between them the ranks exchange their sums.
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

// A row that a block works on: words [step * kThreads + thread] for all steps.
template <typename T, int N>
struct BlockRow {
  static constexpr int64_t kStride = int64_t{kThreads} * N;

  T* data;
  int64_t cols;

  [[nodiscard]] __device__ int64_t steps() const { return (cols + kStride - 1) / kStride; }
  [[nodiscard]] __device__ int64_t first_of(int64_t step) const {
    return step * kStride + int64_t{threadIdx.x} * N;
  }
  // The thread's words of kAtOnce steps, all of them before the first is used; zeros beyond the
  // end.
  __device__ void load(int64_t step, WordOf<T, N> (&words)[kAtOnce]) const {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (first_of(step + k) >= cols) continue;
      words[k] = *reinterpret_cast<const WordOf<T, N>*>(data + first_of(step + k));
    }
  }
};

// The softmax's largest logit and the sum of exp(logit - largest), in every thread.
struct RowSum {
  float largest;
  float total;
};

// Of one row, by the whole block; words of the steps [0, num_held) go to `held`, too.
template <typename T, int N>
__device__ RowSum sum_row(const BlockRow<T, N>& row, WordOf<T, N>* held, int64_t num_held,
                          float* scratch) {
  // fmaxf drops a NaN, but then the sum is NaN, and with it the loss and the row's gradient.
  Online online;
  for (int64_t step = 0; step < row.steps(); step += kAtOnce) {
    WordOf<T, N> words[kAtOnce] = {};
    row.load(step, words);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (row.first_of(step + k) >= row.cols) continue;
      if (step + k < num_held) held[(step + k) * kThreads] = words[k];
      add<T, N>(online, *reinterpret_cast<const Pack<T, N>*>(&words[k]));
    }
  }
  const float largest = block_max(online.largest, scratch);
  return {largest, block_sum(online.sum * exp_of<T>(online.largest - largest), scratch + kScratch)};
}

// The row's gradient in place of its logits. `target` is a column; where it is none of the row's,
// nothing is taken off. Words of the steps [0, num_held) come from `held`.
template <typename T, int N>
__device__ void write_gradient(const BlockRow<T, N>& row, const WordOf<T, N>* held,
                               int64_t num_held, const RowSum& sum, int64_t target,
                               float grad_scale) {
  const float scale = grad_scale / sum.total;
  const auto write = [&](int64_t first, const WordOf<T, N>& word) {
    Pack<T, N> pack = *reinterpret_cast<const Pack<T, N>*>(&word);
    const bool is_here = target >= first && target < first + N;
    const int place = is_here ? static_cast<int>(target - first) : -1;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      float gradient = exp_of<T>(to_float(pack.at[i]) - sum.largest) * scale;
      if (i == place) gradient -= grad_scale;
      pack.at[i] = from_float<T>(gradient);
    }
    store_pack<T, N>(row.data + first, pack);
  };
  // What was read last is still in the cache.
  for (int64_t step = num_held; step < row.steps(); step += kAtOnce) {
    WordOf<T, N> words[kAtOnce] = {};
    row.load(step, words);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (row.first_of(step + k) < row.cols) write(row.first_of(step + k), words[k]);
    }
  }
  for (int64_t step = 0; step < num_held; ++step) {
    if (row.first_of(step) < row.cols) write(row.first_of(step), held[step * kThreads]);
  }
}

__device__ void add_loss(double* loss_sum, const RowSum& sum, float target_logit) {
  const double loss = log(static_cast<double>(sum.total)) +
                      (static_cast<double>(sum.largest) - static_cast<double>(target_logit));
  atomicAdd(loss_sum, rint(loss / kQuantum) * kQuantum);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(T* logits, int64_t ld, int64_t vocabulary, const int32_t* targets,
                         float grad_scale, double* loss_sum, int64_t num_held) {
  auto* scratch = block_shared<float>();
  // Own words of the steps [0, num_held).
  auto* held = reinterpret_cast<WordOf<T, N>*>(scratch + 2 * kScratch) + threadIdx.x;
  const BlockRow<T, N> row{logits + blockIdx.x * ld, vocabulary};
  const int64_t target = targets[blockIdx.x];
  // A target out of range cannot throw here; it shows as a loss that is NaN.
  const bool is_target_real = target >= 0 && target < vocabulary;
  const float target_logit = is_target_real ? to_float(row.data[target]) : NAN;
  const RowSum sum = sum_row(row, held, num_held, scratch);
  if (threadIdx.x == 0) add_loss(loss_sum, sum, target_logit);
  // All have read the target's logit by now.
  write_gradient(row, held, num_held, sum, target, grad_scale);
}

// --- shards of the vocabulary -----------------------------------------------------------------

// A row of statistics: CrossEntropyStatsArgs.
constexpr int kNumStats = 3;

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    stats_kernel(T* logits, int64_t ld, int64_t cols, const int32_t* targets, int64_t first_col,
                 float* stats, int64_t stats_ld) {
  const BlockRow<T, N> row{logits + blockIdx.x * ld, cols};
  const RowSum sum = sum_row<T, N>(row, nullptr, 0, block_shared<float>());
  if (threadIdx.x != 0) return;
  const int64_t target = targets[blockIdx.x] - first_col;
  const bool is_here = target >= 0 && target < cols;
  float* to = stats + blockIdx.x * stats_ld;
  to[0] = sum.total == 0.0F ? -INFINITY : sum.largest;  // without a finite logit it is kLowest
  to[1] = sum.total;
  to[2] = is_here ? to_float(row.data[target]) : -INFINITY;
}

// The statistics of all shards of one vocabulary: those of a row lie `num_rows` rows apart.
struct ShardStats {
  const float* data;
  int64_t ld;
  int64_t num_rows;
  int num_shards;

  [[nodiscard]] __device__ const float* of(int64_t row, int shard) const {
    return data + (shard * num_rows + row) * ld;
  }
};

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    shard_kernel(T* logits, int64_t ld, int64_t cols, const int32_t* targets, int64_t first_col,
                 ShardStats stats, float grad_scale, double* loss_sum) {
  RowSum sum{-INFINITY, 0.0F};
  float target_logit = -INFINITY;
  for (int shard = 0; shard < stats.num_shards; ++shard) {
    const float* of_shard = stats.of(blockIdx.x, shard);
    sum.largest = fmaxf(sum.largest, of_shard[0]);
    if (of_shard[2] != -INFINITY) target_logit = of_shard[2];
  }
  for (int shard = 0; shard < stats.num_shards; ++shard) {
    const float* of_shard = stats.of(blockIdx.x, shard);
    sum.total += of_shard[1] * expf(of_shard[0] - sum.largest);
  }
  const BlockRow<T, N> row{logits + blockIdx.x * ld, cols};
  const int64_t target = targets[blockIdx.x] - first_col;
  const bool is_here = target >= 0 && target < cols;
  // A target that no shard has shows as a loss that is infinite.
  const bool has_loss = is_here || target_logit == -INFINITY;
  if (threadIdx.x == 0 && has_loss) add_loss(loss_sum, sum, target_logit);
  write_gradient<T, N>(row, nullptr, 0, sum, target, grad_scale);
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

// Calls body(std::type_identity<T>{}, N) for the elements of the logits and of a pack of them.
template <typename Body>
void dispatch_logits(const Tensor& logits, Body&& body) {
  dispatch_float(logits.dtype, [&]<typename T>(std::type_identity<T> type) {
    if (is_divisible(logits)) {
      body(type, std::integral_constant<int, kPackOf<T>>{});
    } else {
      body(type, std::integral_constant<int, 1>{});
    }
  });
}

void launch_whole(Stream stream, const CrossEntropyArgs& args) {
  dispatch_logits(args.logits, [&]<typename T, int N>(std::type_identity<T>,
                                                      std::integral_constant<int, N>) {
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
  });
}

void launch_shard(Stream stream, const CrossEntropyArgs& args) {
  const ShardStats stats{static_cast<const float*>(args.stats.data), args.stats.ld,
                         args.logits.rows, static_cast<int>(args.stats.rows / args.logits.rows)};
  dispatch_logits(
      args.logits, [&]<typename T, int N>(std::type_identity<T>, std::integral_constant<int, N>) {
        launch(shard_kernel<T, N>, {dim3(static_cast<unsigned>(args.logits.rows)), dim3(kThreads)},
               stream, static_cast<T*>(args.logits.data), args.logits.ld, args.logits.cols,
               static_cast<const int32_t*>(args.targets.data), args.first_col, stats,
               static_cast<float>(args.grad_scale), args.loss_sum);
      });
}

}  // namespace

void cross_entropy(Stream stream, const CrossEntropyArgs& args) {
  if (args.logits.numel() == 0) return;
  MOETUNE_CHECK(args.targets.rows == args.logits.rows, "cross_entropy: {} targets for {} rows",
                args.targets.rows, args.logits.rows);
  if (args.stats.is_null()) return launch_whole(stream, args);
  MOETUNE_CHECK(args.stats.cols == kNumStats && args.stats.rows > 0 &&
                    args.stats.rows % args.logits.rows == 0 && args.stats.dtype == DType::f32,
                "cross_entropy: stats [{},{}] of {} for {} rows", args.stats.rows, args.stats.cols,
                base::name_of(args.stats.dtype), args.logits.rows);
  launch_shard(stream, args);
}

void cross_entropy_stats(Stream stream, const CrossEntropyStatsArgs& args) {
  MOETUNE_CHECK(args.targets.rows == args.logits.rows && args.stats.rows == args.logits.rows &&
                    args.stats.cols == kNumStats && args.stats.dtype == DType::f32,
                "cross_entropy_stats: {} targets, stats [{},{}] of {} for {} rows",
                args.targets.rows, args.stats.rows, args.stats.cols,
                base::name_of(args.stats.dtype), args.logits.rows);
  dispatch_logits(
      args.logits, [&]<typename T, int N>(std::type_identity<T>, std::integral_constant<int, N>) {
        launch(stats_kernel<T, N>,
               {dim3(static_cast<unsigned>(args.logits.rows)), dim3(kThreads), kScratchBytes},
               stream, static_cast<T*>(args.logits.data), args.logits.ld, args.logits.cols,
               static_cast<const int32_t*>(args.targets.data), args.first_col,
               static_cast<float*>(args.stats.data), args.stats.ld);
      });
}

}  // namespace moetune::kernels::cuda
