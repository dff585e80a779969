// The one door to OpenBLAS: row-major sgemm and dgemm, chosen by overload, one thread per call. The
// operations use row_gemm, which is faster on this model's shapes and fixes the bits
// (tests/bench/gemm_bench.cpp); OpenBLAS is the independent witness of the tests and the yardstick
// of the bench.
#pragma once

#include <cstdint>

namespace moetune::kernels::cpu {

/// c[m,n] = alpha * op(a) * op(b) + beta * c. Row-major, ld in elements. m or n of 0 does nothing;
/// k of 0 only scales c (beta 0 overwrites it with zeros, also over NaN).
template <typename T>
void blas_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a,
               int64_t lda, const T* b, int64_t ldb, T beta, T* c, int64_t ldc);

extern template void blas_gemm<float>(bool, bool, int64_t, int64_t, int64_t, float, const float*,
                                      int64_t, const float*, int64_t, float, float*, int64_t);
extern template void blas_gemm<double>(bool, bool, int64_t, int64_t, int64_t, double, const double*,
                                       int64_t, const double*, int64_t, double, double*, int64_t);

/// "OpenBLAS 0.3.21 ... Haswell": which code the library picked for this machine, for reports.
const char* blas_config();

}  // namespace moetune::kernels::cpu
