// Dense GEMM: shape checks and a call of row_gemm.
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/row_gemm.h"

namespace moetune::kernels::cpu {

void gemm(const GemmArgs& args) {
  const int64_t m = args.c.rows;
  const int64_t n = args.c.cols;
  const int64_t k = args.trans_a ? args.a.rows : args.a.cols;
  const bool a_fits = (args.trans_a ? args.a.cols : args.a.rows) == m;
  const bool b_fits = args.trans_b ? args.b.rows == n && args.b.cols == k  //
                                   : args.b.rows == k && args.b.cols == n;
  MOETUNE_CHECK(a_fits && b_fits, "gemm: a [{},{}]{} times b [{},{}]{} does not give c [{},{}]",
                args.a.rows, args.a.cols, args.trans_a ? "^T" : "", args.b.rows, args.b.cols,
                args.trans_b ? "^T" : "", m, n);
  dispatch(args.c.dtype, [&]<typename T>(std::type_identity<T>) {
    const LeftRows<T> a{args.a.row<T>(0), args.trans_a ? 1 : args.a.ld,
                        args.trans_a ? args.a.ld : 1, nullptr};
    row_gemm<T>(m, n, k, a, args.b.row<T>(0), args.b.ld, args.trans_b, args.accumulate,
                args.c.row<T>(0), args.c.ld, nullptr);
  });
}

}  // namespace moetune::kernels::cpu
