// The swap of operands for a column-major library: done by plain column-major loops, the swapped
// product is the CPU operation's, bias included; what a choice of kernel depends on is in the key.
#include "kernels/cuda/column_major.h"

#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/kernels/kernel_fixture.h"

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(cuda_column_major)

namespace {

using cuda::ColumnMajorGemm;
using cuda::ColumnMajorShape;

/// What the library does, element (i, j) of a column-major matrix being at i + j * ld.
void column_major_product(const ColumnMajorGemm& gemm) {
  const ColumnMajorShape& s = gemm.shape;
  const auto* a = static_cast<const float*>(gemm.a);
  const auto* b = static_cast<const float*>(gemm.b);
  const auto* bias = static_cast<const float*>(gemm.bias);
  auto* c = static_cast<float*>(gemm.c);
  for (int64_t j = 0; j < s.n; ++j) {
    for (int64_t i = 0; i < s.m; ++i) {
      double total = s.accumulate ? static_cast<double>(c[i + j * s.ldc]) : 0.0;
      if (s.has_bias) total += static_cast<double>(bias[i]);
      for (int64_t p = 0; p < s.k; ++p) {
        total += static_cast<double>(s.trans_a ? a[p + i * s.lda] : a[i + p * s.lda]) *
                 static_cast<double>(s.trans_b ? b[j + p * s.ldb] : b[p + j * s.ldb]);
      }
      c[i + j * s.ldc] = static_cast<float>(total);
    }
  }
}

struct Case {
  bool trans_a, trans_b, accumulate, has_bias;
};

constexpr int64_t kM = 5;
constexpr int64_t kN = 7;
constexpr int64_t kK = 3;

struct Operands {
  Matrix<float> a, b, c, bias;

  explicit Operands(const Case& x)
      : a(x.trans_a ? kK : kM, x.trans_a ? kM : kK, 11),
        b(x.trans_b ? kN : kK, x.trans_b ? kK : kN, 13),
        c(kM, kN, 9),
        bias(1, kN) {
    a.fill_random(1);
    b.fill_random(2);
    c.fill_random(3);
    bias.fill_random(4);
  }

  [[nodiscard]] GemmArgs args(const Case& x) const {
    return {a, b, c, x.trans_a, x.trans_b, x.accumulate, x.has_bias ? bias.tensor() : Tensor{}};
  }
};

Tensor tensor_of(DType dtype, int64_t rows, int64_t cols) {
  alignas(16) static char memory[64];
  return Tensor::matrix(memory, dtype, rows, cols);
}

ColumnMajorShape shape_of(DType a, DType b, DType c) {
  return cuda::to_column_major({tensor_of(a, 2, 8), tensor_of(b, 8, 4), tensor_of(c, 2, 4)}).shape;
}

}  // namespace

BOOST_AUTO_TEST_CASE(is_the_row_major_product) {
  for (int bits = 0; bits < 16; ++bits) {
    const Case x{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
    BOOST_TEST_CONTEXT("trans " << x.trans_a << x.trans_b << " accumulate " << x.accumulate
                                << " bias " << x.has_bias) {
      const Operands expected(x);
      const Operands actual(x);
      const auto cpu = make_cpu_backend();
      cpu->gemm(expected.args(x));
      column_major_product(cuda::to_column_major(actual.args(x)));
      BOOST_TEST(relative_error(actual.c, expected.c) < 1e-5);
    }
  }
}

BOOST_AUTO_TEST_CASE(key_holds_what_a_choice_depends_on) {
  const Case plain{};
  const Operands operands(plain);
  const ColumnMajorShape shape = cuda::to_column_major(operands.args(plain)).shape;
  const auto differs = [&](const GemmArgs& args) {
    return cuda::to_column_major(args).shape != shape;
  };
  BOOST_TEST(!differs(operands.args(plain)));
  BOOST_TEST(differs(operands.args({false, false, true, false})));
  BOOST_TEST(differs(operands.args({false, false, false, true})));
  GemmArgs other_stride = operands.args(plain);
  other_stride.c.ld = 10;
  BOOST_TEST(differs(other_stride));
  GemmArgs other_address = operands.args(plain);
  other_address.a.data = static_cast<float*>(other_address.a.data) + 1;
  BOOST_TEST(differs(other_address));
}

BOOST_AUTO_TEST_CASE(alignment_is_the_lowest_bit_up_to_16) {
  const std::pair<uintptr_t, int> rows[] = {{0, 16}, {2, 2},   {4, 4},  {6, 2},
                                            {8, 8},  {16, 16}, {24, 8}, {4096, 16}};
  for (const auto& [address, alignment] : rows) {
    BOOST_TEST(int{cuda::alignment_of(reinterpret_cast<const void*>(address))} == alignment);
  }
}

BOOST_AUTO_TEST_CASE(takes_the_dtypes_that_libraries_take) {
  BOOST_TEST((shape_of(DType::bf16, DType::bf16, DType::bf16).output_dtype == DType::bf16));
  BOOST_TEST((shape_of(DType::bf16, DType::bf16, DType::f32).output_dtype == DType::f32));
  BOOST_TEST((shape_of(DType::f32, DType::f32, DType::f32).input_dtype == DType::f32));
  BOOST_CHECK_THROW(shape_of(DType::f32, DType::f32, DType::bf16), base::Error);
  BOOST_CHECK_THROW(shape_of(DType::bf16, DType::f32, DType::f32), base::Error);
  BOOST_CHECK_THROW(shape_of(DType::f64, DType::f64, DType::f64), base::Error);
}

BOOST_AUTO_TEST_CASE(refuses_shapes_that_do_not_fit) {
  const Case plain{};
  const Operands operands(plain);
  GemmArgs args = operands.args(plain);
  args.trans_b = true;
  BOOST_CHECK_THROW(cuda::to_column_major(args), base::Error);
  const Matrix<float> short_bias(1, kN - 1);
  args = operands.args(plain);
  args.bias = short_bias;
  BOOST_CHECK_THROW(cuda::to_column_major(args), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
