// Router: probabilities, choice, ties, statistics per sequence, and the gradient of weights,
// auxiliary and z loss.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <limits>
#include <numeric>

#include "kernels/base/error.h"
#include "tests/kernels/gradient_check.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(router, BackendFixture)

namespace {

template <typename T>
struct Problem {
  Matrix<T> logits, probs, lse;
  Matrix<int32_t> indices;
  Matrix<T> weights;
  Matrix<int32_t> counts;
  Matrix<T> prob_sums;
  bool normalize;

  Problem(int64_t tokens, int64_t experts, int64_t topk, int64_t seqs, bool is_normalized)
      : logits(tokens, experts, experts + 1),
        probs(tokens, experts),
        lse(tokens, 1),
        indices(tokens, topk),
        weights(tokens, topk),
        counts(seqs, experts),
        prob_sums(seqs, experts),
        normalize(is_normalized) {
    logits.fill_random(1, -3.0, 3.0);
  }

  [[nodiscard]] RouterArgs args() const {
    return {logits, probs, lse, indices, weights, counts, prob_sums, normalize};
  }
};

template <typename T>
void check_forward(Backend& backend, int64_t experts, int64_t topk, int64_t seqs, bool normalize) {
  Problem<T> p(6, experts, topk, seqs, normalize);
  Matrix<double> probs(6, experts);
  Matrix<double> lse(6, 1);
  Matrix<double> weights(6, topk);
  Matrix<double> prob_sums(seqs, experts);
  prob_sums.fill(0.0);
  Matrix<int32_t> counts(seqs, experts);
  counts.fill(0);
  backend.router(p.args());
  for (int64_t t = 0; t < 6; ++t) {
    double total = 0.0;
    for (int64_t e = 0; e < experts; ++e) total += std::exp(static_cast<double>(p.logits(t, e)));
    lse(t, 0) = std::log(total);
    for (int64_t e = 0; e < experts; ++e) {
      probs(t, e) = std::exp(static_cast<double>(p.logits(t, e))) / total;
      prob_sums(t * seqs / 6, e) += probs(t, e);
    }
    std::vector<int32_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return p.logits(t, a) > p.logits(t, b); });
    double chosen = 0.0;
    for (int64_t k = 0; k < topk; ++k) chosen += probs(t, order[static_cast<size_t>(k)]);
    for (int64_t k = 0; k < topk; ++k) {
      const int32_t expert = order[static_cast<size_t>(k)];
      BOOST_TEST(p.indices(t, k) == expert);
      weights(t, k) = probs(t, expert) / (normalize ? chosen : 1.0);
      ++counts(t * seqs / 6, expert);
    }
  }
  BOOST_TEST(relative_error(p.probs, probs) < kForwardTolerance<T>);
  BOOST_TEST(relative_error(p.lse, lse) < kForwardTolerance<T>);
  BOOST_TEST(relative_error(p.weights, weights) < kForwardTolerance<T>);
  BOOST_TEST(relative_error(p.prob_sums, prob_sums) < kForwardTolerance<T>);
  BOOST_TEST(p.counts.same_bits(counts));
}

}  // namespace

BOOST_AUTO_TEST_CASE(equals_naive_loops) {
  for (const int64_t experts : {4, 19}) {
    for (const int64_t topk : {1, 2, 4}) {
      for (const int64_t seqs : {1, 3}) {
        for (const bool normalize : {false, true}) {
          check_forward<float>(*backend, experts, topk, seqs, normalize);
          check_forward<double>(*backend, experts, topk, seqs, normalize);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(ties_go_to_the_lower_index) {
  Problem<float> p(1, 6, 3, 1, true);
  p.logits.fill(0.5F);
  p.logits(0, 4) = 2.0F;
  backend->router(p.args());
  BOOST_TEST(p.indices(0, 0) == 4);
  BOOST_TEST(p.indices(0, 1) == 0);
  BOOST_TEST(p.indices(0, 2) == 1);
}

BOOST_AUTO_TEST_CASE(probs_may_overwrite_logits) {
  Problem<float> p(6, 9, 2, 2, true);
  backend->router(p.args());
  Problem<float> q(6, 9, 2, 2, true);
  RouterArgs args = q.args();
  args.probs = args.logits;
  backend->router(args);
  BOOST_TEST(q.logits.same_bits(p.probs));
  BOOST_TEST(q.weights.same_bits(p.weights));
}

BOOST_AUTO_TEST_CASE(nan_logits_still_choose_experts_that_exist) {
  Problem<float> p(3, 5, 2, 1, true);
  p.logits.fill(std::numeric_limits<float>::quiet_NaN());
  backend->router(p.args());
  for (int64_t t = 0; t < 3; ++t) {
    BOOST_TEST(p.indices(t, 0) != p.indices(t, 1));
    for (int64_t k = 0; k < 2; ++k) BOOST_TEST((p.indices(t, k) >= 0 && p.indices(t, k) < 5));
    BOOST_TEST(std::isnan(p.weights(t, 0)));
  }
}

BOOST_AUTO_TEST_CASE(gradients_by_central_differences) {
  constexpr double kZScale = 0.3;
  for (const bool normalize : {false, true}) {
    for (const bool has_aux : {false, true}) {
      Problem<double> p(6, 7, 3, 2, normalize);
      Matrix<double> dweights(6, 3);
      Matrix<double> aux(2, 7);
      dweights.fill_random(5);
      aux.fill_random(6);
      // The choice is constant within a difference; the auxiliary loss is linear in the
      // probabilities.
      const auto loss = [&] {
        backend->router(p.args());
        double total = weighted_sum(dweights, p.weights) + kZScale * weighted_sum(p.lse, p.lse);
        if (has_aux) total += weighted_sum(aux, p.prob_sums);
        return total;
      };
      loss();
      Matrix<double> dlogits(6, 7);
      RouterBackwardArgs args{p.probs, p.lse,   p.indices, p.weights, dweights,
                              {},      dlogits, kZScale,   normalize};
      if (has_aux) args.aux_scale = aux;
      backend->router_backward(args);
      BOOST_TEST(gradient_error(loss, p.logits, dlogits) < kGradientTolerance);
      loss();
      args.dlogits = args.probs;  // in place
      backend->router_backward(args);
      BOOST_TEST(p.probs.same_bits(dlogits));
    }
  }
}

BOOST_AUTO_TEST_CASE(tokens_that_do_not_divide_into_sequences_are_refused) {
  const Problem<float> p(6, 7, 3, 4, true);
  BOOST_CHECK_THROW(backend->router(p.args()), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
