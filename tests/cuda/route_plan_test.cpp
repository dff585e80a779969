// The send order against a sort on the host: one chunk and several, one tile and many, experts that
// nobody chose.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <random>

#include "kernels/base/error.h"
#include "tests/cuda/element_matrix.h"

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(cuda_route_plan)

namespace {

struct Case {
  const char* name;
  int64_t tokens, topk, experts, chunks;
  int64_t spread;  // tokens choose among every spread-th expert
};

constexpr Case kCases[] = {
    {"one slot", 1, 1, 1, 1, 1},
    {"odd", 7, 3, 5, 1, 1},
    {"no tokens", 0, 2, 5, 2, 1},
    {"fewer tokens than chunks", 2, 2, 5, 4, 1},
    {"chunks of unequal length", 101, 3, 9, 4, 1},
    {"tiles", 1000, 8, 33, 1, 1},
    {"tiles of chunks", 1501, 8, 40, 3, 1},
    {"empty experts", 700, 4, 90, 2, 15},
    {"one expert takes all", 1100, 1, 64, 1, 64},
    {"more experts than threads", 2200, 2, 1024, 2, 1},
    {"more tiles than segments of the scan", 9000, 8, 16, 1, 1},
};

Matrix<int32_t> choose(const Case& c) {
  std::mt19937 generator(7);
  Matrix<int32_t> indices(c.tokens, c.topk);
  const int64_t num_choices = (c.experts + c.spread - 1) / c.spread;
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t k = 0; k < c.topk; ++k) {
      indices(t, k) =
          static_cast<int32_t>(static_cast<int64_t>(generator()) % num_choices * c.spread);
    }
  }
  return indices;
}

}  // namespace

BOOST_AUTO_TEST_CASE(equals_a_stable_sort) {
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.name) {
      auto indices = choose(c);
      const int64_t num_slots = c.tokens * c.topk;
      std::vector<int64_t> bucket(static_cast<size_t>(num_slots));
      Matrix<int32_t> expected_counts(c.chunks, c.experts);
      expected_counts.fill(0);
      for (int64_t chunk = 0; chunk < c.chunks; ++chunk) {
        const int64_t end = (chunk + 1) * c.tokens / c.chunks * c.topk;
        for (int64_t i = chunk * c.tokens / c.chunks * c.topk; i < end; ++i) {
          const int32_t expert = indices.data()[static_cast<size_t>(i)];
          bucket[static_cast<size_t>(i)] = chunk * c.experts + expert;
          ++expected_counts(chunk, expert);
        }
      }
      std::vector<int32_t> expected(bucket.size());
      std::iota(expected.begin(), expected.end(), 0);
      std::stable_sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) {
        return bucket[static_cast<size_t>(a)] < bucket[static_cast<size_t>(b)];
      });

      Matrix<int32_t> order(num_slots, 1);
      Matrix<int32_t> position(num_slots, 1);
      Matrix<int32_t> counts(c.chunks, c.experts, c.experts + 1);
      Matrix<int32_t> offsets(c.experts + 1, 1);
      OnDevice on;
      RoutePlanArgs args{on(indices), on(order), on(position), on(counts), {}, c.chunks};
      if (c.chunks == 1) args.offsets = on(offsets);
      cuda::route_plan(nullptr, args);
      on.fetch(order);
      on.fetch(position);
      on.fetch(counts);
      if (c.chunks == 1) on.fetch(offsets);
      BOOST_TEST((order.data() == expected));
      BOOST_TEST(counts.same_bits(expected_counts));
      for (int64_t i = 0; i < num_slots; ++i) {
        if (position(order(i, 0), 0) != i) BOOST_ERROR("position is not the inverse at " << i);
      }
      if (c.chunks > 1) continue;
      BOOST_TEST(offsets(0, 0) == 0);
      for (int64_t e = 0; e < c.experts; ++e) {
        BOOST_TEST(offsets(e + 1, 0) == offsets(e, 0) + expected_counts(0, e));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(outputs_of_another_length_are_refused) {
  const Matrix<int32_t> indices(4, 2);
  const Matrix<int32_t> slots(8, 1);
  const Matrix<int32_t> counts(1, 3);
  const Matrix<int32_t> offsets(4, 1);
  BOOST_CHECK_THROW(cuda::route_plan(nullptr, {indices, counts, slots, counts, offsets, 1}),
                    base::Error);
  BOOST_CHECK_THROW(cuda::route_plan(nullptr, {indices, slots, slots, counts, offsets, 2}),
                    base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
