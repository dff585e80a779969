// The one door to oneDNN: the dense float GEMM of the CPU backend, one thread per call.
#pragma once

#include <cstdint>

namespace moetune::kernels::cpu {

/// c[m,n] = op(a) * op(b) + (accumulate ? c : 0). Row-major, ld in elements; an empty m or n does
/// nothing, an empty k counts as a product of zero. Equal calls give equal bits, but a row's bits
/// may change with the number of rows of the call (row_gemm.h is for where that matters).
/// Throws base::Error when oneDNN refuses the call.
void onednn_gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const float* a,
                 int64_t lda, const float* b, int64_t ldb, bool accumulate, float* c, int64_t ldc);

}  // namespace moetune::kernels::cpu
