// A token's chosen experts, once for each rank that has a slice of them: expert tensor parallelism
// sends the token to all of these. A thread for each number that is written.
#include "kernels/cuda/row_tiles.cuh"

namespace moetune::kernels::cuda {
namespace {

constexpr int kThreads = 256;

struct Expansion {
  int64_t count;
  int64_t cols;  // of out
  int32_t copies;
  int32_t local_experts;
};

__global__ void __launch_bounds__(kThreads)
    expand_kernel(Rows<const int32_t> indices, Rows<int32_t> out, Expansion args) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < args.count; i += step) {
    const int64_t token = i / args.cols;
    const auto place = static_cast<int32_t>(i % args.cols);
    const int32_t expert = indices.at(token)[place / args.copies];
    check_row(expert, INT32_MAX);
    const int32_t slice = expert / args.local_experts * args.copies + place % args.copies;
    out.at(token)[place] = slice * args.local_experts + expert % args.local_experts;
  }
}

}  // namespace

void expand_experts(Stream stream, const ExpandExpertsArgs& args) {
  MOETUNE_CHECK(args.copies > 0 && args.local_experts > 0 && args.out.rows == args.indices.rows &&
                    args.out.cols == args.indices.cols * args.copies &&
                    args.out.cols <= INT32_MAX && args.local_experts <= INT32_MAX,
                "expand_experts: indices [{},{}], out [{},{}], {} copies, {} local experts",
                args.indices.rows, args.indices.cols, args.out.rows, args.out.cols, args.copies,
                args.local_experts);
  const Expansion expansion{args.out.numel(), args.out.cols, static_cast<int32_t>(args.copies),
                            static_cast<int32_t>(args.local_experts)};
  launch(expand_kernel, {grid_of(ceil_div(expansion.count, kThreads)), dim3(kThreads)}, stream,
         Rows<const int32_t>(args.indices), Rows<int32_t>(args.out), expansion);
}

}  // namespace moetune::kernels::cuda
