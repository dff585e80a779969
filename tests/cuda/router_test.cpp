// The router on the device against the CPU: choice, ties, NaN, statistics per sequence, the
// gradient of all three losses, and the auxiliary losses against plain loops.
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/cuda/element_matrix.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(cuda_router, BackendFixture)

namespace {

struct Case {
  int64_t tokens, experts, topk, seqs;
  bool normalize;
};

constexpr Case kCases[] = {
    {1, 1, 1, 1, false},   {6, 4, 4, 3, true},     {33, 31, 3, 1, true},    {14, 33, 2, 2, false},
    {300, 64, 8, 2, true}, {9, 1024, 32, 1, true}, {5, 1500, 32, 5, false},
};

// Everything that the router writes, with row distances of its own where `pad` is given.
struct Outputs {
  Matrix<float> probs, lse;
  Matrix<int32_t> indices;
  Matrix<float> weights;
  Matrix<int32_t> counts;
  Matrix<float> prob_sums;

  explicit Outputs(const Case& c, int64_t pad = 0)
      : probs(c.tokens, c.experts, c.experts + pad),
        lse(c.tokens, 1),
        indices(c.tokens, c.topk),
        weights(c.tokens, c.topk, c.topk + pad),
        counts(c.seqs, c.experts, c.experts + pad),
        prob_sums(c.seqs, c.experts, c.experts + pad) {}

  [[nodiscard]] RouterArgs args(const Matrix<float>& logits, const Case& c) const {
    return {logits, probs, lse, indices, weights, counts, prob_sums, c.normalize};
  }

