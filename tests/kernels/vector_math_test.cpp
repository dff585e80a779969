// The float exponential over its whole range, and reductions that do not depend on the address.
#include "kernels/cpu/vector_math.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <limits>
#include <vector>

namespace moetune::kernels::cpu {
BOOST_AUTO_TEST_SUITE(vector_math)

namespace {

// Distance from the exact value in units of the last place of float.
double ulps(float got, double exact) {
  const auto rounded = static_cast<float>(exact);
  const double unit =
      static_cast<double>(std::nextafter(rounded, std::numeric_limits<float>::infinity())) -
      static_cast<double>(rounded);
  return std::fabs(static_cast<double>(got) - exact) / unit;
}

// The order of summation that every machine has to keep: element i in lane i % 8, then the lanes.
double in_lanes(const float* a, const float* b, int64_t n) {
  double lanes[8] = {};
  for (int64_t i = 0; i < n; ++i) {
    lanes[i % 8] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
         ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

}  // namespace

BOOST_AUTO_TEST_CASE(exp_is_within_two_ulp) {
  double worst = 0.0;
  for (double x = -87.2; x < 88.3; x += 0.00123) {
    const auto value = static_cast<float>(x);
    worst = std::max(worst, ulps(fast_exp(value), std::exp(static_cast<double>(value))));
  }
  BOOST_TEST(worst < 2.0);
  BOOST_TEST(fast_exp(0.0F) == 1.0F);
}

BOOST_AUTO_TEST_CASE(exp_at_the_ends) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  BOOST_TEST(fast_exp(-kInfinity) == 0.0F);
  BOOST_TEST(fast_exp(-1000.0F) == 0.0F);
  BOOST_TEST(fast_exp(1000.0F) == kInfinity);
  BOOST_TEST(fast_exp(kInfinity) == kInfinity);
  BOOST_TEST(std::isnan(fast_exp(std::numeric_limits<float>::quiet_NaN())));
}

BOOST_AUTO_TEST_CASE(reductions_equal_plain_loops_at_every_length_and_address) {
  std::vector<float> storage(80);
  for (int64_t n = 1; n <= 50; ++n) {
    double first_sum = 0.0;
    for (int64_t shift = 0; shift < 8; ++shift) {
      float* x = storage.data() + shift;
      double expected_sum = 0.0;
      double expected_dot = 0.0;
      for (int64_t i = 0; i < n; ++i) {
        x[i] = static_cast<float>((i * 37) % 23) - 11.3F;
        expected_sum += static_cast<double>(x[i]);
        expected_dot += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      }
      BOOST_TEST(std::fabs(sum(x, n) - expected_sum) < 1e-10);
      BOOST_TEST(std::fabs(dot(x, x, n) - expected_dot) < 1e-10 * expected_dot);
      BOOST_TEST(cpu::max(x, n) == *std::max_element(x, x + n));
      if (shift == 0) first_sum = sum(x, n);
      BOOST_TEST(sum(x, n) == first_sum);
    }
  }
}

BOOST_AUTO_TEST_CASE(reductions_add_in_eight_lanes_to_the_last_bit) {
  std::vector<float> x(100);
  std::vector<float> y(100);
  const std::vector<float> ones(100, 1.0F);
  uint32_t state = 1;
  for (size_t i = 0; i < x.size(); ++i) {
    // Magnitudes far apart: another order would round otherwise.
    x[i] = std::ldexp(1.0F + static_cast<float>(i) / 128.0F, static_cast<int>(state >> 26) - 32);
    state = state * 1664525U + 1013904223U;
    y[i] = i % 3 == 0 ? -x[i] : x[i] * 0.7F;
  }
  for (int64_t n = 0; n <= 100; ++n) {
    BOOST_TEST(sum(x.data(), n) == in_lanes(x.data(), ones.data(), n));
    BOOST_TEST(dot(x.data(), y.data(), n) == in_lanes(x.data(), y.data(), n));
  }
}

BOOST_AUTO_TEST_CASE(log_sum_exp_of_large_values_is_finite) {
  std::vector<float> x = {1000.0F, 999.0F, -1000.0F};
  double total = 0.0;
  const float lse = exp_and_lse(x.data(), 3, &total);
  BOOST_TEST(std::fabs(static_cast<double>(lse) - (1000.0 + std::log(1.0 + std::exp(-1.0)))) <
             1e-4);
  BOOST_TEST(x[2] == 0.0F);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels::cpu
