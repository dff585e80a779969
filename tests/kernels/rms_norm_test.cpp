// RMS norm over rows and over heads: naive forward, gradients by central differences, accumulation
// and aliasing.
#include <boost/test/unit_test.hpp>

#include "tests/kernels/gradient_check.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(rms_norm, BackendFixture)

namespace {

constexpr double kEps = 1e-5;

template <typename T>
void check_forward(Backend& backend, int64_t rows, int64_t heads, int64_t d) {
  Matrix<T> x(rows, heads * d, heads * d + 5);
  Matrix<T> weight(1, d);
  Matrix<T> out(rows, heads * d);
  Matrix<T> rstd(rows, heads);
  x.fill_random(1);
  weight.fill_random(2, 0.5, 1.5);
  Matrix<double> expected(rows, heads * d);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      double squares = 0.0;
      for (int64_t i = 0; i < d; ++i) {
        squares += std::pow(static_cast<double>(x(r, h * d + i)), 2);
      }
      const double scale = 1.0 / std::sqrt(squares / static_cast<double>(d) + kEps);
      for (int64_t i = 0; i < d; ++i) {
        expected(r, h * d + i) =
            static_cast<double>(x(r, h * d + i)) * scale * static_cast<double>(weight(0, i));
      }
    }
  }
  backend.rms_norm({x, weight, out, rstd, heads, kEps});
  BOOST_TEST(relative_error(out, expected) < kForwardTolerance<T>);
  backend.rms_norm({x, weight, x, rstd, heads, kEps});
  BOOST_TEST(x.same_bits(out));  // in place
}

}  // namespace

BOOST_AUTO_TEST_CASE(equals_naive_loops) {
  for (const int64_t heads : {1, 3}) {
    for (const int64_t d : {1, 7, 16, 37}) {
      check_forward<float>(*backend, 6, heads, d);
      check_forward<double>(*backend, 6, heads, d);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_by_central_differences) {
  for (const int64_t heads : {1, 3}) {
    constexpr int64_t kD = 11;
    Matrix<double> x(4, heads * kD);
    Matrix<double> weight(1, kD);
    Matrix<double> out(4, heads * kD);
    Matrix<double> rstd(4, heads);
    Matrix<double> dy(4, heads * kD);
    x.fill_random(1);
    weight.fill_random(2);
    dy.fill_random(3);
    const auto loss = [&] {
      backend->rms_norm({x, weight, out, rstd, heads, kEps});
      return weighted_sum(dy, out);
    };
    loss();
    Matrix<double> dx(4, heads * kD);
    Matrix<double> dweight(1, kD);
    dweight.fill(0.0);
    backend->rms_norm_backward({x, weight, rstd, dy, dx, dweight, heads, false});
    BOOST_TEST(gradient_error(loss, x, dx) < kGradientTolerance);
    BOOST_TEST(gradient_error(loss, weight, dweight) < kGradientTolerance);

    // Accumulating adds to what is there; dy may be overwritten by dx.
    Matrix<double> accumulated(4, heads * kD);
    accumulated.fill(1.0);
    loss();
    backend->rms_norm_backward({x, weight, rstd, dy, accumulated, dweight, heads, true});
    BOOST_TEST(accumulated(3, 5) == 1.0 + dx(3, 5));
    Matrix<double> aliased = dy;
    backend->rms_norm_backward({x, weight, rstd, aliased, aliased, dweight, heads, false});
    BOOST_TEST(aliased.same_bits(dx));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
