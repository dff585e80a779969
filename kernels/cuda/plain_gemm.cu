// Plain tiled products: dense ones and the experts'. The fallback where no vendor library is, and
// what the fast paths are compared with on a card.
//
// Each element is one chain of multiply-adds in rising k that begins with the old value (or 0), as
// in the CPU's row_gemm: cutting the rows over several calls changes no bit, nor does cutting an
// f32 weight gradient over consecutive calls that accumulate.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.cuh"

namespace moetune::kernels::cuda {
namespace {

constexpr int kTile = 64;            // rows and columns of c that a block computes
constexpr int kDepth = 16;           // k of one step
constexpr int kSide = 16;            // threads along either side of the tile
constexpr int kOwn = kTile / kSide;  // rows and columns of one thread
constexpr int kThreads = kSide * kSide;
constexpr int kPitch = kTile + 4;  // rows stay 16-byte aligned, banks are spread
constexpr size_t kSharedBytes = 2 * kDepth * kPitch * sizeof(float);

// A matrix whose row r lies at row rows[r] of the memory (rows null: at row r).
template <typename T>
struct View {
  T* data;
  int64_t ld;
  const int32_t* rows;

  __device__ T* row(int64_t r) const { return data + (rows == nullptr ? r : rows[r]) * ld; }

  __device__ View from_row(int64_t first) const {
    return rows == nullptr ? View{data + first * ld, ld, nullptr} : View{data, ld, rows + first};
  }
};

template <typename T>
View<T> view_of(const Tensor& tensor, const Tensor& rows = {}) {
  return {static_cast<T*>(tensor.data), tensor.ld, static_cast<const int32_t*>(rows.data)};
}

// c [m,n] = op(a) op(b) + (accumulate ? c : 0). An operand lies "along k" when neighbours in k are
// neighbours in memory: a not transposed, b transposed.
template <typename T, typename C>
struct Product {
  View<const T> a;
  View<const T> b;
  View<C> c;
  bool a_along_k;
  bool b_along_k;
  bool accumulate;
  int64_t m;
  int64_t n;
  int64_t depth;
};

// tile[k][outer] = the operand's elements from (outer_begin, k_begin) on, zeros past its ends.
template <typename T>
__device__ void load_tile(const View<const T>& x, bool along_k, int64_t outer_begin,
                          int64_t outer_end, int64_t k_begin, int64_t k_end, float* tile) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kDepth; i += kThreads) {
    const int outer = along_k ? i / kDepth : i % kTile;
    const int k = along_k ? i % kDepth : i / kTile;
    float value = 0.0F;
    if (outer_begin + outer < outer_end && k_begin + k < k_end) {
      value = to_float(along_k ? x.row(outer_begin + outer)[k_begin + k]
                               : x.row(k_begin + k)[outer_begin + outer]);
    }
    tile[k * kPitch + outer] = value;
  }
}

// The block's tile of c at (m_begin, n_begin).
template <typename T, typename C>
__device__ void multiply_tile(const Product<T, C>& p, int64_t m_begin, int64_t n_begin) {
  auto* a_tile = block_shared<float>();
  float* b_tile = a_tile + kDepth * kPitch;
  const int m_own = static_cast<int>(threadIdx.x) / kSide * kOwn;
  const int n_own = static_cast<int>(threadIdx.x) % kSide * kOwn;
  float sum[kOwn][kOwn] = {};
  if (p.accumulate) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int64_t m = m_begin + m_own + i;
      if (m >= p.m) break;
#pragma unroll
      for (int j = 0; j < kOwn; ++j) {
        const int64_t n = n_begin + n_own + j;
        if (n < p.n) sum[i][j] = to_float(p.c.row(m)[n]);
      }
    }
  }
  for (int64_t k_begin = 0; k_begin < p.depth; k_begin += kDepth) {
    load_tile(p.a, p.a_along_k, m_begin, p.m, k_begin, p.depth, a_tile);
    load_tile(p.b, p.b_along_k, n_begin, p.n, k_begin, p.depth, b_tile);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const auto a = load_pack<float, kOwn>(a_tile + k * kPitch + m_own);
      const auto b = load_pack<float, kOwn>(b_tile + k * kPitch + n_own);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
#pragma unroll
        for (int j = 0; j < kOwn; ++j) sum[i][j] += a.at[i] * b.at[j];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int64_t m = m_begin + m_own + i;
    if (m >= p.m) break;
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int64_t n = n_begin + n_own + j;
      if (n < p.n) p.c.row(m)[n] = from_float<C>(sum[i][j]);
    }
  }
}

