// Root mean square normalisation over rows, or over each head of a row. A group (one head of one
// row) is read once: its elements stay in the registers of up to 512 threads between the sum of
// squares and the product. Columns that do not divide into packs take a scalar path that reads
// twice.
#include <algorithm>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_tiles.cuh"
#include "kernels/cuda/scratch.h"

namespace moetune::kernels::cuda {
namespace {

constexpr int kPacks = 2;  ///< packs of a group that one thread holds
constexpr int kMaxThreads = 512;
constexpr int kScalarThreads = 256;
constexpr int kBlockThreads = 256;  ///< at least, where groups are small
/// As many as run at a time, few enough that their parts of dweight are a small read.
constexpr int64_t kBackwardBlocks = 3 * kNumSms;
constexpr int64_t kWideBlocks = 2 * kNumSms;  ///< of more than kBlockThreads threads

/// Groups of d columns: group g is head g % heads of row g / heads.
template <typename T>
struct Groups {
  T* data;
  int64_t ld;

  explicit Groups(const Tensor& tensor) : data(static_cast<T*>(tensor.data)), ld(tensor.ld) {}
  __device__ T* at(unsigned group, unsigned heads, int64_t d) const {
    return data + (group / heads) * ld + (group % heads) * d;
  }
};

struct Shape {
  unsigned num_groups;
  unsigned heads;
  int d;
  int packs;  ///< of a group
};

template <typename T, int N>
__global__ void __launch_bounds__(kMaxThreads) forward(Groups<T> x, const T* weight, Groups<T> out,
                                                       Groups<float> rstd, Shape shape, float eps) {
  const unsigned group = blockIdx.x * blockDim.y + threadIdx.y;
  const bool is_active = group < shape.num_groups;
  const int stride = static_cast<int>(blockDim.x);
  const T* from = x.at(group, shape.heads, shape.d);
  Pack<T, N> held[kPacks] = {};
  float squares = 0.0F;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int pack = static_cast<int>(threadIdx.x) + k * stride;
    if (!is_active || pack >= shape.packs) continue;
    held[k] = load_pack<T, N>(from + pack * N);
  }
  // Packs that are not there are zeros.
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    for (int i = 0; i < N; ++i) squares += to_float(held[k].at[i]) * to_float(held[k].at[i]);
  }
  squares = row_sum(squares, block_shared<float>(), 0);
  if (!is_active) return;
  const float scale = rsqrtf(squares / static_cast<float>(shape.d) + eps);
  if (threadIdx.x == 0) *rstd.at(group, shape.heads, 1) = scale;
  T* to = out.at(group, shape.heads, shape.d);
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int pack = static_cast<int>(threadIdx.x) + k * stride;
    if (pack >= shape.packs) continue;
    const auto w = load_pack<T, N>(weight + pack * N);
    for (int i = 0; i < N; ++i) {
      held[k].at[i] = from_float<T>(to_float(held[k].at[i]) * scale * to_float(w.at[i]));
    }
    store_pack<T, N>(to + pack * N, held[k]);
  }
}

template <typename T>
__global__ void __launch_bounds__(kScalarThreads)
    forward_scalar(Groups<T> x, const T* weight, Groups<T> out, Groups<float> rstd, Shape shape,
                   float eps) {
  const unsigned group = blockIdx.x;
  const T* from = x.at(group, shape.heads, shape.d);
  T* to = out.at(group, shape.heads, shape.d);
  float squares = 0.0F;
  for (int i = static_cast<int>(threadIdx.x); i < shape.d; i += kScalarThreads) {
    squares += to_float(from[i]) * to_float(from[i]);
  }
  squares = block_sum(squares, block_shared<float>());
  const float scale = rsqrtf(squares / static_cast<float>(shape.d) + eps);
  if (threadIdx.x == 0) *rstd.at(group, shape.heads, 1) = scale;
  for (int i = static_cast<int>(threadIdx.x); i < shape.d; i += kScalarThreads) {
    to[i] = from_float<T>(to_float(from[i]) * scale * to_float(weight[i]));
  }
}

