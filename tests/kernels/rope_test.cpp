// Rotary embedding: naive rotation, and the inverse as the gradient.
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/kernels/gradient_check.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(rope, BackendFixture)

namespace {

template <typename T>
struct Tables {
  Matrix<T> cos;
  Matrix<T> sin;

  Tables(int64_t num_positions, int64_t half) : cos(num_positions, half), sin(num_positions, half) {
    for (int64_t p = 0; p < num_positions; ++p) {
      for (int64_t i = 0; i < half; ++i) {
        const double frequency =
            std::pow(100.0, -static_cast<double>(i) / static_cast<double>(half));
        cos(p, i) = static_cast<T>(std::cos(static_cast<double>(p) * frequency));
        sin(p, i) = static_cast<T>(std::sin(static_cast<double>(p) * frequency));
      }
    }
  }
};

template <typename T>
void check_rotation(Backend& backend, int64_t heads, int64_t half) {
  const Tables<T> tables(9, half);
  const auto positions = column_of({8, 0, 3, 3});
  Matrix<T> x(4, heads * 2 * half, heads * 2 * half + 1);
  x.fill_random(1);
  const Matrix<T> original = x;
  Matrix<double> expected(4, heads * 2 * half);
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < half; ++i) {
        const auto c = static_cast<double>(tables.cos(positions(r, 0), i));
        const auto s = static_cast<double>(tables.sin(positions(r, 0), i));
        const auto a = static_cast<double>(x(r, h * 2 * half + i));
        const auto b = static_cast<double>(x(r, h * 2 * half + half + i));
        expected(r, h * 2 * half + i) = a * c - b * s;
        expected(r, h * 2 * half + half + i) = b * c + a * s;
      }
    }
  }
  backend.rope({x, tables.cos, tables.sin, positions, heads, false});
  BOOST_TEST(relative_error(x, expected) < kForwardTolerance<T>);
  backend.rope({x, tables.cos, tables.sin, positions, heads, true});
  BOOST_TEST(relative_error(x, original) < kForwardTolerance<T>);
}

}  // namespace

BOOST_AUTO_TEST_CASE(rotates_and_rotates_back) {
  for (const int64_t heads : {1, 3}) {
    for (const int64_t half : {1, 4, 9, 16}) {
      check_rotation<float>(*backend, heads, half);
      check_rotation<double>(*backend, heads, half);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradient_by_central_differences) {
  const Tables<double> tables(5, 3);
  const auto positions = column_of({4, 1});
  Matrix<double> x(2, 12);
  Matrix<double> dy(2, 12);
  x.fill_random(1);
  dy.fill_random(2);
  const auto loss = [&] {
    Matrix<double> rotated = x;
    backend->rope({rotated, tables.cos, tables.sin, positions, 2, false});
    return weighted_sum(dy, rotated);
  };
  Matrix<double> dx = dy;
  backend->rope({dx, tables.cos, tables.sin, positions, 2, true});
  BOOST_TEST(gradient_error(loss, x, dx) < kGradientTolerance);
}

BOOST_AUTO_TEST_CASE(a_position_beyond_the_table_is_refused) {
  const Tables<float> tables(5, 3);
  Matrix<float> x(1, 6);
  for (const int32_t position : {5, -1}) {
    const auto positions = column_of({position});
    BOOST_CHECK_THROW(backend->rope({x, tables.cos, tables.sin, positions, 1, false}), base::Error);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
