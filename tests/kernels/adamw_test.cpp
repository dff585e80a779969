// AdamW against the formulas of the paper over several steps, and the squared norm.
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/kernels/kernel_fixture.h"

namespace moetune::kernels {
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
  args.dtype = kDTypeOf<T>;
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

}  // namespace

BOOST_FIXTURE_TEST_SUITE(adamw, BackendFixture)

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
