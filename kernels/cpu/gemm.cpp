// Dense GEMM: shape checks, then oneDNN in float and row_gemm in double, which oneDNN does not
// have.
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/onednn_gemm.h"
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
    const T* a = args.a.row<T>(0);
    const T* b = args.b.row<T>(0);
    T* c = args.c.row<T>(0);
    if constexpr (std::is_same_v<T, float>) {
      onednn_gemm(args.trans_a, args.trans_b, m, n, k, a, args.a.ld, b, args.b.ld, args.accumulate,
                  c, args.c.ld);
    } else {
      const int64_t lda = args.a.ld;
      row_gemm<T>(m, n, k, {a, args.trans_a ? 1 : lda, args.trans_a ? lda : 1, nullptr}, b,
                  args.b.ld, args.trans_b, args.accumulate, c, args.c.ld, nullptr);
    }
  });
  if (!args.bias.is_null()) add_bias(args.c, args.bias);
}

}  // namespace moetune::kernels::cpu
