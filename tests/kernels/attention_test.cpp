// Attention against naive loops and central differences: grouped heads, windows, batches,
// context-parallel positions.
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/kernels/gradient_check.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(attention, BackendFixture)

namespace {

struct Case {
  const char* name;
  int64_t batch, heads, kv_heads, d, s, window;
  std::vector<int32_t> positions;           // empty: 0..s-1
  std::vector<int32_t> key_positions = {};  // empty: 0..s-1
};

std::vector<int32_t> run_of(int32_t begin, int32_t end, int32_t step) {
  std::vector<int32_t> positions;
  for (int32_t p = begin; p < end; p += step) positions.push_back(p);
  return positions;
}

const std::vector<Case> kCases = {
    {"one token", 1, 1, 1, 3, 1, 0, {}},
    {"plain", 2, 2, 2, 5, 9, 0, {}},
    {"grouped", 1, 6, 2, 4, 7, 0, {}},
    {"window", 1, 2, 1, 4, 13, 3, {}},
    {"window of one", 1, 2, 1, 4, 5, 1, {}},
    {"window beyond the sequence", 1, 2, 1, 4, 5, 99, {}},
    {"zig-zag first rank", 2, 2, 1, 4, 12, 0, {0, 1, 2, 9, 10, 11}},
    {"zig-zag last rank with window", 2, 2, 1, 4, 12, 4, {3, 4, 5, 6, 7, 8}},
    {"any order", 1, 2, 2, 4, 6, 0, {5, 0, 3, 3}},
    // Rows that see no key among them.
    {"keys with gaps", 2, 4, 2, 4, 5, 0, {0, 1, 2, 3, 5, 8, 9, 13}, {1, 2, 5, 9, 12}},
    {"another rank's keys", 2, 2, 1, 4, 6, 0, {3, 4, 5, 6, 7, 8}, {0, 1, 2, 9, 10, 11}},
    {"another rank's keys with window", 1, 2, 1, 4, 6, 3, {3, 4, 5, 6, 7, 8}, {0, 1, 2, 6, 10, 11}},
    {"keys that come later", 1, 2, 2, 4, 2, 0, {0, 1, 2}, {5, 6}},
    {"keys before the window", 1, 2, 2, 4, 2, 2, {7, 8}, {5, 6}},
};

const std::vector<Case> kLongCases = {
    {"several blocks", 1, 2, 1, 8, 150, 0, {}},
    {"several blocks with window", 2, 2, 1, 8, 150, 40, {}},
    {"several blocks of every third key", 1, 2, 1, 8, 60, 50, run_of(20, 150, 1),
     run_of(0, 180, 3)},
};

template <typename T>
struct Problem {
  Matrix<int32_t> positions, key_positions;
  Matrix<T> q, k, v, out, lse;
  AttentionArgs args;

  explicit Problem(const Case& c) : Problem(c, positions_of(c)) {}

  [[nodiscard]] bool sees(int64_t query, int64_t key) const {
    const int64_t distance =
        int64_t{positions(query, 0)} - (key_positions.rows() > 0 ? key_positions(key, 0) : key);
    return distance >= 0 && (args.window == 0 || distance < args.window);
  }

 private:
  static std::vector<int32_t> positions_of(const Case& c) {
    return c.positions.empty() ? run_of(0, static_cast<int32_t>(c.s), 1) : c.positions;
  }

  Problem(const Case& c, const std::vector<int32_t>& at)
      : positions(column_of(at)),
        key_positions(column_of(c.key_positions)),
        q(c.batch * positions.rows(), c.heads * c.d, c.heads * c.d + 2),
        k(c.batch * c.s, c.kv_heads * c.d, c.kv_heads * c.d + 3),
        v(c.batch * c.s, c.kv_heads * c.d),
        out(q.rows(), q.cols(), q.cols() + 1),
        lse(q.rows(), c.heads),
        args{q,
             k,
             v,
             out,
             lse,
             positions,
             c.batch,
             c.heads,
             c.kv_heads,
             c.window,
             1.0 / std::sqrt(static_cast<double>(c.d)),
             key_positions} {
    q.fill_random(1, -3.0, 3.0);
    k.fill_random(2, -3.0, 3.0);
    v.fill_random(3);
  }

