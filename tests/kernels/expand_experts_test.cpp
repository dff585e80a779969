// The experts of expert tensor parallelism: every slice of a chosen expert, by name.
#include <boost/test/unit_test.hpp>
#include <set>

#include "kernels/base/error.h"
#include "tests/kernels/kernel_fixture.h"

namespace moetune::kernels {

BOOST_FIXTURE_TEST_SUITE(expand_experts, BackendFixture)

BOOST_AUTO_TEST_CASE(slices_come_by_rank_slice_and_local_expert) {
  // Two ranks of three experts, each expert in two slices: ranks of slices hold experts
  // {0,1,2}, {0,1,2}, {3,4,5}, {3,4,5}.
  const auto indices = column_of({0, 2, 3, 5});
  Matrix<int32_t> out(4, 2);
  backend->expand_experts({indices, out, 2, 3});
  const int32_t expected[4][2] = {{0, 3}, {2, 5}, {6, 9}, {8, 11}};
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t c = 0; c < 2; ++c) BOOST_TEST(out(t, c) == expected[t][c]);
  }
}

BOOST_AUTO_TEST_CASE(every_number_names_one_slice) {
  constexpr int64_t kExperts = 12;
  for (const int64_t local_experts : {1, 2, 4, 12}) {
    for (const int64_t copies : {1, 2, 3}) {
      BOOST_TEST_CONTEXT(local_experts << " local experts, " << copies << " copies") {
        // Top-3 over strided rows: all experts, each once.
        Matrix<int32_t> indices(kExperts / 3, 3, 5);
        for (int32_t e = 0; e < kExperts; ++e) indices(e % 4, e / 4) = e;
        Matrix<int32_t> out(indices.rows(), 3 * copies, 3 * copies + 1);
        backend->expand_experts({indices, out, copies, local_experts});
        std::set<int32_t> seen;
        for (int64_t t = 0; t < indices.rows(); ++t) {
          for (int64_t k = 0; k < 3; ++k) {
            for (int64_t c = 0; c < copies; ++c) {
              const int64_t number = out(t, k * copies + c);
              // Taken apart again: (rank of experts, slice, local expert).
              const int64_t rank = number / (copies * local_experts);
              BOOST_TEST(number / local_experts % copies == c);
              BOOST_TEST(rank * local_experts + number % local_experts == indices(t, k));
              seen.insert(static_cast<int32_t>(number));
            }
          }
        }
        BOOST_TEST(static_cast<int64_t>(seen.size()) == kExperts * copies);
        BOOST_TEST(*seen.rbegin() == kExperts * copies - 1);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_refused) {
  const auto indices = column_of({1, 0});
  BOOST_CHECK_THROW(backend->expand_experts({indices, Matrix<int32_t>(2, 3), 2, 1}), base::Error);
  BOOST_CHECK_THROW(backend->expand_experts({indices, Matrix<int32_t>(1, 2), 2, 1}), base::Error);
  BOOST_CHECK_THROW(backend->expand_experts({indices, Matrix<int32_t>(2, 0), 0, 1}), base::Error);
  BOOST_CHECK_THROW(backend->expand_experts({indices, Matrix<int32_t>(2, 1), 1, 0}), base::Error);
  BOOST_CHECK_THROW(backend->expand_experts({column_of({-1}), Matrix<int32_t>(1, 2), 2, 1}),
                    base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
