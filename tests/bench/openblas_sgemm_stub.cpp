// Stands in for OpenBLAS in builds without it.
#include "tests/bench/openblas_sgemm.h"

namespace moetune::bench {

const char* openblas_config() { return ""; }

void openblas_sgemm(bool /*trans_a*/, bool /*trans_b*/, int64_t /*m*/, int64_t /*n*/, int64_t /*k*/,
                    const float* /*a*/, int64_t /*lda*/, const float* /*b*/, int64_t /*ldb*/,
                    float* /*c*/, int64_t /*ldc*/) {}

}  // namespace moetune::bench
