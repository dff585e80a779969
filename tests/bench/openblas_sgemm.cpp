// The call of the real OpenBLAS: the only file that includes cblas.h.
#include "tests/bench/openblas_sgemm.h"

#include <cblas.h>

namespace moetune::bench {

const char* openblas_config() { return openblas_get_config(); }

void openblas_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a,
                    int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc) {
  openblas_set_num_threads(1);
  cblas_sgemm(CblasRowMajor, trans_a ? CblasTrans : CblasNoTrans,
              trans_b ? CblasTrans : CblasNoTrans, static_cast<blasint>(m), static_cast<blasint>(n),
              static_cast<blasint>(k), 1.0F, a, static_cast<blasint>(lda), b,
              static_cast<blasint>(ldb), 0.0F, c, static_cast<blasint>(ldc));
}

}  // namespace moetune::bench