__device__ int64_t num_tiles(int64_t length) { return (length + kTile - 1) / kTile; }

template <typename T, typename C>
__global__ void __launch_bounds__(kThreads) gemm_kernel(Product<T, C> product) {
  const int64_t n_tiles = num_tiles(product.n);
  multiply_tile(product, blockIdx.x / n_tiles * kTile, blockIdx.x % n_tiles * kTile);
}

struct ExpertTile {
  int64_t expert;  // -1: there are fewer tiles
  int64_t tile;    // among the expert's
};

// Tiles of rows are counted expert by expert, each expert's rows beginning a new one. Every warp of
// the block searches for itself, 32 experts at a time.
__device__ ExpertTile find_tile(const int32_t* offsets, int64_t num_experts, int64_t wanted) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int64_t first = 0; first < num_experts; first += kWarp) {
    const int64_t expert = first + lane;
    const int own = expert < num_experts
                        ? static_cast<int>(num_tiles(offsets[expert + 1] - offsets[expert]))
                        : 0;
    const int up_to = sum_up_to_lane(own);
    const unsigned reached = __ballot_sync(kAllLanes, wanted < up_to);
    if (reached != 0) {
      const int hit = __ffs(static_cast<int>(reached)) - 1;
      const int before = __shfl_sync(kAllLanes, up_to - own, hit);
      return {first + hit, wanted - before};
    }
    wanted -= __shfl_sync(kAllLanes, up_to, kWarp - 1);
  }
  return {-1, 0};
}

// out[row, :] = in[row, :] * op(W_e): forward and dgrad. `product` is that of expert 0 over the
// whole row list. The grid has a block for every tile there could be, as only the device knows the
// counts.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    expert_rows_kernel(Product<T, T> product, const int32_t* offsets, int64_t num_experts,
                       int64_t weight_rows) {
  const int64_t n_tiles = num_tiles(product.n);
  const ExpertTile place = find_tile(offsets, num_experts, blockIdx.x / n_tiles);
  if (place.expert < 0) return;
  const int64_t begin = offsets[place.expert];
  product.a = product.a.from_row(begin);
  product.b = product.b.from_row(place.expert * weight_rows);
  product.c = product.c.from_row(begin);
  product.m = offsets[place.expert + 1] - begin;
  multiply_tile(product, place.tile * kTile, blockIdx.x % n_tiles * kTile);
}

// W_e += y^T x over the expert's rows; `product` is that of expert 0.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    expert_weight_kernel(Product<T, float> product, const int32_t* offsets) {
  const int64_t n_tiles = num_tiles(product.n);
  const int64_t tiles = num_tiles(product.m) * n_tiles;
  const int64_t expert = blockIdx.x / tiles;
  const int64_t tile = blockIdx.x % tiles;
  const int64_t begin = offsets[expert];
  product.depth = offsets[expert + 1] - begin;
  if (product.depth == 0) return;
  product.a = product.a.from_row(begin);
  product.b = product.b.from_row(begin);
  product.c = product.c.from_row(expert * product.m);
  multiply_tile(product, tile / n_tiles * kTile, tile % n_tiles * kTile);
}

LaunchShape shape_of(int64_t num_blocks) {
  MOETUNE_CHECK(num_blocks <= INT32_MAX, "gemm: {} tiles are more than a grid holds", num_blocks);
  return {dim3(static_cast<unsigned>(num_blocks)), dim3(kThreads), kSharedBytes};
}

template <typename T, typename C>
void launch_gemm(Stream stream, const GemmArgs& args) {
  const Product<T, C> product{view_of<const T>(args.a),
                              view_of<const T>(args.b),
                              view_of<C>(args.c),
                              !args.trans_a,
                              args.trans_b,
                              args.accumulate,
                              args.c.rows,
                              args.c.cols,
                              args.trans_a ? args.a.rows : args.a.cols};
  launch(gemm_kernel<T, C>, shape_of(ceil_div(product.m, kTile) * ceil_div(product.n, kTile)),
         stream, product);
}

