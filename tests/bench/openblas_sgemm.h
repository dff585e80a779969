// OpenBLAS's single-precision GEMM as one candidate of gemm_bench. The linker picks the real one or
// the stub.
#pragma once

#include <cstdint>

namespace moetune::bench {

/// "OpenBLAS 0.3.21 ... Haswell": which code the library picked for this machine. Empty in a build
/// without OpenBLAS; openblas_sgemm then does nothing.
const char* openblas_config();

/// Row-major c = op(a) * op(b), on one thread.
void openblas_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a,
                    int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc);

}  // namespace moetune::bench
