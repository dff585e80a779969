// Copies between element types and the bias pair on the device against the CPU operations.
#include <boost/test/unit_test.hpp>

#include "tests/cuda/cuda_fixture.h"

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(cuda_copy)

namespace {

struct Case {
  int64_t rows;
  int64_t cols;
  int64_t padding;
};

const Case kCases[] = {{0, 8, 0},   {1, 1, 0},   {7, 5, 3},    {6, 6, 2},    {12, 64, 8},
                       {5, 200, 8}, {40, 24, 0}, {3, 2064, 8}, {2, 9001, 1}, {300, 16, 0},
                       {5, 40, 4},  {3, 12, 0},  {1, 70000, 0}};

template <typename From, typename To>
void check_copy(const Case& c, bool accumulate) {
  Matrix<From> x(c.rows, c.cols, c.cols + c.padding);
  const auto values = random_matrix<float>(c.rows, c.cols, 1, 0, -100.0, 100.0);
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t i = 0; i < c.cols; ++i) x(r, i) = static_cast<From>(values(r, i));
  }
  auto y = random_matrix<To>(c.rows, c.cols, 2, c.cols + 2 * c.padding);
  auto expected = y;
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t i = 0; i < c.cols; ++i) {
      const auto from = static_cast<float>(x(r, i));
      expected(r, i) =
          static_cast<To>(accumulate ? static_cast<float>(expected(r, i)) + from : from);
    }
  }
  OnDevice on;
  cuda::copy(nullptr, {on(x), on(y), accumulate});
  on.fetch(y);
  BOOST_TEST(y.same_bits(expected));
  BOOST_TEST(has_clean_padding(y));
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_pair_of_types) {
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.rows << " x " << c.cols) {
      check_copy<int32_t, int32_t>(c, false);
      for (const bool accumulate : {false, true}) {
        check_copy<float, float>(c, accumulate);
        check_copy<float, Bf16>(c, accumulate);
        check_copy<Bf16, float>(c, accumulate);
        check_copy<Bf16, Bf16>(c, accumulate);
        check_copy<int32_t, float>(c, accumulate);
        check_copy<int32_t, Bf16>(c, accumulate);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(shapes_and_types_that_do_not_fit_are_refused) {
  const Matrix<float> x(2, 3);
  const Matrix<float> other(3, 2);
  const Matrix<int32_t> integers(2, 3);
  BOOST_CHECK_THROW(cuda::copy(nullptr, {x, other}), base::Error);
  BOOST_CHECK_THROW(cuda::copy(nullptr, {x, integers}), base::Error);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(bias_and_its_gradient_equal_the_cpu, T, ElementTypes) {
  const auto cpu = make_cpu_backend();
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.rows << " x " << c.cols) {
      auto y = random_matrix<T>(c.rows, c.cols, 1, c.cols + c.padding);
      const auto bias = random_matrix<T>(1, c.cols, 2);
      auto expected = widened(y);
      for (int64_t row = 0; row < c.rows; ++row) {
        for (int64_t col = 0; col < c.cols; ++col) {
          expected(row, col) += static_cast<float>(bias(0, col));
        }
      }
      OnDevice on;
      cuda::add_bias(nullptr, on(y), on(bias));
      on.fetch(y);
      BOOST_TEST(relative_error(widened(y), expected) < kElementTolerance<T>);
      BOOST_TEST(has_clean_padding(y));

      const auto dy = random_matrix<T>(c.rows, c.cols, 3, c.cols + c.padding);
      auto dbias = random_matrix<float>(1, c.cols, 4);
      auto expected_dbias = dbias;
      cpu->bias_backward({widened(dy), expected_dbias});
      cuda::bias_backward(nullptr, {on(dy), on(dbias)});
      on.fetch(dbias);
      BOOST_TEST(relative_error(dbias, expected_dbias) < 1e-5);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
