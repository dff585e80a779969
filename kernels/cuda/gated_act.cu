// Gated activations and their gradient, optionally weighted by the router's probability per row.
// The threads along x share a row; the gradient of its probability is their sum.
#include "kernels/cuda/row_tiles.cuh"

namespace moetune::kernels::cuda {
namespace {

/// An activation's value and derivative.
struct Point {
  float value;
  float slope;
};

constexpr float kInvSqrt2 = 0.70710678F;
constexpr float kInvSqrt2Pi = 0.39894228F;
constexpr float kSqrt2OverPi = 0.79788456F;
constexpr float kGeluCubic = 0.044715F;

__device__ Point silu(float g) {
  // The quick division gives 0 where 1 + exp overflows, which is the limit.
  const float sigmoid = __fdividef(1.0F, 1.0F + __expf(-g));
  return {g * sigmoid, sigmoid * (1.0F + g * (1.0F - sigmoid))};
}

__device__ Point gelu(float g) {
  const float cdf = 0.5F * erfcf(-g * kInvSqrt2);  // 1 + erf() would cancel far below zero
  return {g * cdf, cdf + g * kInvSqrt2Pi * __expf(-0.5F * g * g)};
}

__device__ Point gelu_tanh(float g) {
  // (1 + tanh(x)) / 2 as the sigmoid of 2 x: the sum would cancel far below zero.
  const float twice = 2.0F * kSqrt2OverPi * (g + kGeluCubic * g * g * g);
  const float slope = 2.0F * kSqrt2OverPi * (1.0F + 3.0F * kGeluCubic * g * g);
  const float sigmoid = __fdividef(1.0F, 1.0F + __expf(-twice));
  return {g * sigmoid, sigmoid + sigmoid * (1.0F - sigmoid) * g * slope};
}

__device__ Point relu(float g) { return {g > 0.0F ? g : 0.0F, g > 0.0F ? 1.0F : 0.0F}; }

/// One pack at a time, so that the choice costs nothing beside the loads.
template <typename T, int N>
__device__ void evaluate(Activation activation, const Pack<T, N>& gate, Point (&points)[N]) {
  switch (activation) {
    case Activation::silu:
      for (int i = 0; i < N; ++i) points[i] = silu(to_float(gate.at[i]));
      break;
    case Activation::gelu:
      for (int i = 0; i < N; ++i) points[i] = gelu(to_float(gate.at[i]));
      break;
    case Activation::gelu_tanh:
      for (int i = 0; i < N; ++i) points[i] = gelu_tanh(to_float(gate.at[i]));
      break;
    case Activation::relu:
      for (int i = 0; i < N; ++i) points[i] = relu(to_float(gate.at[i]));
      break;
  }
}

constexpr int kPacks = 2;  ///< packs of a row per thread

/// The rows to visit: count of them, by the list or all.
struct Visit {
  const int32_t* rows;
  int64_t count;
  int64_t num_rows;
  int packs;
  Activation activation;

  __device__ int64_t row(int64_t i) const {
    if (rows == nullptr) return i;
    check_row(rows[i], num_rows);
    return rows[i];
  }
};

/// A column vector that may be missing.
struct PerRow {
  float* data;
  int64_t ld;

  explicit PerRow(const Tensor& tensor) : data(static_cast<float*>(tensor.data)), ld(tensor.ld) {}
  __device__ float get(int64_t row) const { return data == nullptr ? 1.0F : data[row * ld]; }
};

template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads)
    forward(Rows<const T> x, PerRow probs, Rows<T> out, Visit visit) {
  const int64_t i = RowTile::first_row();
  if (i >= visit.count) return;
  const int64_t row = visit.row(i);
  const float prob = probs.get(row);
  const T* gate = x.at(row);
  const T* up = gate + static_cast<int64_t>(visit.packs) * N;
  T* to = out.at(row);
  const int apart = static_cast<int>(blockDim.x);
  for (int first = static_cast<int>(threadIdx.x); first < visit.packs; first += kPacks * apart) {
    Pack<T, N> held_gate[kPacks] = {};
    Pack<T, N> held_up[kPacks] = {};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int pack = first + k * apart;
      if (pack >= visit.packs) continue;
      held_gate[k] = load_pack<T, N>(gate + pack * N);
      held_up[k] = load_pack<T, N>(up + pack * N);
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int pack = first + k * apart;
      if (pack >= visit.packs) continue;
      Point points[N] = {};
      evaluate(visit.activation, held_gate[k], points);
      for (int j = 0; j < N; ++j) {
        held_up[k].at[j] = from_float<T>(points[j].value * to_float(held_up[k].at[j]) * prob);
      }
      store_pack<T, N>(to + pack * N, held_up[k]);
    }
  }
}

