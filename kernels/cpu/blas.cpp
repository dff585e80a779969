// Calls into OpenBLAS; see blas.h. This is the only file that includes cblas.h.
#include "kernels/cpu/blas.h"

#include <cblas.h>

#include <algorithm>
#include <mutex>

namespace moetune::kernels::cpu {
namespace {

// Ranks are threads already: a BLAS call that started more of them would only fight over the cores.
void use_one_thread() {
  static std::once_flag once;
  std::call_once(once, [] { openblas_set_num_threads(1); });
}

void call(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, blasint m, blasint n, blasint k, float alpha,
          const float* a, blasint lda, const float* b, blasint ldb, float beta, float* c,
          blasint ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void call(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, blasint m, blasint n, blasint k, double alpha,
          const double* a, blasint lda, const double* b, blasint ldb, double beta, double* c,
          blasint ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

blasint to_int(int64_t value) { return static_cast<blasint>(value); }

}  // namespace

template <typename T>
void blas_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a,
               int64_t lda, const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    for (int64_t r = 0; r < m; ++r) {
      T* row = c + r * ldc;
      if (beta == T{0}) {
        std::fill_n(row, n, T{0});
      } else {
        std::for_each_n(row, n, [beta](T& value) { value *= beta; });
      }
    }
    return;
  }
  use_one_thread();
  call(trans_a ? CblasTrans : CblasNoTrans, trans_b ? CblasTrans : CblasNoTrans, to_int(m),
       to_int(n), to_int(k), alpha, a, to_int(lda), b, to_int(ldb), beta, c, to_int(ldc));
}

template void blas_gemm<float>(bool, bool, int64_t, int64_t, int64_t, float, const float*, int64_t,
                               const float*, int64_t, float, float*, int64_t);
template void blas_gemm<double>(bool, bool, int64_t, int64_t, int64_t, double, const double*,
                                int64_t, const double*, int64_t, double, double*, int64_t);

const char* blas_config() { return openblas_get_config(); }

}  // namespace moetune::kernels::cpu