/// Where a block's part of dweight goes.
struct WeightSum {
  float* parts;    ///< [blocks, d], or null
  float* dweight;  ///< [d], added to by atomics when there are no parts

  __device__ void put(int d, int col, float value) const {
    if (parts != nullptr) {
      parts[static_cast<int64_t>(blockIdx.x) * d + col] = value;
    } else {
      atomicAdd(&dweight[col], value);
    }
  }
};

/// The tensors of the backward pass. With n = x * rstd and g = dy * w:
/// dx = rstd * (g - n * mean(g * n)), dweight = sum of dy * n.
template <typename T>
struct Gradients {
  Groups<T> x;
  const T* weight;
  Groups<float> rstd;
  Groups<T> dy;
  Groups<T> dx;
  bool accumulate_dx;
  WeightSum weight_sum;
};

/// kBlocks blocks of kThreads threads run on a multiprocessor at a time. As many are launched, each
/// with its share of the groups.
template <typename T, int N, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks) backward(Gradients<T> args, Shape shape) {
  auto* const scratch = block_shared<float>();
  const int stride = static_cast<int>(blockDim.x);
  float sums[kPacks * N] = {};
  int round = 0;
  // All groups of the block go in step, since the sums over a group wait for the whole block.
  for (unsigned first = blockIdx.x * blockDim.y; first < shape.num_groups;
       first += gridDim.x * blockDim.y, ++round) {
    const unsigned group = first + threadIdx.y;
    const bool is_active = group < shape.num_groups;
    const T* x = args.x.at(group, shape.heads, shape.d);
    const T* dy = args.dy.at(group, shape.heads, shape.d);
    T* dx = args.dx.at(group, shape.heads, shape.d);
    const float rstd = is_active ? *args.rstd.at(group, shape.heads, 1) : 0.0F;
    Pack<T, N> held_x[kPacks] = {};
    Pack<T, N> held_dy[kPacks] = {};
    float dot = 0.0F;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int pack = static_cast<int>(threadIdx.x) + k * stride;
      if (!is_active || pack >= shape.packs) continue;
      held_x[k] = load_pack<T, N>(x + pack * N);
      held_dy[k] = load_pack<T, N>(dy + pack * N);
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int pack = static_cast<int>(threadIdx.x) + k * stride;
      if (!is_active || pack >= shape.packs) continue;
      const auto w = load_pack<T, N>(args.weight + pack * N);
      for (int i = 0; i < N; ++i) {
        const float n = to_float(held_x[k].at[i]) * rstd;
        const float d = to_float(held_dy[k].at[i]);
        sums[k * N + i] += d * n;
        dot += d * to_float(w.at[i]) * n;
      }
    }
    const float mean = row_sum(dot, scratch, round) / static_cast<float>(shape.d);
    Pack<T, N> held_dx[kPacks] = {};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int pack = static_cast<int>(threadIdx.x) + k * stride;
      if (!args.accumulate_dx || !is_active || pack >= shape.packs) continue;
      held_dx[k] = load_pack<T, N>(dx + pack * N);
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int pack = static_cast<int>(threadIdx.x) + k * stride;
      if (!is_active || pack >= shape.packs) continue;
      const auto w = load_pack<T, N>(args.weight + pack * N);
      for (int i = 0; i < N; ++i) {
        const float g = to_float(held_dy[k].at[i]) * to_float(w.at[i]);
        float value = rstd * (g - to_float(held_x[k].at[i]) * rstd * mean);
        if (args.accumulate_dx) value += to_float(held_dx[k].at[i]);
        held_dy[k].at[i] = from_float<T>(value);
      }
      store_pack<T, N>(dx + pack * N, held_dy[k]);
    }
  }

  // The block's part of dweight: first over lanes of a warp that hold the same columns, then the
  // block's rows (or warps) one after the other.
  if (stride < kWarp) {
    for (float& sum : sums) sum = sum_lanes(sum, kWarp, stride);
  }
  float* const totals = scratch + 2 * kWarp;
  const int threads_per_turn = stride < kWarp ? kWarp : stride;
  const int num_turns = block_threads() / threads_per_turn;
  const bool has_columns = thread_rank() % threads_per_turn < stride;
  for (int turn = 0; turn < num_turns; ++turn) {
    if (has_columns && thread_rank() / threads_per_turn == turn) {
      for (int k = 0; k < kPacks; ++k) {
        const int pack = static_cast<int>(threadIdx.x) + k * stride;
        if (pack >= shape.packs) continue;
        for (int i = 0; i < N; ++i) {
          float& total = totals[pack * N + i];
          total = turn == 0 ? sums[k * N + i] : total + sums[k * N + i];
        }
      }
    }
    __syncthreads();
  }
  for (int col = thread_rank(); col < shape.d; col += block_threads()) {
    args.weight_sum.put(shape.d, col, totals[col]);
  }
}

