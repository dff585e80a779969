// Merging attention over two sets of keys, against the formulas in double.
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/kernels/kernel_fixture.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(attention_merge, BackendFixture)

namespace {

constexpr double kNoKeys = -INFINITY;

// The lse of each side; large ones whose exp() has no number in either type, equal ones, and sides
// that saw no key.
struct Sides {
  double own, part;
};
const std::vector<Sides> kSides = {{0.5, 1.25},      {3.0, 3.0},        {-2.0, 40.0},
                                   {1000.0, 998.5},  {-900.0, -901.0},  {kNoKeys, 0.75},
                                   {-0.75, kNoKeys}, {kNoKeys, kNoKeys}};

template <typename T>
void check_merge(Backend& backend) {
  constexpr int64_t kHeads = 2;
  constexpr int64_t kDim = 5;
  const auto num_rows = static_cast<int64_t>(kSides.size());
  Matrix<T> out(num_rows, kHeads * kDim, 12);
  Matrix<T> part_out(num_rows, kHeads * kDim, 11);
  Matrix<T> lse(num_rows, kHeads, 3);
  Matrix<T> part_lse(num_rows, kHeads, 5);
  out.fill_random(1);
  part_out.fill_random(2);
  Matrix<double> expected(num_rows, kHeads * kDim);
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t h = 0; h < kHeads; ++h) {
      // The second head has the sides of the next row.
      const Sides& sides = kSides[static_cast<size_t>((r + h) % num_rows)];
      lse(r, h) = static_cast<T>(sides.own);
      part_lse(r, h) = static_cast<T>(sides.part);
      const double own =
          sides.own == kNoKeys ? 0.0 : 1.0 / (1.0 + std::exp(sides.part - sides.own));
      const double part =
          sides.part == kNoKeys ? 0.0 : 1.0 / (1.0 + std::exp(sides.own - sides.part));
      for (int64_t c = h * kDim; c < (h + 1) * kDim; ++c) {
        expected(r, c) =
            own * static_cast<double>(out(r, c)) + part * static_cast<double>(part_out(r, c));
        // What saw no key holds nothing that counts.
        if (sides.own == kNoKeys) out(r, c) = static_cast<T>(NAN);
        if (sides.part == kNoKeys) part_out(r, c) = static_cast<T>(NAN);
      }
    }
  }
  backend.attention_merge({out, lse, part_out, part_lse, kHeads});
  BOOST_TEST(relative_error(out, expected) < kForwardTolerance<T>);
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const Sides& sides = kSides[static_cast<size_t>((r + h) % num_rows)];
      const double largest = std::max(sides.own, sides.part);
      if (largest == kNoKeys) {
        BOOST_TEST(lse(r, h) == -INFINITY);
        continue;
      }
      const double both =
          largest + std::log(std::exp(sides.own - largest) + std::exp(sides.part - largest));
      BOOST_TEST(std::fabs(static_cast<double>(lse(r, h)) - both) <=
                 kForwardTolerance<T> * std::fabs(both));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(equals_the_formulas) {
  check_merge<float>(*backend);
  check_merge<double>(*backend);
}

BOOST_AUTO_TEST_CASE(nan_of_either_side_stays) {
  for (const bool is_part : {false, true}) {
    Matrix<float> out(1, 2);
    Matrix<float> part_out(1, 2);
    Matrix<float> lse(1, 1);
    Matrix<float> part_lse(1, 1);
    out.fill(1.0F);
    part_out.fill(1.0F);
    (is_part ? lse : part_lse).fill(0.0F);  // the other one is NaN
    backend->attention_merge({out, lse, part_out, part_lse, 1});
    BOOST_TEST(std::isnan(out(0, 1)));
    BOOST_TEST(std::isnan(lse(0, 0)));
  }
}

BOOST_AUTO_TEST_CASE(shapes_that_differ_are_refused) {
  const Matrix<float> out(2, 6);
  const Matrix<float> lse(2, 3);
  BOOST_CHECK_THROW(backend->attention_merge({out, lse, Matrix<float>(1, 6), lse, 3}), base::Error);
  BOOST_CHECK_THROW(backend->attention_merge({out, lse, out, Matrix<float>(2, 2), 3}), base::Error);
  BOOST_CHECK_THROW(backend->attention_merge({out, lse, out, lse, 2}), base::Error);
  BOOST_CHECK_THROW(backend->attention_merge({out, lse, Matrix<double>(2, 6), lse, 3}),
                    base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