 public:
  Problem(const Problem&) = delete;  // args points into the matrices
  Problem& operator=(const Problem&) = delete;
};

// -infinity, where no key is seen, has no distance.
template <typename T>
void check_lse(Matrix<T> result, Matrix<double> expected) {
  for (int64_t r = 0; r < expected.rows(); ++r) {
    for (int64_t h = 0; h < expected.cols(); ++h) {
      if (std::isfinite(expected(r, h))) continue;
      BOOST_TEST(result(r, h) == -INFINITY);
      result(r, h) = T{0};
      expected(r, h) = 0.0;
    }
  }
  BOOST_TEST(relative_error(result, expected) < kForwardTolerance<T>);
}

template <typename T>
void check_forward(Backend& backend, const Case& c) {
  Problem<T> problem(c);
  const int64_t tq = problem.positions.rows();
  const int64_t group = c.heads / c.kv_heads;
  Matrix<double> expected(problem.q.rows(), problem.q.cols());
  Matrix<double> lse(problem.q.rows(), c.heads);
  expected.fill(0.0);
  for (int64_t r = 0; r < problem.q.rows(); ++r) {
    const int64_t first_key = r / tq * c.s;
    for (int64_t h = 0; h < c.heads; ++h) {
      const auto score = [&](int64_t key) {
        double total = 0.0;
        for (int64_t i = 0; i < c.d; ++i) {
          total += static_cast<double>(problem.q(r, h * c.d + i)) *
                   static_cast<double>(problem.k(first_key + key, h / group * c.d + i));
        }
        return total * problem.args.scale;
      };
      double total = 0.0;
      for (int64_t key = 0; key < c.s; ++key) {
        if (problem.sees(r % tq, key)) total += std::exp(score(key));
      }
      lse(r, h) = std::log(total);
      for (int64_t key = 0; key < c.s; ++key) {
        if (!problem.sees(r % tq, key)) continue;
        for (int64_t i = 0; i < c.d; ++i) {
          expected(r, h * c.d + i) +=
              std::exp(score(key)) / total *
              static_cast<double>(problem.v(first_key + key, h / group * c.d + i));
        }
      }
    }
  }
  backend.attention(problem.args);
  BOOST_TEST(relative_error(problem.out, expected) < kForwardTolerance<T>);
  check_lse(problem.lse, lse);
}

void check_gradients(Backend& backend, const Case& c) {
  Problem<double> problem(c);
  Matrix<double> dout(problem.out.rows(), problem.out.cols());
  dout.fill_random(4);
  const auto loss = [&] {
    backend.attention(problem.args);
    return weighted_sum(dout, problem.out);
  };
  loss();
  Matrix<double> dq(problem.q.rows(), problem.q.cols());
  Matrix<double> dk(problem.k.rows(), problem.k.cols(), problem.k.cols() + 1);
  Matrix<double> dv(problem.v.rows(), problem.v.cols());
  backend.attention_backward({problem.args, dout, dq, dk, dv});
  // One visible key: its probability is 1 whatever q and k are, and both gradients vanish.
  BOOST_TEST(gradient_error(loss, problem.q, dq) < kGradientTolerance);
  BOOST_TEST(gradient_error(loss, problem.k, dk) < kGradientTolerance);
  BOOST_TEST(gradient_error(loss, problem.v, dv) < kGradientTolerance);
}

// Keys `begin`, begin + step, ... of every sequence of a tensor, in memory of their own.
template <typename T>
Matrix<T> keys_of(const Matrix<T>& all, const Case& c, int64_t begin, int64_t step) {
  const int64_t count = (c.s - begin + step - 1) / step;
  Matrix<T> keys(c.batch * count, all.cols());
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t col = 0; col < all.cols(); ++col) {
        keys(b * count + i, col) = all(b * c.s + begin + i * step, col);
      }
    }
  }
  return keys;
}

