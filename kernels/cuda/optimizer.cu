// The optimizer's arithmetic as single launches over many tensors: AdamW and the sum of squares
// that clipping needs. The table of slices travels as a kernel parameter, so that nothing has to be
// copied to the device or kept alive; more slices than a table holds take several launches.
#include <cmath>
#include <vector>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/stochastic_round.h"

namespace moetune::kernels::cuda {
namespace {

constexpr size_t kMaxParameterBytes = 32764;
constexpr int kThreads = 256;
constexpr int kQuad = 4;  // elements of one access: 16 bytes of f32, 8 of bf16
constexpr int kQuadsOfTile = 4;
constexpr int kQuadStride = kThreads * kQuad;
constexpr int64_t kTile = int64_t{kQuadsOfTile} * kQuadStride;  // elements, all of one slice

// Where each slice's tiles begin among all tiles of the launch.
template <int kMaxSlices>
struct Tiles {
  int num_slices;
  int begin[kMaxSlices + 1];

  [[nodiscard]] int64_t total() const { return begin[num_slices]; }

  // The slice that holds `tile`.
  [[nodiscard]] __device__ int slice_of(int64_t tile) const {
    int low = 0;
    int high = num_slices;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (begin[middle] <= tile) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

template <typename T>
__device__ bool is_quad_aligned(const T* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % (kQuad * sizeof(T)) == 0;
}

template <typename T>
using QuadWord = std::conditional_t<sizeof(T) == 4, uint4, uint2>;

// Elements [first, first + 4) as they are, one access where `is_whole`; zeros from `end` on.
template <typename T>
__device__ Pack<T, kQuad> load_quad(const T* from, int64_t first, int64_t end, bool is_whole) {
  Pack<T, kQuad> pack;
  if (is_whole) {
    *reinterpret_cast<QuadWord<T>*>(&pack) = *reinterpret_cast<const QuadWord<T>*>(from + first);
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      pack.at[i] = first + i < end ? from[first + i] : from_float<T>(0.0F);
    }
  }
  return pack;
}

// As one access where `is_whole`: an ordinary assignment would be taken apart into the elements.
template <typename T>
__device__ void store_quad(T* to, int64_t first, int64_t end, bool is_whole,
                           const Pack<T, kQuad>& pack) {
  if (is_whole) {
    __stcg(reinterpret_cast<QuadWord<T>*>(to + first),
           *reinterpret_cast<const QuadWord<T>*>(&pack));
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) {
      if (first + i < end) to[first + i] = pack.at[i];
    }
  }
}

// --- AdamW ------------------------------------------------------------------------------------

struct Update {
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float step_size;
  float v_scale;
  float keep;  // of the master where weight decay applies
  float eps;
  float grad_scale;
  uint64_t rounding_key;
};

constexpr int kMaxUpdates = 530;

template <typename W, typename M, typename V>
struct UpdateTable {
  struct Slice {
    W* weight;
    float* master;
    M* m;
    V* v;
    const float* grad;
    int64_t numel;
    int64_t first_element;
  };
  Slice slices[kMaxUpdates];
  Tiles<kMaxUpdates> tiles;
  Update update;
  bool use_decay[kMaxUpdates];
};

// A moment as it is kept: as it is, or narrower by the draw.
template <typename M>
__device__ M kept_moment(float value, uint32_t draw) {
  if constexpr (std::is_same_v<M, float>) {
    return value;
  } else {
    return __nv_bfloat16_raw{stochastic_bf16(__float_as_uint(value), draw)};
  }
}

// Weight and master may be the same memory: a thread reads all of its quad before it writes.
template <typename W, typename M, typename V>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const __grid_constant__ UpdateTable<W, M, V> table) {
  const Update& u = table.update;
  for (int64_t tile = blockIdx.x; tile < table.tiles.begin[table.tiles.num_slices];
       tile += gridDim.x) {
    const int number = table.tiles.slice_of(tile);
    const auto& slice = table.slices[number];
    const bool is_aligned = is_quad_aligned(slice.weight) && is_quad_aligned(slice.master) &&
                            is_quad_aligned(slice.m) && is_quad_aligned(slice.v) &&
                            is_quad_aligned(slice.grad);
    const float keep = table.use_decay[number] ? u.keep : 1.0F;
    const int64_t begin = (tile - table.tiles.begin[number]) * kTile + threadIdx.x * kQuad;
    for (int q = 0; q < kQuadsOfTile; ++q) {
      const int64_t first = begin + q * kQuadStride;
      if (first >= slice.numel) break;
      const bool is_whole = is_aligned && first + kQuad <= slice.numel;
      // All of them before the first is used.
      Pack<float, kQuad> grad;
      Pack<float, kQuad> old_master;
      Pack<M, kQuad> old_m;
      Pack<V, kQuad> old_v;
      if (is_whole) {
        grad = load_quad(slice.grad, first, slice.numel, true);
        old_master = load_quad(slice.master, first, slice.numel, true);
        old_m = load_quad(slice.m, first, slice.numel, true);
        old_v = load_quad(slice.v, first, slice.numel, true);
      } else {
        grad = load_quad(slice.grad, first, slice.numel, false);
        old_master = load_quad(slice.master, first, slice.numel, false);
        old_m = load_quad(slice.m, first, slice.numel, false);
        old_v = load_quad(slice.v, first, slice.numel, false);
      }
      Pack<float, kQuad> new_master;
      Pack<W, kQuad> new_weight;
      Pack<M, kQuad> new_m;
      Pack<V, kQuad> new_v;
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        const float g = grad.at[i] * u.grad_scale;
        const float m = u.beta1 * to_float(old_m.at[i]) + u.one_minus_beta1 * g;
        const float v = u.beta2 * to_float(old_v.at[i]) + u.one_minus_beta2 * g * g;
        const float master =
            old_master.at[i] * keep - u.step_size * m / (sqrtf(v * u.v_scale) + u.eps);
        const uint64_t bits = rounding_bits(u.rounding_key, slice.first_element + first + i);
        new_m.at[i] = kept_moment<M>(m, draw_of_m(bits));
        new_v.at[i] = kept_moment<V>(v, draw_of_v(bits));
        new_master.at[i] = master;
        new_weight.at[i] = from_float<W>(master);
      }
      store_quad(slice.m, first, slice.numel, is_whole, new_m);
      store_quad(slice.v, first, slice.numel, is_whole, new_v);
      store_quad(slice.master, first, slice.numel, is_whole, new_master);
      store_quad(slice.weight, first, slice.numel, is_whole, new_weight);
    }
  }
}

