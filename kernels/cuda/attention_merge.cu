// Attention over two sets of keys from the attention over each: what a ring does with every block
// of keys that comes by. Some lanes of a warp share a head of a row, a pack each.
#include <algorithm>

#include "kernels/cuda/row_tiles.cuh"

namespace moetune::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
struct Merge {
  Rows<T> out;
  Rows<float> lse;
  Rows<const T> part_out;
  Rows<const float> part_lse;
  int64_t num_rows;
  int64_t heads;
  int64_t d;
};

// What a side counts: nothing where it saw no key, and then its elements are not looked at.
struct Side {
  float weight;
  bool has_keys;

  [[nodiscard]] __device__ float of(float element) const {
    return has_keys ? element * weight : 0.0F;
  }
};

template <typename T, int N>
__global__ void __launch_bounds__(kThreads) merge_kernel(Merge<T> args, int lanes) {
  const int64_t number = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / lanes;
  const bool is_real = number < args.num_rows * args.heads;
  const int64_t row = is_real ? number / args.heads : 0;
  const int64_t head = is_real ? number % args.heads : 0;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  float lse = -INFINITY;
  float part_lse = -INFINITY;
  if (is_real) {
    lse = args.lse.at(row)[head];
    part_lse = args.part_lse.at(row)[head];
  }
  __syncwarp();  // the first lane overwrites what the others read
  if (!is_real) return;
  // A NaN of either side gets through: no comparison with it holds.
  const float largest = part_lse > lse ? part_lse : lse;
  Side own{expf(lse - largest), lse != -INFINITY};
  Side part{expf(part_lse - largest), part_lse != -INFINITY};
  const float total = own.of(1.0F) + part.of(1.0F);
  own.weight /= total;
  part.weight /= total;
  if (lane == 0) args.lse.at(row)[head] = total == 0.0F ? -INFINITY : largest + logf(total);
  T* const out = args.out.at(row) + head * args.d;
  const T* const part_out = args.part_out.at(row) + head * args.d;
  for (int64_t first = int64_t{lane} * N; first < args.d; first += int64_t{lanes} * N) {
    auto held = load_pack<T, N>(out + first);
    const auto other = load_pack<T, N>(part_out + first);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      held.at[i] = from_float<T>(own.of(to_float(held.at[i])) + part.of(to_float(other.at[i])));
    }
    store_pack<T, N>(out + first, held);
  }
}

template <typename T, int N>
void launch_merge(Stream stream, const AttentionMergeArgs& args) {
  const int64_t d = args.out.cols / args.heads;
  const int lanes = std::min(row_threads(d / N, 1), kWarp);
  const Merge<T> merge{Rows<T>(args.out),
                       Rows<float>(args.lse),
                       Rows<const T>(args.part_out),
                       Rows<const float>(args.part_lse),
                       args.out.rows,
                       args.heads,
                       d};
  const int64_t blocks = ceil_div(args.out.rows * args.heads * lanes, kThreads);
  launch(merge_kernel<T, N>, {dim3(static_cast<unsigned>(blocks)), dim3(kThreads)}, stream, merge,
         lanes);
}

}  // namespace

void attention_merge(Stream stream, const AttentionMergeArgs& args) {
  const auto is_like = [](const Tensor& a, const Tensor& b) {
    return a.rows == b.rows && a.cols == b.cols && a.dtype == b.dtype;
  };
  MOETUNE_CHECK(args.heads > 0 && args.out.cols % args.heads == 0 && args.lse.cols == args.heads &&
                    args.lse.rows == args.out.rows && args.lse.dtype == DType::f32 &&
                    is_like(args.out, args.part_out) && is_like(args.lse, args.part_lse),
                "attention_merge: out [{},{}], part_out [{},{}], lse [{},{}], part_lse [{},{}], {} "
                "heads",
                args.out.rows, args.out.cols, args.part_out.rows, args.part_out.cols, args.lse.rows,
                args.lse.cols, args.part_lse.rows, args.part_lse.cols, args.heads);
  dispatch_float(args.out.dtype, [&]<typename T>(std::type_identity<T>) {
    constexpr int kPack = kPackOf<T>;
    const bool has_packs = args.out.cols / args.heads % kPack == 0 && is_divisible(args.out) &&
                           is_divisible(args.part_out);
    has_packs ? launch_merge<T, kPack>(stream, args) : launch_merge<T, 1>(stream, args);
  });
}

}  // namespace moetune::kernels::cuda
