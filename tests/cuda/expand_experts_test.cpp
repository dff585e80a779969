// The experts of expert tensor parallelism on the device against the CPU.
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/cuda/cuda_fixture.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(cuda_expand_experts, BackendFixture)

namespace {

struct Case {
  int64_t tokens, topk, copies, local_experts, pad;
};

constexpr Case kCases[] = {{0, 2, 2, 4, 0}, {1, 1, 1, 1, 0}, {5, 3, 2, 4, 3}, {700, 8, 4, 16, 0}};

}  // namespace

BOOST_AUTO_TEST_CASE(equals_the_cpu) {
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.tokens << " tokens, " << c.copies << " copies") {
      Matrix<int32_t> indices(c.tokens, c.topk, c.topk + c.pad);
      for (int64_t t = 0; t < c.tokens; ++t) {
        for (int64_t k = 0; k < c.topk; ++k) {
          indices(t, k) = static_cast<int32_t>((t * 11 + k * 5) % (4 * c.local_experts));
        }
      }
      const int64_t cols = c.topk * c.copies;
      Matrix<int32_t> out(c.tokens, cols, cols + c.pad);
      Matrix<int32_t> expected(c.tokens, cols);
      backend->expand_experts({indices, expected, c.copies, c.local_experts});
      OnDevice on;
      cuda::expand_experts(nullptr, {on(indices), on(out), c.copies, c.local_experts});
      on.fetch(out);
      BOOST_TEST(out.same_bits(expected));
      BOOST_TEST(has_clean_padding(out));
    }
  }
}

BOOST_AUTO_TEST_CASE(shapes_that_do_not_fit_are_refused) {
  const auto indices = column_of({1, 0});
  const Matrix<int32_t> out(2, 3);
  BOOST_CHECK_THROW(cuda::expand_experts(nullptr, {indices, out, 2, 1}), base::Error);
  BOOST_CHECK_THROW(cuda::expand_experts(nullptr, {indices, out, 3, 0}), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