Update update_of(const AdamWArgs& args) {
  const auto step = static_cast<double>(args.step);
  return {static_cast<float>(args.beta1),
          static_cast<float>(args.beta2),
          static_cast<float>(1.0 - args.beta1),
          static_cast<float>(1.0 - args.beta2),
          static_cast<float>(args.lr / (1.0 - std::pow(args.beta1, step))),
          static_cast<float>(1.0 / (1.0 - std::pow(args.beta2, step))),
          static_cast<float>(1.0 - args.lr * args.weight_decay),
          static_cast<float>(args.eps),
          static_cast<float>(args.grad_scale),
          rounding_key(args.rounding_seed, args.step)};
}

// Calls launch_table() with tables that together hold all slices that are not empty; set(i, slice)
// writes the table's entry i.
template <int kMaxSlices, typename Slice, typename Set, typename LaunchTable>
void for_tables(const std::vector<Slice>& slices, Tiles<kMaxSlices>& tiles, const Set& set,
                const LaunchTable& launch_table) {
  tiles.num_slices = 0;
  tiles.begin[0] = 0;
  for (const Slice& slice : slices) {
    if (slice.numel == 0) continue;
    if (tiles.num_slices == kMaxSlices) {
      launch_table();
      tiles.num_slices = 0;
    }
    set(tiles.num_slices, slice);
    tiles.begin[tiles.num_slices + 1] =
        tiles.begin[tiles.num_slices] + static_cast<int>(ceil_div(slice.numel, kTile));
    ++tiles.num_slices;
  }
  if (tiles.num_slices > 0) launch_table();
}

template <typename W, typename M, typename V>
void launch_adamw(Stream stream, const AdamWArgs& args) {
  static_assert(sizeof(UpdateTable<W, M, V>) <= kMaxParameterBytes);
  UpdateTable<W, M, V> table;
  table.update = update_of(args);
  for_tables(
      args.slices, table.tiles,
      [&](int i, const AdamWArgs::Slice& slice) {
        table.slices[i] = {static_cast<W*>(slice.weight),
                           static_cast<float*>(slice.master),
                           static_cast<M*>(slice.m),
                           static_cast<V*>(slice.v),
                           static_cast<const float*>(slice.grad),
                           slice.numel,
                           slice.first_element};
        table.use_decay[i] = slice.use_decay;
      },
      [&] {
        launch(adamw_kernel<W, M, V>, {grid_of(table.tiles.total(), kNumSms * 8), dim3(kThreads)},
               stream, table);
      });
}

// --- sum of squares -----------------------------------------------------------------------------

constexpr int kNormBlocks = kNumSms * 4;
constexpr int kMaxNorms = 1600;

template <typename T>
struct NormTable {
  struct Slice {
    const T* data;
    int64_t numel;
  };
  Slice slices[kMaxNorms];
  Tiles<kMaxNorms> tiles;
};

