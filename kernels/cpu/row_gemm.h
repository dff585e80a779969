// An own small GEMM whose promise is not speed but bits: each element of the result is one chain of
// multiply-adds in rising k, the same instructions whatever the row's neighbours, its place in the
// call or its address. A library picks other code for other shapes and for edge rows, so it cannot
// give that promise (tests/bench/gemm_bench.cpp counts the rows that change).
#pragma once

#include <cstdint>

namespace moetune::kernels::cpu {

/// A left operand: element (m, k) is rows(m)[k * step]. Row m starts at data + index(m) * ld, index
/// given by `list` (null: m itself).
template <typename T>
struct LeftRows {
  const T* data;
  int64_t ld;
  int64_t step;
  const int32_t* list;
};

/// c[row(m), n] = (accumulate ? c : 0) + sum over k of a(m, k) * b(k, n), for m in [0, num_rows).
/// b(k, n) is b[k * ldb + n], or b[n * ldb + k] when trans_b. c's row m starts at c + (list ?
/// list[m] : m) * ldc. With accumulate the chain starts from c: cutting k into consecutive calls
/// changes no bit.
template <typename T>
void row_gemm(int64_t num_rows, int64_t n, int64_t k, const LeftRows<T>& a, const T* b, int64_t ldb,
              bool trans_b, bool accumulate, T* c, int64_t ldc, const int32_t* c_list);

extern template void row_gemm<float>(int64_t, int64_t, int64_t, const LeftRows<float>&,
                                     const float*, int64_t, bool, bool, float*, int64_t,
                                     const int32_t*);
extern template void row_gemm<double>(int64_t, int64_t, int64_t, const LeftRows<double>&,
                                      const double*, int64_t, bool, bool, double*, int64_t,
                                      const int32_t*);

}  // namespace moetune::kernels::cpu
