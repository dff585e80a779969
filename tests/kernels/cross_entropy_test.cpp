// Cross-entropy: the loss, its gradient in place, and chunks that change no bit.
#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/kernels/gradient_check.h"

namespace moetune::kernels {

BOOST_FIXTURE_TEST_SUITE(cross_entropy, BackendFixture)

BOOST_AUTO_TEST_CASE(loss_equals_naive_loops) {
  Matrix<float> logits(5, 21, 24);
  logits.fill_random(1, -5.0, 5.0);
  const auto targets = column_of({0, 20, 7, 7, 3});
  double expected = 1.5;
  for (int64_t r = 0; r < 5; ++r) {
    double total = 0.0;
    for (int64_t v = 0; v < 21; ++v) total += std::exp(static_cast<double>(logits(r, v)));
    expected += std::log(total) - static_cast<double>(logits(r, targets(r, 0)));
  }
  double loss = 1.5;  // added to, not overwritten
  backend->cross_entropy({logits, targets, 1.0, &loss});
  BOOST_TEST(std::fabs(loss - expected) < 1e-6 * expected);
}

BOOST_AUTO_TEST_CASE(gradient_by_central_differences) {
  constexpr double kScale = 0.25;
  Matrix<double> logits(4, 11);
  logits.fill_random(1, -3.0, 3.0);
  const auto targets = column_of({10, 0, 5, 5});
  const auto loss = [&] {
    Matrix<double> chunk = logits;
    double sum = 0.0;
    backend->cross_entropy({chunk, targets, 1.0, &sum});
    return sum * kScale;
  };
  Matrix<double> gradient = logits;
  double sum = 0.0;
  backend->cross_entropy({gradient, targets, kScale, &sum});
  BOOST_TEST(gradient_error(loss, logits, gradient) < kGradientTolerance);
}

BOOST_AUTO_TEST_CASE(chunks_change_no_bit) {
  Matrix<float> whole(9, 33);
  whole.fill_random(1, -3.0, 3.0);
  Matrix<float> parts = whole;
  const auto targets = column_of({0, 1, 2, 3, 4, 5, 6, 7, 32});
  double whole_loss = 0.0;
  double parts_loss = 0.0;
  backend->cross_entropy({whole, targets, 0.1, &whole_loss});
  for (int64_t row = 0; row < 9; row += 2) {
    const int64_t count = std::min<int64_t>(2, 9 - row);
    backend->cross_entropy({parts.tensor().row_range(row, count),
                            targets.tensor().row_range(row, count), 0.1, &parts_loss});
  }
  BOOST_TEST(parts.same_bits(whole));
  BOOST_TEST(parts_loss == whole_loss);
}

BOOST_AUTO_TEST_CASE(nan_reaches_the_loss_and_bad_targets_are_refused) {
  Matrix<float> logits(1, 4);
  double loss = 0.0;
  backend->cross_entropy({logits, column_of({1}), 1.0, &loss});
  BOOST_TEST(std::isnan(loss));
  for (const int32_t bad : {4, -1}) {
    BOOST_CHECK_THROW(backend->cross_entropy({logits, column_of({bad}), 1.0, &loss}), base::Error);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