// The keys come by in three parts, the last first: parts merged are the whole, and gradients from
// the whole's lse and out add up to the whole's.
template <typename T>
void check_ring(Backend& backend, const Case& c) {
  constexpr int64_t kParts = 3;
  Problem<T> whole(c);
  backend.attention(whole.args);
  Matrix<T> dout(whole.out.rows(), whole.out.cols());
  dout.fill_random(4);
  Matrix<T> dq(whole.q.rows(), whole.q.cols());
  Matrix<T> dk(whole.k.rows(), whole.k.cols());
  Matrix<T> dv(whole.v.rows(), whole.v.cols());
  backend.attention_backward({whole.args, dout, dq, dk, dv});

  Problem<T> ring(c);
  ring.lse.fill(-std::numeric_limits<T>::infinity());  // and out is NaN: it must not be read
  Matrix<T> ring_dq(whole.q.rows(), whole.q.cols(), whole.q.cols() + 2);
  for (int64_t part = kParts - 1; part >= 0; --part) {
    const auto k = keys_of(whole.k, c, part, kParts);
    const auto v = keys_of(whole.v, c, part, kParts);
    const auto at =
        column_of(run_of(static_cast<int32_t>(part), static_cast<int32_t>(c.s), kParts));
    Matrix<T> part_out(whole.out.rows(), whole.out.cols(), whole.out.cols() + 3);
    Matrix<T> part_lse(whole.lse.rows(), whole.lse.cols(), whole.lse.cols() + 1);
    AttentionArgs args = ring.args;
    args.k = k;
    args.v = v;
    args.key_positions = at;
    args.out = part_out;
    args.lse = part_lse;
    backend.attention(args);
    backend.attention_merge({ring.out, ring.lse, part_out, part_lse, c.heads});

    args.out = whole.out;
    args.lse = whole.lse;
    Matrix<T> part_dk(k.rows(), k.cols());
    Matrix<T> part_dv(k.rows(), k.cols(), k.cols() + 1);
    const bool is_first = part == kParts - 1;
    if (!is_first) {
      part_dk.fill(T{0});
      part_dv.fill(T{0});
    }
    backend.attention_backward({args, dout, ring_dq, part_dk, part_dv, !is_first});
    BOOST_TEST(relative_error(part_dk, keys_of(dk, c, part, kParts)) < kForwardTolerance<T>);
    BOOST_TEST(relative_error(part_dv, keys_of(dv, c, part, kParts)) < kForwardTolerance<T>);
  }
  BOOST_TEST(relative_error(ring.out, whole.out) < kForwardTolerance<T>);
  BOOST_TEST(relative_error(ring.lse, whole.lse) < kForwardTolerance<T>);
  BOOST_TEST(relative_error(ring_dq, dq) < kForwardTolerance<T>);
}

}  // namespace

