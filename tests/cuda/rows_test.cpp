// Gather, scatter, combine and the embedding pair on the device against the CPU operations.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <random>

#include "tests/cuda/cuda_fixture.h"

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(cuda_rows)

namespace {

struct Case {
  int64_t rows;
  int64_t cols;
  int64_t padding;
};

const Case kCases[] = {{0, 8, 0},   {1, 1, 0},   {7, 5, 3},     {6, 6, 2},    {12, 64, 8},
                       {5, 200, 0}, {40, 24, 0}, {3, 2064, 16}, {2, 9001, 0}, {300, 16, 0}};

Matrix<int32_t> shuffled(int64_t count, uint64_t seed) {
  Matrix<int32_t> list(count, 1);
  std::iota(list.data().begin(), list.data().end(), 0);
  std::shuffle(list.data().begin(), list.data().end(), std::mt19937_64(seed));
  return list;
}

template <typename T>
void check_moves(Backend& cpu, const Case& c) {
  constexpr int64_t kTopk = 3;
  const auto x = random_matrix<T>(c.rows, c.cols, 1, c.cols + c.padding);
  const auto slots = shuffled(c.rows * kTopk, 2);
  Matrix<T> gathered(c.rows * kTopk, c.cols, c.cols + 2 * c.padding);
  Matrix<float> expected(c.rows * kTopk, c.cols);
  cpu.gather_rows({widened(x), expected, slots, kTopk});
  OnDevice on;
  cuda::gather_rows(nullptr, {on(x), on(gathered), on(slots), kTopk});
  on.fetch(gathered);
  BOOST_TEST(widened(gathered).same_bits(expected));
  BOOST_TEST(has_clean_padding(gathered));
  Matrix<int32_t> position(slots.rows(), 1);
  for (int64_t i = 0; i < slots.rows(); ++i) position(slots(i, 0), 0) = static_cast<int32_t>(i);
  Matrix<T> spread(c.rows * kTopk, c.cols, c.cols + 2 * c.padding);
  cuda::gather_rows(nullptr, {on(x), on(spread), on(slots), kTopk, on(position)});
  on.fetch(spread);
  BOOST_TEST(widened(spread).same_bits(expected));
  BOOST_TEST(has_clean_padding(spread));

  Matrix<T> scattered(c.rows * kTopk, c.cols);
  Matrix<float> expected_scattered(c.rows * kTopk, c.cols);
  cpu.scatter_rows({expected, expected_scattered, slots});
  cuda::scatter_rows(nullptr, {on(gathered), on(scattered), on(slots)});
  on.fetch(scattered);
  BOOST_TEST(widened(scattered).same_bits(expected_scattered));

  auto out = random_matrix<T>(c.rows, c.cols, 3, c.cols + c.padding);
  auto expected_out = widened(out);
  cpu.combine_rows({expected, expected_out, slots, kTopk});
  cuda::combine_rows(nullptr, {on(gathered), on(out), on(slots), kTopk});
  on.fetch(out);
  BOOST_TEST(relative_error(widened(out), expected_out) < kElementTolerance<T>);
  BOOST_TEST(has_clean_padding(out));
}

template <typename T>
void check_embedding(Backend& cpu, const Case& c, int64_t num_tokens) {
  const auto table = random_matrix<T>(c.rows, c.cols, 1, c.cols + c.padding);
  Matrix<int32_t> tokens(num_tokens, 1);
  std::mt19937_64 generator(2);
  for (int32_t& token : tokens.data()) {
    // Half of the tokens are the same one, as words of a language are.
    const auto any = static_cast<int32_t>(generator() % static_cast<uint64_t>(c.rows));
    token = generator() % 2 == 0 ? 0 : any;
  }
  Matrix<T> out(num_tokens, c.cols, c.cols + c.padding);
  Matrix<float> expected(num_tokens, c.cols);
  cpu.embedding({widened(table), tokens, expected});
  OnDevice on;
  cuda::embedding(nullptr, {on(table), on(tokens), on(out)});
  on.fetch(out);
  BOOST_TEST(widened(out).same_bits(expected));

  const auto dout = random_matrix<T>(num_tokens, c.cols, 3, c.cols + c.padding);
  auto dtable = random_matrix<float>(c.rows, c.cols, 4, c.cols + c.padding);
  auto expected_dtable = widened(dtable);
  cpu.embedding_backward({expected_dtable, tokens, widened(dout)});
  cuda::embedding_backward(nullptr, {on(dtable), on(tokens), on(dout)});
  on.fetch(dtable);
  BOOST_TEST(widened(dtable).same_bits(expected_dtable));  // the same order of additions
  BOOST_TEST(has_clean_padding(dtable));
}

// A shard of the rows in the middle of a vocabulary of four times as many.
template <typename T>
void check_shard(Backend& cpu, const Case& c) {
  constexpr int64_t kNumTokens = 37;
  const int64_t first = c.rows;
  const int64_t vocabulary = 4 * c.rows;
  const auto table = random_matrix<T>(c.rows, c.cols, 1, c.cols + c.padding);
  Matrix<int32_t> tokens(kNumTokens, 1);
  for (int64_t t = 0; t < kNumTokens; ++t) {
    tokens(t, 0) = static_cast<int32_t>(t * 5 % vocabulary);
  }
  Matrix<T> out(kNumTokens, c.cols, c.cols + c.padding);
  Matrix<float> expected(kNumTokens, c.cols);
  cpu.embedding({widened(table), tokens, expected, first, vocabulary});
  OnDevice on;
  cuda::embedding(nullptr, {on(table), on(tokens), on(out), first, vocabulary});
  on.fetch(out);
  BOOST_TEST(widened(out).same_bits(expected));
  BOOST_TEST(has_clean_padding(out));

  const auto dout = random_matrix<T>(kNumTokens, c.cols, 3, c.cols + c.padding);
  auto dtable = random_matrix<float>(c.rows, c.cols, 4, c.cols + c.padding);
  auto expected_dtable = widened(dtable);
  cpu.embedding_backward({expected_dtable, tokens, widened(dout), first, vocabulary});
  cuda::embedding_backward(nullptr, {on(dtable), on(tokens), on(dout), first, vocabulary});
  on.fetch(dtable);
  BOOST_TEST(widened(dtable).same_bits(expected_dtable));
  BOOST_TEST(has_clean_padding(dtable));
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(moves_equal_the_cpu, T, ElementTypes) {
  const auto cpu = make_cpu_backend();
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.rows << " x " << c.cols) check_moves<T>(*cpu, c);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(embedding_equals_the_cpu, T, ElementTypes) {
  const auto cpu = make_cpu_backend();
  for (const Case& c : kCases) {
    if (c.rows == 0) continue;
    for (const int64_t num_tokens : {0, 1, 37}) {
      BOOST_TEST_CONTEXT(c.rows << " x " << c.cols << ", " << num_tokens << " tokens") {
        check_embedding<T>(*cpu, c, num_tokens);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(embedding_of_a_shard_equals_the_cpu, T, ElementTypes) {
  const auto cpu = make_cpu_backend();
  for (const Case& c : kCases) {
    if (c.rows == 0) continue;
    BOOST_TEST_CONTEXT(c.rows << " x " << c.cols) check_shard<T>(*cpu, c);
  }
}

// More tokens than a block looks through at a time; few of them different, to keep the fake quick.
BOOST_AUTO_TEST_CASE(embedding_of_a_long_list) {
  const auto cpu = make_cpu_backend();
  const int64_t num_tokens = 4500;
  Matrix<int32_t> tokens(num_tokens, 1);
  for (int64_t t = 0; t < num_tokens; ++t) tokens(t, 0) = t % 900 == 899 ? 1 : 0;
  const auto dout = random_matrix<float>(num_tokens, 2, 1);
  Matrix<float> dtable(3, 2);
  dtable.fill(0.5F);
  auto expected = dtable;
  OnDevice on;
  for (int i = 0; i < 2; ++i) {  // the fake's threads run in rising order, then in falling
    cpu->embedding_backward({expected, tokens, dout});
    cuda::embedding_backward(nullptr, {on(dtable), on(tokens), on(dout)});
  }
  on.fetch(dtable);
  BOOST_TEST(dtable.same_bits(expected));
}

BOOST_AUTO_TEST_CASE(integers_are_moved_too) {
  const auto x = column_of({10, 20, 30});
  Matrix<int32_t> out(2, 1);
  const auto index = column_of({2, 0});
  OnDevice on;
  cuda::gather_rows(nullptr, {on(x), on(out), on(index)});
  on.fetch(out);
  BOOST_TEST(out(0, 0) == 30);
  BOOST_TEST(out(1, 0) == 10);
}

BOOST_AUTO_TEST_CASE(rows_that_do_not_exist_stop_the_kernel) {
  const Matrix<float> x(3, 2);
  const Matrix<float> out(1, 2);
  for (const int32_t bad : {3, -1}) {
    const auto index = column_of({bad});
    OnDevice on;
    BOOST_CHECK_THROW(cuda::gather_rows(nullptr, {on(x), on(out), on(index)}), base::Error);
    BOOST_CHECK_THROW(cuda::scatter_rows(nullptr, {on(out), on(x), on(index)}), base::Error);
    BOOST_CHECK_THROW(cuda::combine_rows(nullptr, {on(x), on(out), on(index), 1}), base::Error);
    BOOST_CHECK_THROW(cuda::embedding(nullptr, {on(x), on(index), on(out)}), base::Error);
    BOOST_CHECK_THROW(cuda::embedding_backward(nullptr, {on(x), on(index), on(out)}), base::Error);
  }
  {
    const auto index = column_of({-1});
    Matrix<int32_t> out_experts(1, 2);
    OnDevice on;
    BOOST_CHECK_THROW(cuda::expand_experts(nullptr, {on(index), on(out_experts), 2, 1}),
                      base::Error);
  }
  for (const int32_t bad : {6, -1}) {
    const auto index = column_of({bad});
    OnDevice on;
    BOOST_CHECK_THROW(cuda::embedding(nullptr, {on(x), on(index), on(out), 3, 6}), base::Error);
    BOOST_CHECK_THROW(cuda::embedding_backward(nullptr, {on(x), on(index), on(out), 3, 6}),
                      base::Error);
  }
  // A table that is the whole vocabulary begins at 0.
  BOOST_CHECK_THROW(cuda::embedding(nullptr, {x, column_of({3}), out, 3}), base::Error);
  BOOST_CHECK_THROW(cuda::embedding_backward(nullptr, {x, column_of({3}), out, 3}), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
