// Rotary position embedding in the halves layout, in place. A thread turns the same dimensions of
// several heads, so that cosines and sines are read once for all of them.
#include "kernels/cuda/row_tiles.cuh"

namespace moetune::kernels::cuda {
namespace {

constexpr int kHeadsPerThread = 4;

struct Shape {
  unsigned num_items;  ///< rows times groups of heads
  unsigned head_groups;
  int heads;
  int half;
  int64_t max_positions;
  float sign;
};

template <typename T, int N>
__global__ void __launch_bounds__(kTileThreads)
    rotate(Rows<T> x, Rows<const float> cos, Rows<const float> sin, const int32_t* positions,
           Shape shape) {
  const unsigned item = blockIdx.x * blockDim.y + threadIdx.y;
  if (item >= shape.num_items) return;
  const int64_t row = item / shape.head_groups;
  const int first_head = static_cast<int>(item % shape.head_groups) * kHeadsPerThread;
  const int64_t position = positions[row];
  check_row(position, shape.max_positions);
  for (int dim = static_cast<int>(threadIdx.x) * N; dim < shape.half;
       dim += static_cast<int>(blockDim.x) * N) {
    T* const first = x.at(row) + static_cast<int64_t>(first_head) * 2 * shape.half + dim;
    Pack<T, N> held[kHeadsPerThread][2] = {};
#pragma unroll
    for (int k = 0; k < kHeadsPerThread; ++k) {
      if (first_head + k >= shape.heads) continue;
      held[k][0] = load_pack<T, N>(first + 2 * k * shape.half);
      held[k][1] = load_pack<T, N>(first + (2 * k + 1) * shape.half);
    }
    const auto c = load_pack<float, N>(cos.at(position) + dim);
    const auto s = load_pack<float, N>(sin.at(position) + dim);
#pragma unroll
    for (int k = 0; k < kHeadsPerThread; ++k) {
      if (first_head + k >= shape.heads) continue;
      for (int i = 0; i < N; ++i) {
        const float a = to_float(held[k][0].at[i]);
        const float b = to_float(held[k][1].at[i]);
        const float signed_sin = shape.sign * s.at[i];
        held[k][0].at[i] = from_float<T>(a * c.at[i] - b * signed_sin);
        held[k][1].at[i] = from_float<T>(b * c.at[i] + a * signed_sin);
      }
      store_pack<T, N>(first + 2 * k * shape.half, held[k][0]);
      store_pack<T, N>(first + (2 * k + 1) * shape.half, held[k][1]);
    }
  }
}

}  // namespace

void rope(Stream stream, const RopeArgs& args) {
  const Tensor& x = args.x;
  const int64_t half = args.cos.cols;
  MOETUNE_CHECK(x.cols == 2 * args.heads * half && args.positions.rows == x.rows,
                "rope: x [{},{}], {} heads, cos [{},{}], {} positions", x.rows, x.cols, args.heads,
                args.cos.rows, half, args.positions.rows);
  const int64_t head_groups = ceil_div(args.heads, kHeadsPerThread);
  MOETUNE_CHECK(x.rows * head_groups < INT32_MAX, "rope: {} rows of {} heads are too many", x.rows,
                args.heads);
  if (x.numel() == 0) return;
  const Shape shape{static_cast<unsigned>(x.rows * head_groups),
                    static_cast<unsigned>(head_groups),
                    static_cast<int>(args.heads),
                    static_cast<int>(half),
                    args.cos.rows,
                    args.inverse ? -1.0F : 1.0F};
  dispatch_float(x.dtype, [&]<typename T>(std::type_identity<T>) {
    const auto run = [&]<int N>(std::integral_constant<int, N>) {
      const int threads = std::min(row_threads(half / N, 1), kTileThreads);
      const int per_block = kTileThreads / threads;
      launch(rotate<T, N>,
             {grid_of(ceil_div(shape.num_items, per_block), INT32_MAX),
              dim3(static_cast<unsigned>(threads), static_cast<unsigned>(per_block))},
             stream, Rows<T>(x), Rows<const float>(args.cos), Rows<const float>(args.sin),
             index_of(args.positions), shape);
    };
    // Half a head has to be whole packs, of x as well as of the f32 tables.
    if (half % kPackOf<T> == 0 && is_divisible(x) && is_divisible(args.cos) &&
        is_divisible(args.sin)) {
      run(std::integral_constant<int, kPackOf<T>>{});
    } else {
      run(std::integral_constant<int, 1>{});
    }
  });
}

}  // namespace moetune::kernels::cuda
