// RMS norm and its gradient on the device against the CPU operation.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "kernels/cuda/scratch.h"
#include "tests/cuda/cuda_fixture.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(cuda_rms_norm, BackendFixture)

namespace {

constexpr double kEps = 1e-5;

struct Case {
  int64_t rows;
  int64_t heads;
  int64_t d;
  int64_t padding;  ///< between rows
};

// Widths that share a warp, take whole warps, do not divide into packs, and exceed the registers of
// a block (f32); more groups than one round of the backward blocks takes.
const Case kCases[] = {{0, 1, 64, 0},   {1, 1, 1, 0},    {5, 1, 7, 3},    {3, 4, 16, 0},
                       {70, 3, 64, 8},  {9, 1, 40, 16},  {6, 1, 520, 0},  {3, 1, 2048, 8},
                       {2, 1, 5001, 0}, {2, 1, 8192, 0}, {2, 1, 4096, 0}, {600, 8, 8, 0}};

template <typename T>
void check_forward(Backend& cpu, const Case& c) {
  const int64_t cols = c.heads * c.d;
  auto x = random_matrix<T>(c.rows, cols, 1, cols + c.padding);
  const auto weight = random_matrix<T>(1, c.d, 2, 0, 0.5, 1.5);
  Matrix<T> out(c.rows, cols, cols + 2 * c.padding);
  Matrix<float> rstd(c.rows, c.heads);
  Matrix<float> expected(c.rows, cols);
  Matrix<float> expected_rstd(c.rows, c.heads);
  cpu.rms_norm({widened(x), widened(weight), expected, expected_rstd, c.heads, kEps});
  OnDevice on;
  cuda::rms_norm(nullptr, {on(x), on(weight), on(out), on(rstd), c.heads, kEps});
  cuda::rms_norm(nullptr, {on(x), on(weight), on(x), on(rstd), c.heads, kEps});  // in place
  on.fetch(out);
  on.fetch(rstd);
  on.fetch(x);
  BOOST_TEST(relative_error(widened(out), expected) < kElementTolerance<T>);
  BOOST_TEST(relative_error(rstd, expected_rstd) < kElementTolerance<float>);
  BOOST_TEST(widened(x).same_bits(widened(out)));
  BOOST_TEST(has_clean_padding(out));
}

/// Of dx, over the larger of dx and the two terms it is the difference of: a group of one element
/// cancels them but for eps, and what is left is their rounding.
template <typename T>
double error_over_terms(const Matrix<T>& dx, const Matrix<float>& expected, const Case& c,
                        const Matrix<T>& weight, const Matrix<T>& dy, const Matrix<float>& rstd) {
  double difference = 0;
  double norm = 0;
  double terms = 0;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t col = 0; col < c.heads * c.d; ++col) {
      const auto wanted = static_cast<double>(expected(r, col));
      const double term = static_cast<double>(rstd(r, col / c.d)) *
                          static_cast<double>(static_cast<float>(dy(r, col))) *
                          static_cast<double>(static_cast<float>(weight(0, col % c.d)));
      const double off = static_cast<double>(static_cast<float>(dx(r, col))) - wanted;
      difference += off * off;
      norm += wanted * wanted;
      terms += term * term;
    }
  }
  const double largest = std::sqrt(std::max(norm, terms));
  return std::sqrt(difference) / (largest > 0 ? largest : 1);
}

template <typename T>
void check_backward(Backend& cpu, const Case& c, bool accumulate, bool has_scratch) {
  const int64_t cols = c.heads * c.d;
  const auto x = random_matrix<T>(c.rows, cols, 1, cols + c.padding);
  const auto weight = random_matrix<T>(1, c.d, 2, 0, 0.5, 1.5);
  auto dy = random_matrix<T>(c.rows, cols, 3, cols + 2 * c.padding);
  Matrix<float> rstd(c.rows, c.heads);
  Matrix<float> ignored(c.rows, cols);
  cpu.rms_norm({widened(x), widened(weight), ignored, rstd, c.heads, kEps});
  auto dx = random_matrix<T>(c.rows, cols, 4);
  auto dweight = random_matrix<float>(1, c.d, 5);
  auto expected = widened(dx);
  auto expected_dweight = dweight;
  cpu.rms_norm_backward({widened(x), widened(weight), rstd, widened(dy), expected, expected_dweight,
                         c.heads, accumulate});
  Matrix<float> scratch(1, cuda::rms_norm_backward_scratch_bytes(c.d) / 4);
  OnDevice on;
  const Tensor memory = on(scratch);
  const cuda::Scratch given{has_scratch ? static_cast<float*>(memory.data) : nullptr,
                            has_scratch ? memory.bytes() : 0};
  cuda::rms_norm_backward(
      nullptr, {on(x), on(weight), on(rstd), on(dy), on(dx), on(dweight), c.heads, accumulate},
      given);
  on.fetch(dx);
  on.fetch(dweight);
  BOOST_TEST(error_over_terms(dx, expected, c, weight, dy, rstd) < kElementTolerance<T>);
  BOOST_TEST(relative_error(dweight, expected_dweight) < kElementTolerance<float>);
  if (accumulate) return;
  cuda::rms_norm_backward(
      nullptr, {on(x), on(weight), on(rstd), on(dy), on(dy), on(dweight), c.heads, false}, given);
  on.fetch(dy);
  BOOST_TEST(widened(dy).same_bits(widened(dx)));  // in place
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_equals_the_cpu, T, ElementTypes) {
  const auto cpu = make_cpu_backend();
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.rows << " x " << c.heads << " x " << c.d) check_forward<T>(*cpu, c);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_equals_the_cpu, T, ElementTypes) {
  const auto cpu = make_cpu_backend();
  for (const Case& c : kCases) {
    for (const bool accumulate : {false, true}) {
      BOOST_TEST_CONTEXT(c.rows << " x " << c.heads << " x " << c.d) {
        check_backward<T>(*cpu, c, accumulate, true);
        check_backward<T>(*cpu, c, accumulate, false);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_nan_spoils_its_row_and_no_other) {
  auto x = random_matrix<float>(3, 64, 1);
  x(1, 20) = NAN;
  const auto weight = random_matrix<float>(1, 64, 2);
  Matrix<float> out(3, 64);
  Matrix<float> rstd(3, 1);
  OnDevice on;
  cuda::rms_norm(nullptr, {on(x), on(weight), on(out), on(rstd), 1, kEps});
  on.fetch(out);
  BOOST_TEST(!std::isnan(out(0, 63)));
  BOOST_TEST(std::isnan(out(1, 0)));
  BOOST_TEST(std::isnan(out(1, 63)));
  BOOST_TEST(!std::isnan(out(2, 0)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
