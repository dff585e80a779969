// row_gemm against naive loops on sizes around its block limits, and its promise: cutting rows or k
// changes no bit.
#include "kernels/cpu/row_gemm.h"

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>

#include "tests/kernels/kernel_fixture.h"

namespace moetune::kernels::cpu {
BOOST_AUTO_TEST_SUITE(row_gemm_suite)

namespace {

template <typename T>
void check_against_loops(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b,
                         bool accumulate) {
  BOOST_TEST_CONTEXT(m << "x" << n << "x" << k << " " << trans_a << trans_b << accumulate) {
    Matrix<T> a(trans_a ? k : m, trans_a ? m : k, (trans_a ? m : k) + 1);
    Matrix<T> b(trans_b ? n : k, trans_b ? k : n, (trans_b ? k : n) + 3);
    Matrix<T> c(m, n, n + 2);
    a.fill_random(1);
    b.fill_random(2);
    if (accumulate) c.fill_random(3);
    const Matrix<double> expected = naive_product(a, trans_a, b, trans_b, c, accumulate);
    const auto lda = a.tensor().ld;
    const LeftRows<T> left{&a(0, 0), trans_a ? 1 : lda, trans_a ? lda : 1, nullptr};
    row_gemm<T>(m, n, k, left, &b(0, 0), b.tensor().ld, trans_b, accumulate, &c(0, 0),
                c.tensor().ld, nullptr);
    BOOST_TEST(relative_error(c, expected) < kForwardTolerance<T>);
  }
}

// c = a * b with the rows in calls of `row_step` and k in calls of `k_step`.
Matrix<float> product(const Matrix<float>& a, const Matrix<float>& b, int64_t row_step,
                      int64_t k_step) {
  Matrix<float> c(a.rows(), b.cols());
  for (int64_t row = 0; row < a.rows(); row += row_step) {
    for (int64_t k = 0; k < a.cols(); k += k_step) {
      row_gemm<float>(std::min(row_step, a.rows() - row), b.cols(), std::min(k_step, a.cols() - k),
                      {&a(row, k), a.cols(), 1, nullptr}, &b(k, 0), b.cols(), false, k > 0,
                      &c(row, 0), c.cols(), nullptr);
    }
  }
  return c;
}

}  // namespace

BOOST_AUTO_TEST_CASE(equals_naive_loops) {
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {8, 32, 16}, {7, 33, 9}, {150, 40, 300}, {130, 600, 257}, {64, 8, 8}}) {
    for (int bits = 0; bits < 8; ++bits) {
      const bool trans_a = (bits & 1) != 0;
      const bool trans_b = (bits & 2) != 0;
      check_against_loops<float>(m, n, k, trans_a, trans_b, (bits & 4) != 0);
      check_against_loops<double>(m, n, k, trans_a, trans_b, (bits & 4) != 0);
    }
  }
}

BOOST_AUTO_TEST_CASE(cutting_rows_or_k_changes_no_bit) {
  Matrix<float> a(150, 300);
  Matrix<float> b(300, 600);
  a.fill_random(1);
  b.fill_random(2);
  const Matrix<float> whole = product(a, b, 150, 300);
  for (const int64_t row_step : {1, 5, 8, 64, 149}) {
    BOOST_TEST(product(a, b, row_step, 300).same_bits(whole));
  }
  for (const int64_t k_step : {1, 37, 256}) {
    BOOST_TEST(product(a, b, 150, k_step).same_bits(whole));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels::cpu
