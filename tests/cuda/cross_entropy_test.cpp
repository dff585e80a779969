// Softmax cross-entropy against the CPU: packed and scalar rows, rows shorter and longer than a
// block, masked and broken logits, and a loss that does not depend on the chunks.
#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/cuda/element_matrix.h"

namespace moetune::kernels {
namespace {

struct Case {
  int64_t rows, vocabulary, ld;
};

constexpr Case kCases[] = {{1, 1, 1},       {3, 7, 7},         {2, 64, 64},       {2, 64, 65},
                           {4, 1000, 1024}, {2, 20000, 20000}, {1, 33001, 33001}, {0, 8, 8}};

Matrix<int32_t> targets_for(int64_t rows, int64_t vocabulary) {
  Matrix<int32_t> targets(rows, 1);
  for (int64_t r = 0; r < rows; ++r) {
    targets(r, 0) = static_cast<int32_t>((r * 5381 + vocabulary - 1) % vocabulary);
  }
  return targets;
}

// The sum after the call; logits become the gradient.
template <typename T>
double loss_on_device(Matrix<T>& logits, const Matrix<int32_t>& targets, double grad_scale = 1.0,
                      double before = 0.0) {
  OnDevice on;
  auto loss = number(before);
  cuda::cross_entropy(nullptr, {on(logits), on(targets), grad_scale, number_on(on, loss)});
  on.fetch(logits);
  on.fetch(loss);
  return loss(0, 0);
}

template <typename T>
void check(Backend& cpu, const Case& c, double grad_scale) {
  auto expected = random_values<T>(c.rows, c.vocabulary, 1, -6.0, 6.0);
  auto logits = narrowed<T>(expected, c.ld);
  const auto targets = targets_for(c.rows, c.vocabulary);
  double expected_loss = 2.0;
  cpu.cross_entropy({expected, targets, grad_scale, &expected_loss});
  BOOST_TEST(loss_on_device(logits, targets, grad_scale, 2.0) == expected_loss,
             boost::test_tools::tolerance(1e-6));
  BOOST_TEST(error_of(logits, expected) < kElementTolerance<T>);
  BOOST_TEST(has_clean_padding(logits));
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cuda_cross_entropy, BackendFixture)

BOOST_AUTO_TEST_CASE(equals_the_cpu) {
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.rows << " rows of " << c.vocabulary) {
      check<float>(*backend, c, 0.125);
      check<Bf16>(*backend, c, 0.125);
    }
  }
}

BOOST_AUTO_TEST_CASE(chunks_in_any_order_change_no_bit) {
  constexpr int64_t kRows = 60;
  const auto values = random_values<float>(kRows, 37, 1, -9.0, 9.0);
  const auto targets = targets_for(kRows, 37);
  auto whole = values;
  auto cut = values;
  const double whole_loss = loss_on_device(whole, targets);
  OnDevice on;
  auto cut_loss = number(0.0);
  for (int64_t first = kRows - 3; first >= 0; first -= 3) {
    cuda::cross_entropy(nullptr, {on(cut).row_range(first, 3), on(targets).row_range(first, 3), 1.0,
                                  number_on(on, cut_loss)});
  }
  on.fetch(cut);
  on.fetch(cut_loss);
  BOOST_TEST(cut.same_bits(whole));
  BOOST_TEST(cut_loss(0, 0) == whole_loss);
}

BOOST_AUTO_TEST_CASE(masked_logits_have_no_share) {
  auto expected = random_values<float>(2, 5000, 1);
  for (int64_t i = 0; i < 4200; ++i) expected(0, i) = -INFINITY;
  expected(1, 17) = 1e4F;
  auto logits = expected;
  const auto targets = column_of({4999, 17});
  double expected_loss = 0.0;
  backend->cross_entropy({expected, targets, 1.0, &expected_loss});
  BOOST_TEST(loss_on_device(logits, targets) == expected_loss, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(error_of(logits, expected) < kElementTolerance<float>);
}

BOOST_AUTO_TEST_CASE(nan_shows_in_the_loss_and_its_row) {
  auto logits = random_values<float>(3, 2000, 1);
  logits(1, 1999) = kNan;
  BOOST_TEST(std::isnan(loss_on_device(logits, targets_for(3, 2000))));
  BOOST_TEST(num_nan(logits) == 2000);
}

BOOST_AUTO_TEST_CASE(a_target_out_of_range_shows_in_the_loss) {
  for (const int32_t target : {-1, 8}) {
    auto logits = random_values<float>(1, 8, 1);
    BOOST_TEST(std::isnan(loss_on_device(logits, column_of({target}))));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
