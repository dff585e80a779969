// Moving rows: gather, scatter, combine, copy, bias and embedding.
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/kernels/gradient_check.h"

namespace moetune::kernels {

BOOST_FIXTURE_TEST_SUITE(rows, BackendFixture)

BOOST_AUTO_TEST_CASE(gather_divides_slot_numbers_into_tokens) {
  Matrix<float> x(3, 5, 6);
  x.fill_random(1);
  const auto index = column_of({5, 0, 3, 2});
  Matrix<float> out(4, 5);
  backend->gather_rows({x, out, index, 2});
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t c = 0; c < 5; ++c) BOOST_TEST(out(i, c) == x(index(i, 0) / 2, c));
  }
}

BOOST_AUTO_TEST_CASE(gather_moves_integers_too) {
  const auto x = column_of({10, 20, 30});
  Matrix<int32_t> out(2, 1);
  backend->gather_rows({x, out, column_of({2, 0})});
  BOOST_TEST(out(0, 0) == 30);
  BOOST_TEST(out(1, 0) == 10);
}

BOOST_AUTO_TEST_CASE(scatter_is_the_inverse_of_gather) {
  Matrix<double> x(4, 3);
  x.fill_random(1);
  const auto index = column_of({2, 0, 3, 1});
  Matrix<double> gathered(4, 3);
  Matrix<double> back(4, 3, 4);
  backend->gather_rows({x, gathered, index});
  backend->scatter_rows({gathered, back, index});
  BOOST_TEST(back.same_bits(x));
}

BOOST_AUTO_TEST_CASE(rows_that_do_not_exist_are_refused) {
  Matrix<float> x(3, 2);
  Matrix<float> out(1, 2);
  for (const int32_t bad : {3, -1}) {
    const auto index = column_of({bad});
    BOOST_CHECK_THROW(backend->gather_rows({x, out, index}), base::Error);
    BOOST_CHECK_THROW(backend->scatter_rows({out, x, index}), base::Error);
    BOOST_CHECK_THROW(backend->combine_rows({x, out, index, 1}), base::Error);
    BOOST_CHECK_THROW(backend->embedding({x, index, out}), base::Error);
  }
}

BOOST_AUTO_TEST_CASE(empty_lists_do_nothing) {
  const Matrix<float> x(3, 2);
  const Matrix<float> none(0, 2);
  const Matrix<int32_t> index(0, 1);
  backend->gather_rows({x, none, index});
  backend->scatter_rows({none, x, index});
  backend->combine_rows({x, none, index, 2});
  backend->embedding({x, index, none});
  backend->copy({none, none});
}

BOOST_AUTO_TEST_CASE(combine_adds_slots_in_order) {
  Matrix<float> x(6, 4);
  Matrix<float> out(3, 4, 5);
  x.fill_random(1);
  out.fill(0.25F);
  const auto position = column_of({5, 1, 0, 4, 2, 3});
  backend->combine_rows({x, out, position, 2});
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t c = 0; c < 4; ++c) {
      const float first = 0.25F + x(position(2 * t, 0), c);
      BOOST_TEST(out(t, c) == first + x(position(2 * t + 1, 0), c));
    }
  }
}

BOOST_AUTO_TEST_CASE(copy_and_accumulate_over_strides) {
  Matrix<float> x(3, 5, 8);
  Matrix<float> y(3, 5, 6);
  x.fill_random(1);
  backend->copy({x, y});
  BOOST_TEST(y.same_bits(x));
  backend->copy({x, y, true});
  BOOST_TEST(y(2, 4) == 2.0F * x(2, 4));
  BOOST_CHECK_THROW(backend->copy({x, Matrix<float>(2, 5)}), base::Error);
}