  // Runs the device's router into these matrices.
  void run(const Matrix<float>& logits, const Case& c) {
    OnDevice on;
    cuda::router(nullptr, {on(logits), on(probs), on(lse), on(indices), on(weights), on(counts),
                           on(prob_sums), c.normalize});
    on.fetch(probs);
    on.fetch(lse);
    on.fetch(indices);
    on.fetch(weights);
    on.fetch(counts);
    on.fetch(prob_sums);
  }
};

Matrix<float> random_logits(const Case& c) {
  return Matrix<float>(c.tokens, c.experts, c.experts + 1).fill_random(1, -3.0, 3.0);
}

template <typename T>
void check_backward(Backend& cpu, const Case& c, bool has_aux) {
  constexpr double kZScale = 0.3;
  Outputs saved(c);
  cpu.router(saved.args(random_logits(c), c));
  Matrix<float> dweights(c.tokens, c.topk, c.topk + 2);
  Matrix<float> aux(c.seqs, c.experts, c.experts + 3);
  dweights.fill_random(5);
  aux.fill_random(6);
  Matrix<float> expected(c.tokens, c.experts);
  RouterBackwardArgs args{saved.probs, saved.lse, saved.indices, saved.weights, dweights,
                          {},          expected,  kZScale,       c.normalize};
  if (has_aux) args.aux_scale = aux;
  cpu.router_backward(args);
  Matrix<T> dlogits(c.tokens, c.experts, c.experts + 1);
  OnDevice on;
  args = {on(saved.probs), on(saved.lse), on(saved.indices), on(saved.weights), on(dweights), {},
          on(dlogits),     kZScale,       c.normalize};
  if (has_aux) args.aux_scale = on(aux);
  cuda::router_backward(nullptr, args);
  on.fetch(dlogits);
  BOOST_TEST(has_clean_padding(dlogits));
  BOOST_TEST(error_of(dlogits, expected) < kElementTolerance<T>);
  if constexpr (std::is_same_v<T, float>) {
    args.dlogits = args.probs;  // in place
    cuda::router_backward(nullptr, args);
    on.fetch(saved.probs);
    BOOST_TEST(saved.probs.same_bits(dlogits));
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(equals_the_cpu) {
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.tokens << " tokens, " << c.experts << " experts") {
      const auto logits = random_logits(c);
      Outputs expected(c);
      backend->router(expected.args(logits, c));
      Outputs result(c, 3);
      result.run(logits, c);
      BOOST_TEST(has_clean_padding(result.probs));
      BOOST_TEST(relative_error(result.probs, expected.probs) < kElementTolerance<float>);
      BOOST_TEST(relative_error(result.lse, expected.lse) < kElementTolerance<float>);
      BOOST_TEST(result.indices.same_bits(expected.indices));
      BOOST_TEST(relative_error(result.weights, expected.weights) < kElementTolerance<float>);
      BOOST_TEST(result.counts.same_bits(expected.counts));
      BOOST_TEST(relative_error(result.prob_sums, expected.prob_sums) < kElementTolerance<float>);
    }
  }
}

BOOST_AUTO_TEST_CASE(probs_may_overwrite_logits_and_bits_repeat) {
  const Case c{300, 64, 8, 2, true};
  Outputs apart(c);
  apart.run(random_logits(c), c);
  auto logits = random_logits(c);
  Outputs in_place(c);
  OnDevice on;
  cuda::router(nullptr,
               {on(logits), on(logits), on(in_place.lse), on(in_place.indices),
                on(in_place.weights), on(in_place.counts), on(in_place.prob_sums), c.normalize});
  on.fetch(logits);
  on.fetch(in_place.prob_sums);
  BOOST_TEST(logits.same_bits(apart.probs));
  BOOST_TEST(in_place.prob_sums.same_bits(apart.prob_sums));
}

BOOST_AUTO_TEST_CASE(ties_go_to_the_lower_index) {
  const Case c{1, 70, 4, 1, true};
  Matrix<float> logits(1, 70);
  logits.fill(0.5F);
  logits(0, 66) = 2.0F;
  logits(0, 34) = 2.0F;
  Outputs result(c);
  result.run(logits, c);
  BOOST_TEST(result.indices.data() == (std::vector<int32_t>{34, 66, 0, 1}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(nan_logits_choose_as_on_the_cpu) {
  const Case c{3, 70, 5, 1, true};
  auto logits = random_logits(c);
  logits(1, 69) = kNan;
  logits(2, 3) = INFINITY;
  Outputs expected(c);
  backend->router(expected.args(logits, c));
  Outputs result(c);
  result.run(logits, c);
  BOOST_TEST(result.indices.same_bits(expected.indices));
  BOOST_TEST(num_nan(result.probs) == 140);
  BOOST_TEST(num_nan(result.weights) == 10);
  BOOST_TEST(num_nan(result.prob_sums) == 70);
  BOOST_TEST(std::isnan(result.lse(1, 0)));
}

BOOST_AUTO_TEST_CASE(no_tokens_count_nothing) {
  const Case c{0, 9, 2, 1, true};
  Outputs result(c);
  result.run(Matrix<float>(0, 9), c);
  Matrix<int32_t> no_counts(1, 9);
  Matrix<float> no_sums(1, 9);
  BOOST_TEST(result.counts.same_bits(no_counts.fill(0)));
  BOOST_TEST(result.prob_sums.same_bits(no_sums.fill(0.0F)));
}

BOOST_AUTO_TEST_CASE(gradients_equal_the_cpu) {
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.tokens << " tokens, " << c.experts << " experts") {
      for (const bool has_aux : {false, true}) {
        check_backward<float>(*backend, c, has_aux);
        check_backward<Bf16>(*backend, c, has_aux);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(what_a_warp_cannot_hold_is_refused) {
  const Case c{2, 64, 33, 1, true};
  const Outputs wide(c);
  BOOST_CHECK_THROW(cuda::router(nullptr, wide.args(random_logits(c), c)), base::Error);
  const Case odd{5, 8, 2, 2, true};
  const Outputs result(odd);
  BOOST_CHECK_THROW(cuda::router(nullptr, result.args(random_logits(odd), odd)), base::Error);
}

BOOST_AUTO_TEST_CASE(auxiliary_losses_equal_plain_loops) {
  constexpr double kScale = 0.25;
  constexpr double kShare = 0.5;
  constexpr double kZScale = 0.125;
  for (const int64_t experts : {3, 700}) {
    Matrix<float> sums(4, experts, experts + 2);
    sums.fill_random(1, 0.0, 9.0);
    const Matrix<float> before = sums;
    Matrix<float> lse(1500, 1, 2);
    lse.fill_random(2);
    double balance = 0.0;
    double z = 0.0;
    for (int64_t s = 0; s < 2; ++s) {
      for (int64_t e = 0; e < experts; ++e) {
        balance += static_cast<double>(before(s, e)) * static_cast<double>(before(s + 2, e));
      }
    }
    for (int64_t t = 0; t < 1500; ++t) z += std::pow(static_cast<double>(lse(t, 0)), 2);
    OnDevice on;
    auto load_balance = number(3.0);
    auto z_loss = number(4.0);
    AuxLossArgs args{on(sums),
                     on(lse),
                     kScale,
                     kShare,
                     kZScale,
                     number_on(on, load_balance),
                     number_on(on, z_loss)};
    cuda::aux_loss(nullptr, args);
    const auto check_losses = [&](double expected_balance, double expected_z) {
      on.fetch(load_balance);
      on.fetch(z_loss);
      BOOST_TEST(load_balance(0, 0) == expected_balance, boost::test_tools::tolerance(1e-12));
      BOOST_TEST(z_loss(0, 0) == expected_z, boost::test_tools::tolerance(1e-12));
    };
    check_losses(3.0 + kShare * kScale * balance, 4.0 + kZScale * z);
    on.fetch(sums);
    for (int64_t e = 0; e < experts; ++e) {
      BOOST_TEST(sums(1, e) == before(1, e));
      BOOST_TEST(sums(3, e) == before(3, e) * static_cast<float>(kScale));
    }

    args.sums = {};
    cuda::aux_loss(nullptr, args);
    check_losses(3.0 + kShare * kScale * balance, 4.0 + 2 * kZScale * z);
    // Recomputing a layer needs the gradient again, but not the loss.
    args.sums = on(before);
    args.lse = {};
    args.load_balance = nullptr;
    cuda::aux_loss(nullptr, args);
    check_losses(3.0 + kShare * kScale * balance, 4.0 + 2 * kZScale * z);
    auto scaled = before;
    OnDevice again;
    args.sums = again(scaled);
    cuda::aux_loss(nullptr, args);
    again.fetch(scaled);
    BOOST_TEST(scaled.same_bits(sums));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
