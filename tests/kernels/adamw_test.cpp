// AdamW against the formulas of the paper over several steps, and the squared norm.
#include <algorithm>
#include <bit>
#include <boost/test/unit_test.hpp>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "tests/kernels/kernel_fixture.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(adamw, BackendFixture)

namespace {

template <typename T>
void check_steps(Backend& backend, bool use_decay) {
  constexpr int64_t kSize = 37;
  Matrix<T> weight(1, kSize);
  Matrix<T> master(1, kSize);
  Matrix<T> m(1, kSize);
  Matrix<T> v(1, kSize);
  Matrix<T> grad(1, kSize);
  master.fill_random(1);
  m.fill(T{0});
  v.fill(T{0});
  Matrix<double> expected(1, kSize);
  std::vector<double> exact_m(kSize);
  std::vector<double> exact_v(kSize);
  for (int64_t i = 0; i < kSize; ++i) expected(0, i) = static_cast<double>(master(0, i));
  AdamWArgs args;
  args.dtype = args.m_dtype = args.v_dtype = kDTypeOf<T>;
  args.lr = 0.01;
  args.weight_decay = 0.1;
  args.grad_scale = 0.5;
  // Two slices of one tensor, as the distributed optimizer cuts them.
  for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 20}, {20, kSize - 20}}) {
    args.slices.push_back({&weight(0, begin), &master(0, begin), &m(0, begin), &v(0, begin),
                           &grad(0, begin), count, use_decay});
  }
  for (args.step = 1; args.step <= 4; ++args.step) {
    grad.fill_random(static_cast<uint64_t>(args.step) + 10);
    backend.adamw(args);
    for (int64_t i = 0; i < kSize; ++i) {
      const double g = 0.5 * static_cast<double>(grad(0, i));
      double& mean = exact_m[static_cast<size_t>(i)];
      double& variance = exact_v[static_cast<size_t>(i)];
      mean = args.beta1 * mean + (1.0 - args.beta1) * g;
      variance = args.beta2 * variance + (1.0 - args.beta2) * g * g;
      const auto step = static_cast<double>(args.step);
      const double mean_hat = mean / (1.0 - std::pow(args.beta1, step));
      const double variance_hat = variance / (1.0 - std::pow(args.beta2, step));
      const double decay = use_decay ? args.weight_decay * expected(0, i) : 0.0;
      expected(0, i) -= args.lr * (mean_hat / (std::sqrt(variance_hat) + args.eps) + decay);
    }
  }
  BOOST_TEST(relative_error(master, expected) < kForwardTolerance<T>);
  BOOST_TEST(weight.same_bits(master));
}

// --- moments of bf16 ---------------------------------------------------------------------------

float widened(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16U); }

uint16_t nearest_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

// Many parameters at once, for statistics.
struct NarrowState {
  static constexpr int64_t kSize = 1 << 16;

  std::vector<float> weight, master, grad;
  std::vector<uint16_t> m, v;
  AdamWArgs args;

  explicit NarrowState(float moment)
      : weight(kSize), master(kSize), grad(kSize), m(kSize), v(kSize) {
    // All mantissas from `moment` to twice of it.
    for (size_t i = 0; i < m.size(); ++i) {
      m[i] = v[i] = nearest_bf16(moment * (1.0F + static_cast<float>(i % 128) / 128.0F));
    }
    args.m_dtype = args.v_dtype = DType::bf16;
    args.beta2 = 0.999;
    args.lr = 0.0;
    args.rounding_seed = 5;
    args.slices = {slice(0, kSize)};
  }

  AdamWArgs::Slice slice(size_t begin, int64_t count) {
    return {weight.data() + begin,
            master.data() + begin,
            m.data() + begin,
            v.data() + begin,
            grad.data() + begin,
            count,
            false,
            static_cast<int64_t>(begin)};
  }
};

double sum_of(const std::vector<uint16_t>& values) {
  double sum = 0.0;
  for (const uint16_t bits : values) sum += static_cast<double>(widened(bits));
  return sum;
}

}  // namespace