// Each block's sum waits here for the last launch, which adds them in a fixed order. Several
// streams may be at it at once (ranks that share a device), so a call takes a slot; between its
// launches *result holds the slot's number. More calls at once than slots wait for each other.
constexpr int kNormSlots = 32;
__device__ int norm_slot_is_taken[kNormSlots];
__device__ double norm_partials[kNormSlots][kNormBlocks];

__global__ void take_norm_slot_kernel(double* result) {
  for (int slot = 0;; slot = (slot + 1) % kNormSlots) {
    if (atomicCAS(norm_slot_is_taken + slot, 0, 1) != 0) continue;
    *result = __longlong_as_double(slot);
    return;
  }
}

// The sum over the block in the first thread, always in the same order.
__device__ double first_thread_sum(double value) {
  auto* partial = block_shared<double>();
  const int own = static_cast<int>(threadIdx.x);
  partial[own] = value;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (own < half) partial[own] += partial[own + half];
  }
  return partial[0];
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    squared_norm_kernel(const __grid_constant__ NormTable<T> table, const double* result,
                        bool is_first) {
  double sum = 0.0;
  for (int64_t tile = blockIdx.x; tile < table.tiles.begin[table.tiles.num_slices];
       tile += gridDim.x) {
    const int number = table.tiles.slice_of(tile);
    const auto& slice = table.slices[number];
    const bool is_aligned = is_quad_aligned(slice.data);
    const int64_t begin = (tile - table.tiles.begin[number]) * kTile + threadIdx.x * kQuad;
    Pack<T, kQuad> values[kQuadsOfTile] = {};
#pragma unroll
    for (int q = 0; q < kQuadsOfTile; ++q) {
      const int64_t first = begin + q * kQuadStride;
      if (first >= slice.numel) break;
      values[q] =
          load_quad(slice.data, first, slice.numel, is_aligned && first + kQuad <= slice.numel);
    }
#pragma unroll
    for (int q = 0; q < kQuadsOfTile; ++q) {
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        const double value = static_cast<double>(to_float(values[q].at[i]));
        sum += value * value;
      }
    }
  }
  sum = first_thread_sum(sum);
  if (threadIdx.x != 0) return;
  double* partial = norm_partials[__double_as_longlong(*result)] + blockIdx.x;
  *partial = is_first ? sum : *partial + sum;
}

__global__ void __launch_bounds__(kThreads) finish_norm_kernel(double* result, int num_partials) {
  const auto slot = __double_as_longlong(*result);
  double sum = 0.0;
  for (int i = static_cast<int>(threadIdx.x); i < num_partials; i += kThreads) {
    sum += norm_partials[slot][i];
  }
  sum = first_thread_sum(sum);
  // All have read their partials: the sum comes after them.
  if (threadIdx.x != 0) return;
  *result = sum;
  __threadfence();
  atomicExch(norm_slot_is_taken + slot, 0);
}

template <typename T>
void launch_squared_norm(Stream stream, const SquaredNormArgs& args) {
  static_assert(sizeof(NormTable<T>) + 16 <= kMaxParameterBytes);
  // The grid follows from the slices alone, and with it the order of the sum.
  int64_t num_tiles = 0;
  for (const auto& slice : args.slices) num_tiles += ceil_div(slice.numel, kTile);
  const dim3 grid = grid_of(num_tiles, kNormBlocks);
  launch(take_norm_slot_kernel, {dim3(1), dim3(1)}, stream, args.result);
  NormTable<T> table;
  bool is_first = true;
  for_tables(
      args.slices, table.tiles,
      [&](int i, const SquaredNormArgs::Slice& slice) {
        table.slices[i] = {static_cast<const T*>(slice.data), slice.numel};
      },
      [&] {
        launch(squared_norm_kernel<T>, {grid, dim3(kThreads), kThreads * sizeof(double)}, stream,
               table, args.result, is_first);
        is_first = false;
      });
  launch(finish_norm_kernel, {dim3(1), dim3(kThreads), kThreads * sizeof(double)}, stream,
         args.result, static_cast<int>(grid.x));
}

}  // namespace

void adamw(Stream stream, const AdamWArgs& args) {
  MOETUNE_CHECK(args.step >= 1, "adamw: step {} must count from 1", args.step);
  MOETUNE_CHECK(args.dtype == DType::f32, "adamw: master and gradient are {}, not f32",
                base::name_of(args.dtype));
  dispatch_float(args.weight_dtype, [&]<typename W>(std::type_identity<W>) {
    dispatch_float(args.m_dtype, [&]<typename M>(std::type_identity<M>) {
      dispatch_float(args.v_dtype, [&]<typename V>(std::type_identity<V>) {
        launch_adamw<W, M, V>(stream, args);
      });
    });
  });
}

void squared_norm(Stream stream, const SquaredNormArgs& args) {
  dispatch_float(args.dtype,
                 [&]<typename T>(std::type_identity<T>) { launch_squared_norm<T>(stream, args); });
}

}  // namespace moetune::kernels::cuda
