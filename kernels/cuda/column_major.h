// The product of GemmArgs as a column-major library sees it, kept apart from the library so that
// the swap of operands, the strides and the bias can be tested without a card.
#pragma once

#include <compare>
#include <cstdint>

#include "kernels/base/error.h"
#include "kernels/op_args.h"

namespace moetune::kernels::cuda {

/// What a library's choice of kernel depends on: the key of the cache of choices.
struct ColumnMajorShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t lda = 0;
  int64_t ldb = 0;
  int64_t ldc = 0;
  DType input_dtype = DType::f32;
  DType output_dtype = DType::f32;
  bool trans_a = false;
  bool trans_b = false;
  bool accumulate = false;
  bool has_bias = false;
  uint8_t align_a = 16;  ///< bytes, a power of two, at most 16: no kernel loads more at once
  uint8_t align_b = 16;
  uint8_t align_c = 16;

  auto operator<=>(const ColumnMajorShape&) const = default;
};

/// c [m,n] = op(a) * op(b) + bias + (accumulate ? c : 0), all column-major: op(a) is m x k, op(b)
/// k x n, bias has one value per row of c.
struct ColumnMajorGemm {
  ColumnMajorShape shape;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  const void* bias = nullptr;
};

/// The largest power of two up to 16 that divides the address.
inline uint8_t alignment_of(const void* pointer) {
  const auto low_bit =
      reinterpret_cast<uintptr_t>(pointer) & (~reinterpret_cast<uintptr_t>(pointer) + 1);
  return static_cast<uint8_t>(low_bit == 0 || low_bit > 16 ? 16 : low_bit);
}

/// A row-major matrix is its transpose in column-major order, so c^T = op(b)^T * op(a)^T: the
/// operands change places, each keeps its "transposed" flag, and a bias per column of the row-major
/// c is one per row here. Checks shapes and dtypes; throws base::Error.
inline ColumnMajorGemm to_column_major(const GemmArgs& args) {
  const Tensor& bias = args.bias;
  const int64_t m = args.trans_a ? args.a.cols : args.a.rows;
  const int64_t k = args.trans_a ? args.a.rows : args.a.cols;
  const int64_t n = args.trans_b ? args.b.rows : args.b.cols;
  const int64_t k_of_b = args.trans_b ? args.b.cols : args.b.rows;
  MOETUNE_CHECK(k == k_of_b && args.c.rows == m && args.c.cols == n,
                "gemm: op(a) is {}x{}, op(b) {}x{}, c {}x{}", m, k, k_of_b, n, args.c.rows,
                args.c.cols);
  const DType input = args.a.dtype;
  const DType output = args.c.dtype;
  MOETUNE_CHECK(input == args.b.dtype && (input == output || output == DType::f32) &&
                    (input == DType::f32 || input == DType::bf16),
                "gemm: no product of {} and {} into {}", base::name_of(input),
                base::name_of(args.b.dtype), base::name_of(output));
  MOETUNE_CHECK(bias.is_null() || (bias.cols == n && bias.dtype == output),
                "gemm: a bias of {} {} values for {} columns of {}", bias.cols,
                base::name_of(bias.dtype), n, base::name_of(output));
  ColumnMajorGemm gemm;
  gemm.shape = {.m = n,
                .n = m,
                .k = k,
                .lda = args.b.ld,
                .ldb = args.a.ld,
                .ldc = args.c.ld,
                .input_dtype = input,
                .output_dtype = output,
                .trans_a = args.trans_b,
                .trans_b = args.trans_a,
                .accumulate = args.accumulate,
                .has_bias = !bias.is_null(),
                .align_a = alignment_of(args.b.data),
                .align_b = alignment_of(args.a.data),
                .align_c = alignment_of(args.c.data)};
  gemm.a = args.b.data;
  gemm.b = args.a.data;
  gemm.c = args.c.data;
  gemm.bias = bias.data;
  return gemm;
}

}  // namespace moetune::kernels::cuda