BOOST_AUTO_TEST_CASE(equals_the_formulas) {
  for (const bool use_decay : {false, true}) {
    check_steps<float>(*backend, use_decay);
    check_steps<double>(*backend, use_decay);
  }
}

BOOST_AUTO_TEST_CASE(weight_and_master_may_be_the_same_memory) {
  Matrix<float> apart(3, 21);
  apart.fill_random(1);
  Matrix<float> together = apart;
  Matrix<float> weight(3, 21);
  Matrix<float> grad(3, 21);
  grad.fill_random(2);
  const auto step = [&](Matrix<float>& master, Matrix<float>& target) {
    Matrix<float> m(3, 21);
    Matrix<float> v(3, 21);
    AdamWArgs args;
    args.slices = {{&target(0, 0), &master(0, 0), &m.fill(0.0F)(0, 0), &v.fill(0.0F)(0, 0),
                    &grad(0, 0), 63, true}};
    backend->adamw(args);
  };
  step(apart, weight);
  step(together, together);
  BOOST_TEST(together.same_bits(weight));
}

BOOST_AUTO_TEST_CASE(steps_count_from_one) {
  AdamWArgs args;
  args.step = 0;
  BOOST_CHECK_THROW(backend->adamw(args), base::Error);
}

// A last place of bf16 is 0.4 to 0.8 % of a number, and a step takes 0.1 % off v.
BOOST_AUTO_TEST_CASE(narrow_v_decays_in_the_mean_where_nearest_would_stick) {
  constexpr int kSteps = 200;
  for (const float start : {0.75F, 3e-12F}) {
    NarrowState state(start);
    const std::vector<uint16_t> first = state.v;
    std::vector<uint16_t> nearest = first;
    for (state.args.step = 1; state.args.step <= kSteps; ++state.args.step) {
      backend->adamw(state.args);
      for (uint16_t& v : nearest) v = nearest_bf16(0.999F * widened(v));
    }
    BOOST_TEST((nearest == first));
    // Each step's rounding adds at most (half a last place)^2 of variance: 2.4e-5 * steps / kSize.
    const double sigma = std::sqrt(2.4e-5 * kSteps / NarrowState::kSize);
    BOOST_TEST(std::fabs(sum_of(state.v) / sum_of(first) - std::pow(0.999, kSteps)) < 4 * sigma);
  }
}

BOOST_AUTO_TEST_CASE(narrow_m_is_unbiased_and_apart_from_v) {
  NarrowState state(1.0F);
  state.args.beta1 = 0.999;  // m and v go the same way but for their draws
  std::ranges::fill(state.m, nearest_bf16(1.0F));
  state.v = state.m;
  backend->adamw(state.args);
  // 0.999 lies 0.256 of the way from 1 down to the next bf16.
  const double down = (1.0 - 0.999) * 256.0;
  const auto kSize = static_cast<double>(NarrowState::kSize);
  const auto near_share = [&](int64_t count, double share) {
    const double sigma = std::sqrt(share * (1.0 - share) / kSize);
    BOOST_TEST(std::fabs(static_cast<double>(count) / kSize - share) < 4 * sigma);
  };
  const uint16_t one = nearest_bf16(1.0F);
  near_share(std::ranges::count_if(state.m, [&](uint16_t m) { return m != one; }), down);
  near_share(std::ranges::count_if(state.v, [&](uint16_t v) { return v != one; }), down);
  int64_t both = 0;
  for (size_t i = 0; i < state.m.size(); ++i) both += state.m[i] != one && state.v[i] != one;
  near_share(both, down * down);
}

