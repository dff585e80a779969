// The kernel that writes shapes, pointers and strides of each expert's product, one thread for each
// expert.
#include "kernels/cuda/grouped_gemm_setup.h"
#include "kernels/cuda/launch.cuh"

namespace moetune::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int kThreads = 128;

constexpr int64_t align_up(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// One side of the products: an activation starts at the expert's first row, a weight at row
/// expert * rows_per_expert.
struct Side {
  char* data;
  int64_t row_bytes;
  int64_t rows_per_expert;  ///< 0: an activation
};

struct Sides {
  Side a;
  Side b;
  Side d;
};

struct Strides {
  int64_t a;
  int64_t b;
  int64_t d;
};

__device__ char* begin_of(const Side& side, int64_t expert, int64_t first_row) {
  const int64_t row = side.rows_per_expert > 0 ? expert * side.rows_per_expert : first_row;
  return side.data + row * side.row_bytes;
}

__global__ void setup_kernel(const int32_t* offsets, int32_t num_experts, GroupedProblem shape,
                             bool has_rows_in_k, Sides sides, Strides strides,
                             GroupedProblems problems) {
  const int expert = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (expert >= num_experts) return;
  const int32_t begin = offsets[expert];
  const int32_t rows = offsets[expert + 1] - begin;
  if (has_rows_in_k) {
    shape.k = rows;
    if (rows == 0) shape.m = 0;
  } else {
    shape.m = rows;
  }
  problems.shapes[expert] = shape;
  problems.a[expert] = begin_of(sides.a, expert, begin);
  problems.b[expert] = begin_of(sides.b, expert, begin);
  problems.d[expert] = begin_of(sides.d, expert, begin);
  problems.stride_a[expert] = strides.a;
  problems.stride_b[expert] = strides.b;
  problems.stride_d[expert] = strides.d;
}

Side activation(const Tensor& tensor) {
  return {static_cast<char*>(tensor.data), tensor.ld * base::size_of(tensor.dtype), 0};
}

Side weight(const Tensor& tensor, int64_t rows_per_expert) {
  return {static_cast<char*>(tensor.data), tensor.ld * base::size_of(tensor.dtype),
          rows_per_expert};
}

}  // namespace

int64_t grouped_problems_bytes(int64_t num_experts) {
  return align_up(num_experts * static_cast<int64_t>(sizeof(GroupedProblem))) +
         6 * align_up(num_experts * static_cast<int64_t>(sizeof(int64_t)));
}

GroupedProblems carve_grouped_problems(void* memory, int64_t num_experts) {
  char* next = static_cast<char*>(memory);
  const auto take = [&]<typename T>(T*& array) {
    array = reinterpret_cast<T*>(next);
    next += align_up(num_experts * static_cast<int64_t>(sizeof(T)));
  };
  GroupedProblems problems;
  take(problems.shapes);
  take(problems.a);
  take(problems.b);
  take(problems.d);
  take(problems.stride_a);
  take(problems.stride_b);
  take(problems.stride_d);
  return problems;
}

void setup_grouped_problems(Stream stream, const GroupedGemmArgs& args,
                            const GroupedProblems& problems) {
  const int64_t num_experts = args.offsets.rows - 1;
  if (num_experts <= 0) return;
  const auto out = static_cast<int32_t>(args.y.cols);
  const auto in = static_cast<int32_t>(args.x.cols);
  const Side x = activation(args.x);
  const Side y = activation(args.y);
  const Side w = weight(args.w, args.y.cols);
  GroupedProblem shape{0, out, in};
  Sides sides{x, w, y};
  Strides strides{args.x.ld, args.w.ld, args.y.ld};
  if (args.mode == GroupedGemmMode::dgrad) {
    shape = {0, in, out};
    sides = {y, w, x};
    strides = {args.y.ld, args.w.ld, args.x.ld};
  } else if (args.mode == GroupedGemmMode::wgrad) {
    shape = {out, in, 0};
    sides = {y, x, w};
    strides = {args.y.ld, args.x.ld, args.w.ld};
  }
  launch(setup_kernel, {grid_of(ceil_div(num_experts, kThreads)), dim3(kThreads)}, stream,
         static_cast<const int32_t*>(args.offsets.data), static_cast<int32_t>(num_experts), shape,
         args.mode == GroupedGemmMode::wgrad, sides, strides, problems);
}

}  // namespace moetune::kernels::cuda