template <typename T>
void launch_rows(Stream stream, const GroupedGemmArgs& args) {
  const bool is_forward = args.mode == GroupedGemmMode::forward;
  const Tensor& in = is_forward ? args.x : args.y;
  const Tensor& out = is_forward ? args.y : args.x;
  const int64_t num_experts = args.offsets.rows - 1;
  const int64_t num_rows = args.rows.is_null() ? in.rows : args.rows.rows;
  const Product<T, T> product{view_of<const T>(in, args.rows),
                              view_of<const T>(args.w),
                              view_of<T>(out, args.rows),
                              true,
                              is_forward,
                              false,
                              num_rows,
                              out.cols,
                              in.cols};
  // Each expert with rows begins one tile more than its share of full ones, at most.
  const int64_t row_tiles = num_rows / kTile + (num_experts < num_rows ? num_experts : num_rows);
  launch(expert_rows_kernel<T>, shape_of(row_tiles * ceil_div(out.cols, kTile)), stream, product,
         static_cast<const int32_t*>(args.offsets.data), num_experts, args.y.cols);
}

template <typename T>
void launch_weights(Stream stream, const GroupedGemmArgs& args) {
  const Product<T, float> product{view_of<const T>(args.y, args.rows),
                                  view_of<const T>(args.x, args.rows),
                                  view_of<float>(args.w),
                                  false,
                                  false,
                                  true,
                                  args.y.cols,
                                  args.x.cols,
                                  0};
  const int64_t tiles = ceil_div(product.m, kTile) * ceil_div(product.n, kTile);
  launch(expert_weight_kernel<T>, shape_of((args.offsets.rows - 1) * tiles), stream, product,
         static_cast<const int32_t*>(args.offsets.data));
}

}  // namespace

void gemm(Stream stream, const GemmArgs& args) {
  const int64_t k = args.trans_a ? args.a.rows : args.a.cols;
  const bool a_fits = (args.trans_a ? args.a.cols : args.a.rows) == args.c.rows;
  const bool b_fits = (args.trans_b ? args.b.rows : args.b.cols) == args.c.cols &&
                      (args.trans_b ? args.b.cols : args.b.rows) == k;
  MOETUNE_CHECK(a_fits && b_fits, "gemm: a [{},{}]{} times b [{},{}]{} does not give c [{},{}]",
                args.a.rows, args.a.cols, args.trans_a ? "^T" : "", args.b.rows, args.b.cols,
                args.trans_b ? "^T" : "", args.c.rows, args.c.cols);
  const bool is_bf16 = args.a.dtype == DType::bf16;
  MOETUNE_CHECK(args.a.dtype == args.b.dtype &&
                    (args.c.dtype == DType::f32 || (is_bf16 && args.c.dtype == DType::bf16)) &&
                    (is_bf16 || args.a.dtype == DType::f32),
                "gemm: no product of {} and {} into {} on CUDA", base::name_of(args.a.dtype),
                base::name_of(args.b.dtype), base::name_of(args.c.dtype));
  if (!is_bf16) {
    launch_gemm<float, float>(stream, args);
  } else if (args.c.dtype == DType::bf16) {
    launch_gemm<__nv_bfloat16, __nv_bfloat16>(stream, args);
  } else {
    launch_gemm<__nv_bfloat16, float>(stream, args);
  }
  if (!args.bias.is_null()) add_bias(stream, args.c, args.bias);
}

void grouped_gemm(Stream stream, const GroupedGemmArgs& args) {
  if (args.offsets.rows <= 1) return;
  const int64_t num_experts = args.offsets.rows - 1;
  MOETUNE_CHECK(args.w.rows == num_experts * args.y.cols && args.w.cols == args.x.cols,
                "grouped_gemm: w [{},{}] does not hold {} experts of [{},{}]", args.w.rows,
                args.w.cols, num_experts, args.y.cols, args.x.cols);
  const bool is_wgrad = args.mode == GroupedGemmMode::wgrad;
  MOETUNE_CHECK(
      args.x.dtype == args.y.dtype && args.w.dtype == (is_wgrad ? DType::f32 : args.x.dtype),
      "grouped_gemm: x {}, y {}, w {}", base::name_of(args.x.dtype), base::name_of(args.y.dtype),
      base::name_of(args.w.dtype));
  dispatch_float(args.x.dtype, [&]<typename T>(std::type_identity<T>) {
    if (is_wgrad) {
      launch_weights<T>(stream, args);
    } else {
      launch_rows<T>(stream, args);
    }
  });
}

}  // namespace moetune::kernels::cuda
