// Softmax cross-entropy against the CPU: packed and scalar rows, rows shorter and longer than a
// block, masked and broken logits, and a loss that does not depend on the chunks.
#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/cuda/element_matrix.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(cuda_cross_entropy, BackendFixture)

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

// Two shards of unequal width, statistics first, as ranks do it.
template <typename T>
void check_shards(Backend& cpu, const Case& c, double grad_scale) {
  const int64_t cut = (c.vocabulary + 1) / 3;
  const auto values = random_values<T>(c.rows, c.vocabulary, 1, -6.0, 6.0);
  auto expected = values;
  auto logits = narrowed<T>(values, c.ld);
  const auto targets = targets_for(c.rows, c.vocabulary);
  Matrix<float> expected_stats(2 * c.rows, 3);
  Matrix<float> stats(2 * c.rows, 3, 5);
  OnDevice on;
  struct Shard {
    int64_t first, count, row;  // the first row of its statistics
  };
  const Shard shards[] = {{0, cut, 0}, {cut, c.vocabulary - cut, c.rows}};
  for (const auto& [first, count, row] : shards) {
    cpu.cross_entropy_stats({expected.tensor().columns(first, count), targets,
                             expected_stats.tensor().row_range(row, c.rows), first});
    cuda::cross_entropy_stats(nullptr, {on(logits).columns(first, count), on(targets),
                                        on(stats).row_range(row, c.rows), first});
  }
  on.fetch(stats);
  BOOST_TEST(has_clean_padding(stats));
  for (int64_t r = 0; r < 2 * c.rows; ++r) {
    BOOST_TEST(stats(r, 0) == expected_stats(r, 0));
    BOOST_TEST(stats(r, 1) == expected_stats(r, 1), boost::test_tools::tolerance(1e-5F));
    BOOST_TEST(stats(r, 2) == expected_stats(r, 2));
  }
  for (const auto& [first, count, row] : shards) {
    double expected_loss = 2.0;
    auto loss = number(2.0);
    OnDevice memory;  // knows matrices by their addresses, which come again
    cpu.cross_entropy({expected.tensor().columns(first, count), targets, grad_scale, &expected_loss,
                       expected_stats, first});
    cuda::cross_entropy(nullptr, {on(logits).columns(first, count), on(targets), grad_scale,
                                  number_on(memory, loss), on(stats), first});
    memory.fetch(loss);
    BOOST_TEST(loss(0, 0) == expected_loss, boost::test_tools::tolerance(1e-6));
  }
  on.fetch(logits);
  BOOST_TEST(error_of(logits, expected) < kElementTolerance<T>);
  BOOST_TEST(has_clean_padding(logits));
}

}  // namespace

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

BOOST_AUTO_TEST_CASE(shards_equal_the_cpu) {
  for (const Case& c : kCases) {
    if (c.rows == 0) continue;
    BOOST_TEST_CONTEXT(c.rows << " rows of " << c.vocabulary) {
      check_shards<float>(*backend, c, 0.125);
      check_shards<Bf16>(*backend, c, 0.125);
    }
  }
}

// A row that one shard masks wholly is the other's alone; a NaN is everybody's; a target that
// nobody has shows.
BOOST_AUTO_TEST_CASE(shards_that_are_masked_or_broken) {
  auto logits = random_values<float>(3, 6, 1);
  for (int64_t i = 0; i < 3; ++i) logits(0, i) = -INFINITY;
  logits(1, 5) = kNan;
  const auto targets = column_of({4, 0, 6});
  Matrix<float> stats(6, 3);
  OnDevice on;
  for (const int64_t shard : {0, 1}) {
    cuda::cross_entropy_stats(nullptr, {on(logits).columns(3 * shard, 3), on(targets),
                                        on(stats).row_range(3 * shard, 3), 3 * shard});
  }
  on.fetch(stats);
  BOOST_TEST(stats(0, 0) == -INFINITY);
  BOOST_TEST(stats(0, 1) == 0.0F);
  BOOST_TEST(stats(0, 2) == -INFINITY);
  const auto loss_of_row = [&](int64_t row, int64_t shard) {
    auto loss = number(0.0);
    Matrix<float> of_row(2, 3);
    for (int64_t s = 0; s < 2; ++s) {
      for (int64_t i = 0; i < 3; ++i) of_row(s, i) = stats(3 * s + row, i);
    }
    OnDevice memory;
    cuda::cross_entropy(
        nullptr, {on(logits).columns(3 * shard, 3).row_range(row, 1), on(targets).row_range(row, 1),
                  1.0, number_on(memory, loss), memory(of_row), 3 * shard});
    memory.fetch(loss);
    return loss(0, 0);
  };
  const double expected = std::log(std::exp(static_cast<double>(logits(0, 3))) +
                                   std::exp(static_cast<double>(logits(0, 4))) +
                                   std::exp(static_cast<double>(logits(0, 5)))) -
                          static_cast<double>(logits(0, 4));
  BOOST_TEST(loss_of_row(0, 0) == 0.0);
  BOOST_TEST(loss_of_row(0, 1) == expected, boost::test_tools::tolerance(1e-6));
  BOOST_TEST(std::isnan(loss_of_row(1, 0)));
  BOOST_TEST(loss_of_row(2, 0) == INFINITY);
  BOOST_TEST(loss_of_row(2, 1) == INFINITY);
  on.fetch(logits);
  BOOST_TEST(logits(0, 0) == 0.0F);
  BOOST_TEST(num_nan(logits) == 4);  // the broken row's first shard, and the NaN itself
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
