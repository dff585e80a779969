// A token's chosen experts, once for each rank that has a slice of them: expert tensor parallelism
// sends the token to all of these.
#include "kernels/base/error.h"
#include "kernels/cpu/cpu_ops.h"

namespace moetune::kernels::cpu {

void expand_experts(const ExpandExpertsArgs& args) {
  MOETUNE_CHECK(args.copies > 0 && args.local_experts > 0 && args.out.rows == args.indices.rows &&
                    args.out.cols == args.indices.cols * args.copies,
                "expand_experts: indices [{},{}], out [{},{}], {} copies, {} local experts",
                args.indices.rows, args.indices.cols, args.out.rows, args.out.cols, args.copies,
                args.local_experts);
  for (int64_t t = 0; t < args.indices.rows; ++t) {
    const auto* from = args.indices.row<int32_t>(t);
    auto* to = args.out.row<int32_t>(t);
    for (int64_t i = 0; i < args.out.cols; ++i) {
      const int64_t expert = from[i / args.copies];
      MOETUNE_CHECK(expert >= 0, "expand_experts: expert {} is negative", expert);
      const int64_t slice = expert / args.local_experts * args.copies + i % args.copies;
      to[i] = static_cast<int32_t>(slice * args.local_experts + expert % args.local_experts);
    }
  }
}

}  // namespace moetune::kernels::cpu