BOOST_AUTO_TEST_CASE(narrow_moments_change_no_update) {
  // The weights are those of f32 moments that begin with the same values.
  NarrowState state(0.5F);
  std::vector<float> wide_m, wide_v;
  for (const uint16_t m : state.m) wide_m.push_back(widened(m));
  wide_v = wide_m;
  for (size_t i = 0; i < state.grad.size(); ++i) {
    state.grad[i] = std::sin(static_cast<float>(i));
    state.master[i] = std::cos(static_cast<float>(i));
  }
  std::vector<float> wide_master = state.master;
  state.args.lr = 0.1;
  AdamWArgs wide = state.args;
  wide.m_dtype = wide.v_dtype = DType::f32;
  wide.slices[0].weight = wide.slices[0].master = wide_master.data();
  wide.slices[0].m = wide_m.data();
  wide.slices[0].v = wide_v.data();
  backend->adamw(state.args);
  backend->adamw(wide);
  BOOST_TEST((state.master == wide_master));
  BOOST_TEST((state.weight == wide_master));
  for (size_t i = 0; i < state.m.size(); ++i) {
    // One of the two neighbours.
    BOOST_REQUIRE(std::fabs(widened(state.m[i]) - wide_m[i]) < std::fabs(wide_m[i]) / 128);
    BOOST_REQUIRE(std::fabs(widened(state.v[i]) - wide_v[i]) < std::fabs(wide_v[i]) / 128);
  }
}

BOOST_AUTO_TEST_CASE(draws_follow_the_element_the_step_and_the_seed_alone) {
  const auto moments_after = [&](int64_t cut, int64_t step, uint64_t seed) {
    NarrowState state(1.0F);
    state.args.step = step;
    state.args.rounding_seed = seed;
    if (cut > 0) {
      state.args.slices = {state.slice(static_cast<size_t>(cut), NarrowState::kSize - cut),
                           state.slice(0, cut)};
    }
    backend->adamw(state.args);
    return std::pair(state.m, state.v);
  };
  const auto expected = moments_after(0, 2, 5);
  BOOST_TEST((moments_after(0, 2, 5) == expected));
  BOOST_TEST((moments_after(1237, 2, 5) == expected));
  BOOST_TEST((moments_after(0, 3, 5) != expected));
  BOOST_TEST((moments_after(0, 2, 6) != expected));
}

BOOST_AUTO_TEST_CASE(narrow_moments_beside_f64_are_refused) {
  AdamWArgs args;
  args.dtype = DType::f64;
  args.m_dtype = DType::bf16;
  args.v_dtype = DType::f64;
  BOOST_CHECK_THROW(backend->adamw(args), base::Error);
}

// Each moment has its own type, and the draws of both narrow ones.
BOOST_AUTO_TEST_CASE(either_moment_may_be_narrow) {
  NarrowState both(0.5F);
  const std::vector<uint16_t> first = both.v;
  for (size_t i = 0; i < both.grad.size(); ++i) both.grad[i] = std::sin(static_cast<float>(i));
  NarrowState one = both;
  one.args.slices = {one.slice(0, NarrowState::kSize)};
  std::vector<float> wide;
  for (const uint16_t bits : first) wide.push_back(widened(bits));
  const std::vector<float> before = wide;
  both.args.slices = {both.slice(0, NarrowState::kSize)};
  backend->adamw(both.args);
  one.args.slices[0].m = wide.data();
  one.args.m_dtype = DType::f32;
  backend->adamw(one.args);
  BOOST_TEST((one.v == both.v));
  BOOST_TEST((one.m == first));
  BOOST_TEST((wide != before));
  one.v = first;
  wide = before;
  one.args = both.args;
  one.args.slices = {one.slice(0, NarrowState::kSize)};
  one.args.slices[0].v = wide.data();
  one.args.v_dtype = DType::f32;
  backend->adamw(one.args);
  BOOST_TEST((one.m == both.m));
  BOOST_TEST((one.v == first));
  BOOST_TEST((wide != before));
}

BOOST_AUTO_TEST_CASE(squared_norm_over_slices_in_double) {
  Matrix<float> a(1, 1000);
  Matrix<float> b(1, 3);
  a.fill(1e-3F);
  b.fill(1e20F);  // its square is beyond float
  double result = -1.0;
  backend->squared_norm({{{&a(0, 0), 1000}}, DType::f32, &result});
  BOOST_TEST(std::fabs(result - 1e-3) < 1e-9);
  backend->squared_norm({{{&a(0, 0), 1000}, {&b(0, 0), 3}}, DType::f32, &result});
  BOOST_TEST(std::fabs(result - 3e40) < 1e-6 * 3e40);
  backend->squared_norm({{}, DType::f64, &result});
  BOOST_TEST(result == 0.0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
