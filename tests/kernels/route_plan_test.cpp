// What follows from a routing decision: send order, counts and offsets against their definition,
// and the auxiliary losses against plain sums.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>

#include "kernels/base/error.h"
#include "tests/kernels/kernel_fixture.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(route_plan, BackendFixture)

namespace {

struct Shape {
  int64_t tokens, topk, experts, chunks;
};
std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << s.tokens << " tokens, top-" << s.topk << " of " << s.experts << ", " << s.chunks
             << " chunks";
}
const std::vector<Shape> kShapes = {{1, 1, 1, 1},  {7, 2, 4, 1},  {7, 2, 4, 3},
                                    {64, 3, 8, 4}, {5, 1, 16, 5}, {0, 2, 4, 2}};

Matrix<int32_t> random_indices(const Shape& shape) {
  Matrix<int32_t> indices(shape.tokens, shape.topk);
  std::mt19937 generator(3);
  for (int64_t t = 0; t < shape.tokens; ++t) {
    for (int64_t k = 0; k < shape.topk; ++k) {
      indices(t, k) = static_cast<int32_t>(generator() % static_cast<uint32_t>(shape.experts));
    }
  }
  return indices;
}

}  // namespace

BOOST_DATA_TEST_CASE(order_is_chunk_expert_token_slot, boost::unit_test::data::make(kShapes), s) {
  const Matrix<int32_t> indices = random_indices(s);
  const int64_t slots = s.tokens * s.topk;
  Matrix<int32_t> order(slots, 1);
  Matrix<int32_t> position(slots, 1);
  Matrix<int32_t> counts(s.chunks, s.experts);
  Matrix<int32_t> offsets(s.experts + 1, 1);
  RoutePlanArgs args{indices, order, position, counts, {}, s.chunks};
  if (s.chunks == 1) args.offsets = offsets;
  backend->route_plan(args);
  int64_t place = 0;
  for (int64_t c = 0; c < s.chunks; ++c) {
    for (int32_t e = 0; e < s.experts; ++e) {
      const int64_t first = place;
      for (int64_t t = c * s.tokens / s.chunks; t < (c + 1) * s.tokens / s.chunks; ++t) {
        for (int64_t k = 0; k < s.topk; ++k) {
          if (indices(t, k) != e) continue;
          BOOST_TEST(order(place, 0) == t * s.topk + k);
          BOOST_TEST(position(t * s.topk + k, 0) == place);
          ++place;
        }
      }
      BOOST_TEST(counts(c, e) == place - first);
      if (s.chunks == 1) BOOST_TEST(offsets(e, 0) == first);
    }
  }
  BOOST_TEST(place == slots);
  if (s.chunks == 1) BOOST_TEST(offsets(s.experts, 0) == slots);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_planned_is_refused) {
  Matrix<int32_t> indices(2, 1);
  indices.fill(4);
  Matrix<int32_t> order(2, 1);
  Matrix<int32_t> position(2, 1);
  Matrix<int32_t> counts(1, 4);
  BOOST_CHECK_THROW(backend->route_plan({indices, order, position, counts, {}, 1}), base::Error);
  indices.fill(0);
  BOOST_CHECK_THROW(backend->route_plan({indices, order, position, counts, {}, 2}), base::Error);
  Matrix<int32_t> two(2, 4);
  Matrix<int32_t> offsets(5, 1);
  BOOST_CHECK_THROW(backend->route_plan({indices, order, position, two, offsets, 2}), base::Error);
}

BOOST_AUTO_TEST_CASE(aux_losses_and_their_gradient) {
  Matrix<float> sums(4, 3);  // two sequences, three experts
  Matrix<float> lse(5, 1);
  sums.fill_random(1, 0.0, 2.0);
  lse.fill_random(2);
  const Matrix<float> before = sums;
  double products = 0;
  double squares = 0;
  for (int64_t s = 0; s < 2; ++s) {
    for (int64_t e = 0; e < 3; ++e) {
      products += static_cast<double>(before(s, e)) * static_cast<double>(before(2 + s, e));
    }
  }
  for (int64_t t = 0; t < 5; ++t) squares += std::pow(static_cast<double>(lse(t, 0)), 2);
  double load_balance = 1.0;
  double z_loss = 2.0;
  backend->aux_loss({sums, lse, 0.5, 0.25, 0.125, &load_balance, &z_loss});
  BOOST_TEST(load_balance == 1.0 + 0.25 * 0.5 * products, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(z_loss == 2.0 + 0.125 * squares, boost::test_tools::tolerance(1e-12));
  for (int64_t e = 0; e < 3; ++e) {
    BOOST_TEST(sums(1, e) == before(1, e));
    BOOST_TEST(sums(3, e) == 0.5F * before(3, e));
  }
  backend->aux_loss({{}, {}, 0.5, 0.25, 0.125, &load_balance, &z_loss});
  BOOST_TEST(z_loss == 2.0 + 0.125 * squares, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(counts_become_floats) {
  Matrix<int32_t> counts(2, 3);
  counts.fill(7);
  Matrix<float> values(2, 3);
  backend->copy({counts, values, false});
  BOOST_TEST(values(1, 2) == 7.0F);
  BOOST_CHECK_THROW(backend->copy({values, counts, false}), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
