// Attention against naive loops and central differences: grouped heads, windows, batches,
// context-parallel positions.
#include <boost/test/unit_test.hpp>
#include <numeric>

#include "kernels/base/error.h"
#include "tests/kernels/gradient_check.h"

namespace moetune::kernels {
namespace {

struct Case {
  const char* name;
  int64_t batch, heads, kv_heads, d, s, window;
  std::vector<int32_t> positions;  // empty: 0..s-1
};

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
};

const std::vector<Case> kLongCases = {
    {"several blocks", 1, 2, 1, 8, 150, 0, {}},
    {"several blocks with window", 2, 2, 1, 8, 150, 40, {}},
};

template <typename T>
struct Problem {
  Matrix<int32_t> positions;
  Matrix<T> q, k, v, out, lse;
  AttentionArgs args;

  explicit Problem(const Case& c) : Problem(c, positions_of(c)) {}

 private:
  static std::vector<int32_t> positions_of(const Case& c) {
    if (!c.positions.empty()) return c.positions;
    std::vector<int32_t> all(static_cast<size_t>(c.s));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  Problem(const Case& c, const std::vector<int32_t>& at)
      : positions(column_of(at)),
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
             1.0 / std::sqrt(static_cast<double>(c.d))} {
    q.fill_random(1, -3.0, 3.0);
    k.fill_random(2, -3.0, 3.0);
    v.fill_random(3);
  }

 public:
  Problem(const Problem&) = delete;  // args points into the matrices
  Problem& operator=(const Problem&) = delete;
};

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
    const int64_t position = problem.positions(r % tq, 0);
    for (int64_t h = 0; h < c.heads; ++h) {
      const auto score = [&](int64_t key) {
        double total = 0.0;
        for (int64_t i = 0; i < c.d; ++i) {
          total += static_cast<double>(problem.q(r, h * c.d + i)) *
                   static_cast<double>(problem.k(first_key + key, h / group * c.d + i));
        }
        return total * problem.args.scale;
      };
      const int64_t begin = c.window == 0 ? 0 : std::max<int64_t>(0, position - c.window + 1);
      double total = 0.0;
      for (int64_t key = begin; key <= position; ++key) total += std::exp(score(key));
      lse(r, h) = std::log(total);
      for (int64_t key = begin; key <= position; ++key) {
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
  BOOST_TEST(relative_error(problem.lse, lse) < kForwardTolerance<T>);
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

}  // namespace

BOOST_FIXTURE_TEST_SUITE(attention, BackendFixture)

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

BOOST_AUTO_TEST_CASE(a_position_without_its_key_is_refused) {
  Problem<float> problem(kCases[1]);
  problem.positions(0, 0) = 9;
  BOOST_CHECK_THROW(backend->attention(problem.args), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