/// One group at a time per block; the block's part of dweight lies in shared memory, each column
/// with one thread.
template <typename T>
__global__ void __launch_bounds__(kScalarThreads) backward_scalar(Gradients<T> args, Shape shape) {
  auto* const scratch = block_shared<float>();
  float* const totals = scratch + kWarp;
  const int begin = static_cast<int>(threadIdx.x);
  for (int i = begin; i < shape.d; i += kScalarThreads) totals[i] = 0.0F;
  for (unsigned group = blockIdx.x; group < shape.num_groups; group += gridDim.x) {
    const T* x = args.x.at(group, shape.heads, shape.d);
    const T* dy = args.dy.at(group, shape.heads, shape.d);
    T* dx = args.dx.at(group, shape.heads, shape.d);
    const float rstd = *args.rstd.at(group, shape.heads, 1);
    float dot = 0.0F;
    for (int i = begin; i < shape.d; i += kScalarThreads) {
      const float product = to_float(dy[i]) * (to_float(x[i]) * rstd);
      totals[i] += product;
      dot += product * to_float(args.weight[i]);
    }
    const float mean = block_sum(dot, scratch) / static_cast<float>(shape.d);
    for (int i = begin; i < shape.d; i += kScalarThreads) {
      const float g = to_float(dy[i]) * to_float(args.weight[i]);
      const float value = rstd * (g - to_float(x[i]) * rstd * mean);
      dx[i] = from_float<T>(args.accumulate_dx ? to_float(dx[i]) + value : value);
    }
  }
  for (int i = begin; i < shape.d; i += kScalarThreads) {
    args.weight_sum.put(shape.d, i, totals[i]);
  }
}

/// Threads that share a group.
int threads_for(const Shape& shape) { return row_threads(shape.packs, kPacks); }

Shape shape_of(const Tensor& x, const Tensor& weight, const Tensor& rstd, int64_t heads) {
  const int64_t d = weight.cols;
  MOETUNE_CHECK(x.cols == heads * d && rstd.rows == x.rows && rstd.cols == heads,
                "rms_norm: x [{},{}], weight [1,{}], rstd [{},{}], heads {}", x.rows, x.cols, d,
                rstd.rows, rstd.cols, heads);
  MOETUNE_CHECK(x.rows * heads < INT32_MAX && d < INT32_MAX,
                "rms_norm: {} rows of {} heads are too many", x.rows, heads);
  return {static_cast<unsigned>(x.rows * heads), static_cast<unsigned>(heads), static_cast<int>(d),
          static_cast<int>(d * base::size_of(x.dtype) / kPackBytes)};
}

/// True when every group starts and ends on a pack and fits into the registers of a block.
bool can_pack(const Shape& shape, const Tensor& x, const Tensor& weight) {
  return is_divisible(weight) && is_divisible(x) && threads_for(shape) <= kMaxThreads;
}

}  // namespace

