// The real oneDNN; see onednn_sgemm.h.
#include "tests/bench/onednn_sgemm.h"

#include <dnnl.h>

namespace moetune::bench {

bool has_onednn() { return true; }

void onednn_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a,
                  int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc) {
  dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, 1.0F, a, lda, b, ldb, 0.0F, c, ldc);
}

}  // namespace moetune::bench
