// Gated activations: values, gradients, and rows computed in parts.
#include <array>
#include <boost/test/unit_test.hpp>
#include <numbers>

#include "tests/kernels/gradient_check.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(gated_act, BackendFixture)

namespace {

constexpr int64_t kRows = 7;
constexpr int64_t kWidth = 13;
constexpr std::array kActivations = {Activation::silu, Activation::gelu, Activation::gelu_tanh,
                                     Activation::relu};

double activate(Activation activation, double g) {
  switch (activation) {
    case Activation::silu:
      return g / (1.0 + std::exp(-g));
    case Activation::gelu:
      return 0.5 * g * std::erfc(-g / std::numbers::sqrt2);
    case Activation::gelu_tanh:
      return 0.5 * g *
             (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
    case Activation::relu:
      return std::max(g, 0.0);
  }
  return 0.0;
}

template <typename T>
struct Problem {
  Matrix<T> x{kRows, 2 * kWidth, 2 * kWidth + 1};
  Matrix<T> probs{kRows, 1};
  Matrix<T> out{kRows, kWidth};
  Matrix<T> dout{kRows, kWidth};

  Problem() {
    x.fill_random(1, -4.0, 4.0);
    probs.fill_random(2, 0.1, 1.0);
    dout.fill_random(3);
  }
};

template <typename T>
void check_forward(Backend& backend, Activation activation, bool has_probs) {
  Problem<T> p;
  Matrix<double> expected(kRows, kWidth);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t i = 0; i < kWidth; ++i) {
      expected(r, i) = activate(activation, static_cast<double>(p.x(r, i))) *
                       static_cast<double>(p.x(r, kWidth + i)) *
                       (has_probs ? static_cast<double>(p.probs(r, 0)) : 1.0);
    }
  }
  backend.gated_act({p.x, has_probs ? p.probs.tensor() : Tensor{}, p.out, {}, activation});
  BOOST_TEST(relative_error(p.out, expected) < kForwardTolerance<T>);
}

}  // namespace

BOOST_AUTO_TEST_CASE(equals_naive_loops) {
  for (const Activation activation : kActivations) {
    for (const bool has_probs : {false, true}) {
      check_forward<float>(*backend, activation, has_probs);
      check_forward<double>(*backend, activation, has_probs);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_by_central_differences) {
  for (const Activation activation : kActivations) {
    for (const bool has_probs : {false, true}) {
      Problem<double> p;
      const Tensor probs = has_probs ? p.probs.tensor() : Tensor{};
      const GatedActArgs args{p.x, probs, p.out, {}, activation};
      const auto loss = [&] {
        backend->gated_act(args);
        return weighted_sum(p.dout, p.out);
      };
      Matrix<double> dx(kRows, 2 * kWidth);
      Matrix<double> dprobs(kRows, 1);
      backend->gated_act_backward({args, p.dout, dx, has_probs ? dprobs.tensor() : Tensor{}});
      BOOST_TEST(gradient_error(loss, p.x, dx) < kGradientTolerance);
      if (has_probs) BOOST_TEST(gradient_error(loss, p.probs, dprobs) < kGradientTolerance);
    }
  }
}

BOOST_AUTO_TEST_CASE(rows_in_parts_give_the_same_bits) {
  Problem<float> p;
  Matrix<float> dx(kRows, 2 * kWidth);
  Matrix<float> dprobs(kRows, 1);
  const GatedActArgs all{p.x, p.probs, p.out, {}, Activation::silu};
  backend->gated_act(all);
  backend->gated_act_backward({all, p.dout, dx, dprobs});
  Problem<float> q;
  Matrix<float> part_dx(kRows, 2 * kWidth);
  Matrix<float> part_dprobs(kRows, 1);
  for (const auto& rows : {column_of({5, 0}), column_of({1, 2, 6, 3}), column_of({4})}) {
    const GatedActArgs part{q.x, q.probs, q.out, rows, Activation::silu};
    backend->gated_act(part);
    backend->gated_act_backward({part, q.dout, part_dx, part_dprobs});
  }
  BOOST_TEST(q.out.same_bits(p.out));
  BOOST_TEST(part_dx.same_bits(dx));
  BOOST_TEST(part_dprobs.same_bits(dprobs));
}

BOOST_AUTO_TEST_CASE(extreme_gates_stay_finite) {
  Problem<float> p;
  p.x.fill(-500.0F);
  backend->gated_act({p.x, {}, p.out, {}, Activation::silu});
  BOOST_TEST(std::isfinite(weighted_sum(p.out, p.out)));
  Matrix<float> dx(kRows, 2 * kWidth);
  backend->gated_act_backward({{p.x, {}, p.out, {}, Activation::silu}, p.dout, dx, {}});
  BOOST_TEST(std::isfinite(weighted_sum(dx, dx)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