BOOST_AUTO_TEST_CASE(equals_naive_loops) {
  for (const auto* cases : {&kCases, &kLongCases}) {
    for (const Case& c : *cases) {
      BOOST_TEST_CONTEXT(c.name) {
        check_forward<float>(*backend, c);
        check_forward<double>(*backend, c);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_by_central_differences) {
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.name) { check_gradients(*backend, c); }
  }
}

BOOST_AUTO_TEST_CASE(gradients_over_blocks_along_one_direction) {
  Problem<double> problem(kLongCases[1]);
  Matrix<double> dout(problem.out.rows(), problem.out.cols());
  dout.fill_random(4);
  backend->attention(problem.args);
  Matrix<double> dq(problem.q.rows(), problem.q.cols());
  Matrix<double> dk(problem.k.rows(), problem.k.cols());
  Matrix<double> dv(problem.v.rows(), problem.v.cols());
  backend->attention_backward({problem.args, dout, dq, dk, dv});
  const auto step = [](Matrix<double>& x, const Matrix<double>& direction, double length) {
    for (int64_t r = 0; r < x.rows(); ++r) {
      for (int64_t c = 0; c < x.cols(); ++c) x(r, c) += length * direction(r, c);
    }
  };
  const auto check = [&](Matrix<double>& x, const Matrix<double>& gradient) {
    Matrix<double> direction(x.rows(), x.cols());
    direction.fill_random(5);
    const auto loss_at = [&](double length) {
      const Matrix<double> kept = x;
      step(x, direction, length);
      backend->attention(problem.args);
      const double loss = weighted_sum(dout, problem.out);
      for (int64_t r = 0; r < x.rows(); ++r) {
        for (int64_t c = 0; c < x.cols(); ++c) x(r, c) = kept(r, c);
      }
      return loss;
    };
    problem.args.q = problem.q;
    problem.args.k = problem.k;
    problem.args.v = problem.v;
    const double numeric = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5;
    const double analytic = weighted_sum(gradient, direction);
    BOOST_TEST(std::fabs(numeric - analytic) < kGradientTolerance * std::fabs(analytic));
  };
  check(problem.q, dq);
  check(problem.k, dk);
  check(problem.v, dv);
}

BOOST_AUTO_TEST_CASE(large_scores_stay_finite) {
  Problem<float> problem(kCases[1]);
  problem.q.fill(60.0F);
  problem.k.fill(60.0F);
  backend->attention(problem.args);
  BOOST_TEST(std::isfinite(weighted_sum(problem.out, problem.out)));
}

BOOST_AUTO_TEST_CASE(parts_of_a_ring_are_the_whole) {
  const Case zig_zag{"zig-zag", 2, 4, 2, 8, 150, 0, run_of(40, 130, 1)};
  for (const Case* c : {&kLongCases[0], &kLongCases[1], &zig_zag}) {
    BOOST_TEST_CONTEXT(c->name) {
      check_ring<float>(*backend, *c);
      check_ring<double>(*backend, *c);
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_are_added_to_what_is_there) {
  Problem<double> problem(kCases[2]);
  backend->attention(problem.args);
  Matrix<double> dout(problem.out.rows(), problem.out.cols());
  dout.fill_random(4);
  Matrix<double> once[3] = {problem.q, problem.k, problem.v};
  backend->attention_backward({problem.args, dout, once[0], once[1], once[2]});
  Matrix<double> twice[3] = {once[0], once[1], once[2]};
  backend->attention_backward({problem.args, dout, twice[0], twice[1], twice[2], true});
  for (int i = 0; i < 3; ++i) {
    Matrix<double> expected = once[i];
    for (int64_t r = 0; r < expected.rows(); ++r) {
      for (int64_t col = 0; col < expected.cols(); ++col) expected(r, col) *= 2.0;
    }
    BOOST_TEST(relative_error(twice[i], expected) < kForwardTolerance<double>);
  }
}

BOOST_AUTO_TEST_CASE(key_positions_that_do_not_rise_or_do_not_fit_are_refused) {
  for (const auto& bad :
       {column_of({0, 2, 2, 3, 4}), column_of({0, 2, 1, 3, 4}), column_of({0, 1, 2, 3})}) {
    Problem<float> problem(kCases[4]);
    problem.args.key_positions = bad;
    BOOST_CHECK_THROW(backend->attention(problem.args), base::Error);
  }
}

BOOST_AUTO_TEST_CASE(a_position_without_its_key_is_refused) {
  Problem<float> problem(kCases[1]);
  problem.positions(0, 0) = 9;
  BOOST_CHECK_THROW(backend->attention(problem.args), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
