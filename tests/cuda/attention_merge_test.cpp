// Merging attention over two sets of keys on the device against the CPU: packed and scalar rows,
// heads narrower and wider than a warp, sides that saw no key.
#include <boost/test/unit_test.hpp>

#include "tests/cuda/element_matrix.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(cuda_attention_merge, BackendFixture)

namespace {

struct Case {
  int64_t rows, heads, d, pad;
};

constexpr Case kCases[] = {{1, 1, 1, 0},   {7, 3, 8, 0},   {5, 2, 64, 8}, {70, 4, 16, 3},
                           {3, 2, 131, 0}, {4, 1, 264, 0}, {0, 2, 8, 0},  {9, 2, 256, 0}};

// The lse of a side in the row and head: neither side, one of them, or both saw no key somewhere;
// of some exp() has no number.
float lse_at(int64_t row, int64_t head, int side) {
  const int64_t number = row * 7 + head * 3 + side;
  if (number % 4 == 0) return -INFINITY;
  return (static_cast<float>(number % 11) - 5.0F) * (number % 3 == 0 ? 60.0F : 1.0F);
}

template <typename T>
void check_merge(Backend& cpu, const Case& c) {
  auto expected = random_values<T>(c.rows, c.heads * c.d, 1);
  auto part = random_values<T>(c.rows, c.heads * c.d, 2);
  Matrix<float> expected_lse(c.rows, c.heads);
  Matrix<float> lse(c.rows, c.heads, c.heads + 1);
  Matrix<float> part_lse(c.rows, c.heads, c.heads + 2);
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t h = 0; h < c.heads; ++h) {
      lse(r, h) = expected_lse(r, h) = lse_at(r, h, 0);
      part_lse(r, h) = lse_at(r, h, r % 2 == 0 ? 1 : 4);  // in odd rows both or neither
      for (int64_t i = h * c.d; i < (h + 1) * c.d; ++i) {
        if (lse(r, h) == -INFINITY) expected(r, i) = kNan;
        if (part_lse(r, h) == -INFINITY) part(r, i) = kNan;
      }
    }
  }
  auto out = narrowed<T>(expected, c.heads * c.d + c.pad);
  const auto part_out = narrowed<T>(part, c.heads * c.d + c.pad);
  cpu.attention_merge({expected, expected_lse, part, part_lse, c.heads});
  OnDevice on;
  cuda::attention_merge(nullptr, {on(out), on(lse), on(part_out), on(part_lse), c.heads});
  on.fetch(out);
  on.fetch(lse);
  BOOST_TEST(error_of(out, expected) < kElementTolerance<T>);
  BOOST_TEST(has_clean_padding(out));
  BOOST_TEST(has_clean_padding(lse));
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t h = 0; h < c.heads; ++h) {
      if (std::isfinite(expected_lse(r, h))) {
        const float distance = std::fabs(lse(r, h) - expected_lse(r, h));
        BOOST_TEST(distance < 1e-6F * (10.0F + std::fabs(expected_lse(r, h))));
      } else {
        BOOST_TEST(lse(r, h) == expected_lse(r, h));
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(equals_the_cpu, T, ElementTypes) {
  const auto cpu = make_cpu_backend();
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.rows << " rows, " << c.heads << " heads of " << c.d) {
      check_merge<T>(*cpu, c);
    }
  }
}

BOOST_AUTO_TEST_CASE(nan_of_either_side_stays) {
  for (const bool is_part : {false, true}) {
    Matrix<float> out(1, 8);
    Matrix<float> lse(1, 1);
    Matrix<float> part_lse(1, 1);
    out.fill(1.0F);
    const auto part_out = out;
    (is_part ? lse : part_lse).fill(-INFINITY);  // the other one is NaN
    OnDevice on;
    cuda::attention_merge(nullptr, {on(out), on(lse), on(part_out), on(part_lse), 1});
    on.fetch(out);
    on.fetch(lse);
    BOOST_TEST(num_nan(out) == 8);
    BOOST_TEST(num_nan(lse) == 1);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
