// Cross-entropy: the loss, its gradient in place, and chunks that change no bit.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <limits>

#include "kernels/base/error.h"
#include "tests/kernels/gradient_check.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(cross_entropy, BackendFixture)

namespace {

constexpr int64_t kRows = 5;
constexpr int64_t kVocabulary = 21;
constexpr int64_t kCuts[] = {0, 8, 9, 21};
constexpr int64_t kNumShards = 3;
const std::vector<int32_t> kTargets = {0, 20, 8, 7, 9};

// The second row is masked over the whole first shard.
template <typename T>
Matrix<T> logits_of_shards() {
  Matrix<T> logits(kRows, kVocabulary, 24);
  logits.fill_random(1, -5.0, 5.0);
  for (int64_t c = 0; c < kCuts[1]; ++c) logits(1, c) = -std::numeric_limits<T>::infinity();
  return logits;
}

template <typename T>
Tensor shard_of(const Matrix<T>& logits, int64_t shard) {
  return logits.tensor().columns(kCuts[shard], kCuts[shard + 1] - kCuts[shard]);
}

// Each shard's statistics, as the ranks gather them.
template <typename T>
Matrix<T> stats_of_shards(Backend& backend, const Matrix<T>& logits,
                          const Matrix<int32_t>& targets) {
  Matrix<T> stats(kNumShards * kRows, 3, 4);
  for (int64_t shard = 0; shard < kNumShards; ++shard) {
    backend.cross_entropy_stats({shard_of(logits, shard), targets,
                                 stats.tensor().row_range(shard * kRows, kRows), kCuts[shard]});
  }
  return stats;
}

template <typename T>
void check_stats(Backend& backend) {
  const auto logits = logits_of_shards<T>();
  const auto stats = stats_of_shards(backend, logits, column_of(kTargets));
  for (int64_t shard = 0; shard < kNumShards; ++shard) {
    for (int64_t r = 0; r < kRows; ++r) {
      const int64_t row = shard * kRows + r;
      T largest = logits(r, kCuts[shard]);
      for (int64_t c = kCuts[shard]; c < kCuts[shard + 1]; ++c) {
        largest = std::max(largest, logits(r, c));
      }
      double total = 0.0;
      for (int64_t c = kCuts[shard]; c < kCuts[shard + 1] && std::isfinite(largest); ++c) {
        total += std::exp(static_cast<double>(logits(r, c)) - static_cast<double>(largest));
      }
      const int64_t target = kTargets[static_cast<size_t>(r)];
      const bool is_here = target >= kCuts[shard] && target < kCuts[shard + 1];
      BOOST_TEST(stats(row, 0) == largest);
      BOOST_TEST(std::fabs(static_cast<double>(stats(row, 1)) - total) <=
                 kForwardTolerance<T> * total);
      BOOST_TEST(stats(row, 2) ==
                 (is_here ? logits(r, target) : -std::numeric_limits<T>::infinity()));
    }
  }
}

template <typename T>
void check_shards(Backend& backend) {
  constexpr double kScale = 0.25;
  auto logits = logits_of_shards<T>();
  Matrix<double> expected(kRows, kVocabulary);
  double expected_loss[kNumShards] = {};
  for (int64_t r = 0; r < kRows; ++r) {
    const int64_t target = kTargets[static_cast<size_t>(r)];
    double total = 0.0;
    for (int64_t c = 0; c < kVocabulary; ++c) total += std::exp(static_cast<double>(logits(r, c)));
    for (int64_t c = 0; c < kVocabulary; ++c) {
      const double prob = std::exp(static_cast<double>(logits(r, c))) / total;
      expected(r, c) = kScale * (prob - (c == target ? 1.0 : 0.0));
    }
    const auto owner = std::upper_bound(kCuts, kCuts + kNumShards, target) - kCuts - 1;
    expected_loss[owner] += std::log(total) - static_cast<double>(logits(r, target));
  }
  const auto targets = column_of(kTargets);
  const auto stats = stats_of_shards(backend, logits, targets);
  for (int64_t shard = 0; shard < kNumShards; ++shard) {
    double loss = 1.5;  // added to
    backend.cross_entropy({shard_of(logits, shard), targets, kScale, &loss, stats, kCuts[shard]});
    BOOST_TEST(std::fabs(loss - 1.5 - expected_loss[shard]) <= 1e-6 * expected_loss[shard]);
  }
  BOOST_TEST(relative_error(logits, expected) < kForwardTolerance<T>);
}

}  // namespace

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

BOOST_AUTO_TEST_CASE(stats_of_a_shard_equal_naive_loops) {
  check_stats<float>(*backend);
  check_stats<double>(*backend);
}

BOOST_AUTO_TEST_CASE(shards_together_are_the_softmax_over_all) {
  check_shards<float>(*backend);
  check_shards<double>(*backend);
}

BOOST_AUTO_TEST_CASE(a_shard_without_columns_has_no_share) {
  Matrix<float> stats(2, 3);
  backend->cross_entropy_stats({Matrix<float>(2, 0), column_of({1, 2}), stats, 7});
  for (int64_t r = 0; r < 2; ++r) {
    BOOST_TEST(stats(r, 0) == -INFINITY);
    BOOST_TEST(stats(r, 1) == 0.0F);
    BOOST_TEST(stats(r, 2) == -INFINITY);
  }
}

BOOST_AUTO_TEST_CASE(nan_of_one_shard_reaches_the_others) {
  auto logits = logits_of_shards<float>();
  logits(2, 20) = NAN;
  const auto targets = column_of(kTargets);
  const auto stats = stats_of_shards(*backend, logits, targets);
  double loss = 0.0;  // of a shard that has the row's target, but not the NaN
  backend->cross_entropy({shard_of(logits, 1), targets, 1.0, &loss, stats, kCuts[1]});
  BOOST_TEST(std::isnan(loss));
  BOOST_TEST(std::isnan(logits(2, 8)));
}

BOOST_AUTO_TEST_CASE(a_target_that_no_shard_has_shows) {
  auto logits = logits_of_shards<float>();
  auto targets = column_of(kTargets);
  targets(3, 0) = 21;
  const auto stats = stats_of_shards(*backend, logits, targets);
  for (int64_t shard = 0; shard < kNumShards; ++shard) {
    double loss = 0.0;
    backend->cross_entropy({shard_of(logits, shard), targets, 1.0, &loss, stats, kCuts[shard]});
    BOOST_TEST(loss == INFINITY);
  }
  targets(3, 0) = -1;
  BOOST_CHECK_THROW(stats_of_shards(*backend, logits, targets), base::Error);
}

BOOST_AUTO_TEST_CASE(stats_of_other_shapes_are_refused) {
  Matrix<float> logits(2, 4);
  logits.fill(0.0F);
  const auto targets = column_of({1, 2});
  double loss = 0.0;
  for (const auto& stats : {Matrix<float>(3, 3), Matrix<float>(4, 2)}) {
    BOOST_CHECK_THROW(backend->cross_entropy({logits, targets, 1.0, &loss, stats}), base::Error);
    BOOST_CHECK_THROW(backend->cross_entropy_stats({logits, targets, stats}), base::Error);
  }
  BOOST_CHECK_THROW(backend->cross_entropy({logits, targets, 1.0, &loss, Matrix<double>(4, 3)}),
                    base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
