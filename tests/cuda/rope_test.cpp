// Rotary embedding on the device against the CPU operation, and back again.
#include <boost/test/unit_test.hpp>

#include "tests/cuda/cuda_fixture.h"

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(cuda_rope)

namespace {

constexpr int64_t kPositions = 50;

struct Case {
  int64_t rows;
  int64_t heads;
  int64_t half;
  int64_t padding;
};

const Case kCases[] = {{0, 2, 32, 0}, {1, 1, 1, 0},  {7, 1, 5, 3},    {5, 3, 8, 0},
                       {9, 6, 32, 8}, {3, 9, 64, 0}, {2, 1, 1100, 0}, {130, 2, 16, 16}};

template <typename T>
void check(Backend& cpu, const Case& c, bool inverse) {
  const int64_t cols = 2 * c.heads * c.half;
  auto x = random_matrix<T>(c.rows, cols, 1, cols + c.padding);
  const auto cos = random_matrix<float>(kPositions, c.half, 2);
  const auto sin = random_matrix<float>(kPositions, c.half, 3);
  Matrix<int32_t> positions(c.rows, 1);
  for (int64_t r = 0; r < c.rows; ++r) positions(r, 0) = static_cast<int32_t>(r * 7 % kPositions);
  auto expected = widened(x);
  cpu.rope({expected, cos, sin, positions, c.heads, inverse});
  OnDevice on;
  cuda::rope(nullptr, {on(x), on(cos), on(sin), on(positions), c.heads, inverse});
  on.fetch(x);
  BOOST_TEST(relative_error(widened(x), expected) < kElementTolerance<T>);
  BOOST_TEST(has_clean_padding(x));
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(equals_the_cpu, T, ElementTypes) {
  const auto cpu = make_cpu_backend();
  for (const Case& c : kCases) {
    for (const bool inverse : {false, true}) {
      BOOST_TEST_CONTEXT(c.rows << " x " << c.heads << " x " << c.half) check<T>(*cpu, c, inverse);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_position_that_does_not_exist_stops_the_kernel) {
  const Matrix<float> x(1, 4);
  const Matrix<float> table(3, 2);
  for (const int32_t bad : {-1, 3}) {
    const auto positions = column_of({bad});
    OnDevice on;
    BOOST_CHECK_THROW(cuda::rope(nullptr, {on(x), on(table), on(table), on(positions), 1, false}),
                      base::Error);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