template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads)
    backward(Rows<const T> x, PerRow probs, Rows<const T> dout, Rows<T> dx, PerRow dprobs,
             Visit visit) {
  const int64_t i = RowTile::first_row();
  const bool is_active = i < visit.count;
  const int64_t row = is_active ? visit.row(i) : 0;
  const float prob = is_active ? probs.get(row) : 0.0F;
  const int packs = is_active ? visit.packs : 0;
  const int64_t f = static_cast<int64_t>(visit.packs) * N;
  const T* gate = x.at(row);
  const T* from = dout.at(row);
  T* to = dx.at(row);
  float dprob = 0.0F;
  const int apart = static_cast<int>(blockDim.x);
  for (int first = static_cast<int>(threadIdx.x); first < packs; first += kPacks * apart) {
    Pack<T, N> held_gate[kPacks] = {};
    Pack<T, N> held_up[kPacks] = {};
    Pack<T, N> held[kPacks] = {};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int pack = first + k * apart;
      if (pack >= packs) continue;
      held_gate[k] = load_pack<T, N>(gate + pack * N);
      held_up[k] = load_pack<T, N>(gate + f + pack * N);
      held[k] = load_pack<T, N>(from + pack * N);
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int pack = first + k * apart;
      if (pack >= packs) continue;
      Point points[N] = {};
      evaluate(visit.activation, held_gate[k], points);
      for (int j = 0; j < N; ++j) {
        const float up = to_float(held_up[k].at[j]);
        const float d = to_float(held[k].at[j]);
        dprob += d * (points[j].value * up);
        held_gate[k].at[j] = from_float<T>(d * prob * up * points[j].slope);
        held_up[k].at[j] = from_float<T>(d * prob * points[j].value);
      }
      store_pack<T, N>(to + pack * N, held_gate[k]);
      store_pack<T, N>(to + f + pack * N, held_up[k]);
    }
  }
  if (dprobs.data == nullptr) return;
  dprob = row_sum(dprob, block_shared<float>(), 0);
  if (is_active && threadIdx.x == 0) dprobs.data[row * dprobs.ld] = dprob;
}

Visit visit_of(const GatedActArgs& args, int64_t packs) {
  const bool has_list = !args.rows.is_null();
  return {index_of(args.rows), has_list ? args.rows.rows : args.x.rows, args.x.rows,
          static_cast<int>(packs), args.activation};
}

LaunchShape shape_of(const Visit& visit) {
  const int threads = std::min(row_threads(visit.packs, kPacks), kTileThreads);
  const int per_block = kTileThreads / threads;
  LaunchShape shape;
  shape.grid = grid_of(ceil_div(visit.count, per_block), INT32_MAX);
  shape.block = dim3(static_cast<unsigned>(threads), static_cast<unsigned>(per_block));
  shape.shared_bytes = 2 * kWarp * sizeof(float);
  return shape;
}

}  // namespace

void gated_act(Stream stream, const GatedActArgs& args) {
  MOETUNE_CHECK(args.x.cols == 2 * args.out.cols, "gated_act: x has {} columns, out {}",
                args.x.cols, args.out.cols);
  dispatch_float(args.x.dtype, [&]<typename T>(std::type_identity<T>) {
    const auto run = [&]<int N>(std::integral_constant<int, N>) {
      const Visit visit = visit_of(args, args.out.cols / N);
      launch(forward<T, N>, shape_of(visit), stream, Rows<const T>(args.x), PerRow(args.probs),
             Rows<T>(args.out), visit);
    };
    if (is_divisible(args.x) && is_divisible(args.out)) {
      run(std::integral_constant<int, kPackOf<T>>{});
    } else {
      run(std::integral_constant<int, 1>{});
    }
  });
}

void gated_act_backward(Stream stream, const GatedActBackwardArgs& args) {
  const GatedActArgs& saved = args.forward;
  MOETUNE_CHECK(saved.x.cols == 2 * args.dout.cols && args.dx.cols == saved.x.cols,
                "gated_act_backward: x has {} columns, dx {}, dout {}", saved.x.cols, args.dx.cols,
                args.dout.cols);
  const Tensor dprobs = saved.probs.is_null() ? Tensor{} : args.dprobs;
  dispatch_float(args.dout.dtype, [&]<typename T>(std::type_identity<T>) {
    const auto run = [&]<int N>(std::integral_constant<int, N>) {
      const Visit visit = visit_of(saved, args.dout.cols / N);
      launch(backward<T, N>, shape_of(visit), stream, Rows<const T>(saved.x), PerRow(saved.probs),
             Rows<const T>(args.dout), Rows<T>(args.dx), PerRow(dprobs), visit);
    };
    if (is_divisible(saved.x) && is_divisible(args.dout) && is_divisible(args.dx)) {
      run(std::integral_constant<int, kPackOf<T>>{});
    } else {
      run(std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace moetune::kernels::cuda