void rms_norm(Stream stream, const RmsNormArgs& args) {
  const Shape shape = shape_of(args.x, args.weight, args.rstd, args.heads);
  const auto eps = static_cast<float>(args.eps);
  dispatch_float(args.x.dtype, [&]<typename T>(std::type_identity<T>) {
    const Groups<T> x(args.x);
    const Groups<T> out(args.out);
    const Groups<float> rstd(args.rstd);
    const auto* weight = static_cast<const T*>(args.weight.data);
    if (can_pack(shape, args.x, args.weight) && is_divisible(args.out)) {
      const int threads = threads_for(shape);
      const auto per_block = static_cast<unsigned>(threads > kWarp ? 1 : kBlockThreads / threads);
      launch(forward<T, kPackOf<T>>,
             {grid_of(ceil_div(shape.num_groups, per_block), INT32_MAX),
              dim3(static_cast<unsigned>(threads), per_block), 2 * kWarp * sizeof(float)},
             stream, x, weight, out, rstd, shape, eps);
    } else {
      launch(forward_scalar<T>, {shape.num_groups, kScalarThreads, kWarp * sizeof(float)}, stream,
             x, weight, out, rstd, shape, eps);
    }
  });
}

int64_t rms_norm_backward_scratch_bytes(int64_t cols) {
  return kBackwardBlocks * cols * static_cast<int64_t>(sizeof(float));
}

void rms_norm_backward(Stream stream, const RmsNormBackwardArgs& args) {
  rms_norm_backward(stream, args, {});
}

void rms_norm_backward(Stream stream, const RmsNormBackwardArgs& args, Scratch scratch) {
  const Shape shape = shape_of(args.x, args.weight, args.rstd, args.heads);
  if (shape.num_groups == 0) return;
  const bool has_parts = scratch.bytes >= rms_norm_backward_scratch_bytes(shape.d);
  auto* dweight = static_cast<float*>(args.dweight.data);
  const WeightSum weight_sum{has_parts ? scratch.data : nullptr, dweight};
  int64_t num_blocks = 0;
  dispatch_float(args.x.dtype, [&]<typename T>(std::type_identity<T>) {
    const Gradients<T> gradients{Groups<T>(args.x),
                                 static_cast<const T*>(args.weight.data),
                                 Groups<float>(args.rstd),
                                 Groups<T>(args.dy),
                                 Groups<T>(args.dx),
                                 args.accumulate_dx,
                                 weight_sum};
    if (can_pack(shape, args.x, args.weight) && is_divisible(args.dy) && is_divisible(args.dx)) {
      const int threads = threads_for(shape);
      const auto per_block = static_cast<unsigned>(std::max(1, kBlockThreads / threads));
      const bool is_wide = threads > kBlockThreads;
      num_blocks =
          std::min(ceil_div(shape.num_groups, per_block), is_wide ? kWideBlocks : kBackwardBlocks);
      launch(is_wide ? backward<T, kPackOf<T>, kMaxThreads, 1>
                     : backward<T, kPackOf<T>, kBlockThreads, kBackwardBlocks / kNumSms>,
             {grid_of(num_blocks), dim3(static_cast<unsigned>(threads), per_block),
              (2 * kWarp + shape.d) * sizeof(float)},
             stream, gradients, shape);
    } else {
      num_blocks = std::min<int64_t>(shape.num_groups, kBackwardBlocks);
      launch(backward_scalar<T>,
             {grid_of(num_blocks), kScalarThreads, (kWarp + shape.d) * sizeof(float)}, stream,
             gradients, shape);
    }
  });
  if (has_parts) {
    add_column_sums(stream, Tensor::matrix(scratch.data, DType::f32, num_blocks, shape.d), dweight);
  }
}

}  // namespace moetune::kernels::cuda