BOOST_AUTO_TEST_CASE(bias_and_its_gradient) {
  Matrix<double> y(4, 7);
  Matrix<double> bias(1, 7);
  Matrix<double> dy(4, 7);
  Matrix<double> a(4, 3);
  Matrix<double> b(3, 7);
  bias.fill_random(1);
  dy.fill_random(2);
  a.fill_random(3);
  b.fill_random(4);
  const auto loss = [&] {
    y.fill(0.5);
    backend->gemm({a, b, y, false, false, true, bias});
    return weighted_sum(dy, y);
  };
  Matrix<double> dbias(1, 7);
  dbias.fill(0.0);
  backend->bias_backward({dy, dbias});
  BOOST_TEST(gradient_error(loss, bias, dbias) < kGradientTolerance);
  const double before = dbias(0, 3);
  backend->bias_backward({dy, dbias});
  BOOST_TEST(dbias(0, 3) == 2.0 * before);
  BOOST_CHECK_THROW(backend->gemm({a, b, y, false, false, false, Matrix<double>(1, 6)}),
                    base::Error);
}

BOOST_AUTO_TEST_CASE(embedding_and_its_gradient) {
  Matrix<double> table(5, 3);
  const auto tokens = column_of({4, 0, 4, 2});
  Matrix<double> out(4, 3);
  Matrix<double> dout(4, 3);
  table.fill_random(1);
  dout.fill_random(2);
  const auto loss = [&] {
    backend->embedding({table, tokens, out});
    return weighted_sum(dout, out);
  };
  loss();
  BOOST_TEST(out(2, 1) == table(4, 1));
  Matrix<double> dtable(5, 3);
  dtable.fill(0.0);
  backend->embedding_backward({dtable, tokens, dout});
  BOOST_TEST(gradient_error(loss, table, dtable) < kGradientTolerance);
}

// The shards' outputs add up to the whole table's, each token's row coming from one of them.
template <typename T>
void check_shards(Backend& backend) {
  constexpr int64_t kVocabulary = 7;
  constexpr int64_t kCols = 3;
  const auto tokens = column_of({4, 0, 6, 4, 2, 3});
  const int64_t num_tokens = tokens.rows();
  Matrix<T> table(kVocabulary, kCols, 5);
  Matrix<T> dout(num_tokens, kCols, 4);
  table.fill_random(1);
  dout.fill_random(2);
  Matrix<T> whole(kVocabulary, kCols);
  whole.fill(T{0.5});
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t c = 0; c < kCols; ++c) whole(tokens(t, 0), c) += dout(t, c);
  }
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 3}, {3, 2}, {5, 2}}) {
    Matrix<T> out(num_tokens, kCols, 6);
    backend.embedding({table.tensor().row_range(first, count), tokens, out, first, kVocabulary});
    for (int64_t t = 0; t < num_tokens; ++t) {
      const bool is_here = tokens(t, 0) >= first && tokens(t, 0) < first + count;
      for (int64_t c = 0; c < kCols; ++c) {
        BOOST_TEST(out(t, c) == (is_here ? table(tokens(t, 0), c) : T{0}));
      }
    }
    Matrix<T> dtable(count, kCols, 4);
    dtable.fill(T{0.5});
    backend.embedding_backward({dtable, tokens, dout, first, kVocabulary});
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < kCols; ++c) BOOST_TEST(dtable(r, c) == whole(first + r, c));
    }
  }
}

BOOST_AUTO_TEST_CASE(embedding_of_a_shard_leaves_the_others_tokens_alone) {
  check_shards<float>(*backend);
  check_shards<double>(*backend);
}

BOOST_AUTO_TEST_CASE(shards_and_tokens_that_the_vocabulary_does_not_have_are_refused) {
  const Matrix<float> table(3, 2);
  const Matrix<float> rows(1, 2);
  const auto refuses = [&](int32_t token, int64_t first_row, int64_t vocabulary) {
    const auto tokens = column_of({token});
    BOOST_CHECK_THROW(backend->embedding({table, tokens, rows, first_row, vocabulary}),
                      base::Error);
    BOOST_CHECK_THROW(backend->embedding_backward({table, tokens, rows, first_row, vocabulary}),
                      base::Error);
  };
  refuses(6, 3, 6);
  refuses(-1, 3, 6);
  refuses(3, 4, 6);
  refuses(3, -1, 6);
  refuses(3, 3, 0);  // a table that is the whole vocabulary begins at 0
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
