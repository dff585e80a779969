// The plain attention of the device against the CPU: grouped heads, windows, batches,
// context-parallel positions, head dims up to 256, packed and scalar rows.
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/cuda/element_matrix.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(cuda_attention, BackendFixture)

namespace {

struct Case {
  const char* name;
  int64_t batch, heads, kv_heads, d, s, window;
  int64_t pad;                              // of every row; not divisible by 8: scalar reads
  std::vector<int32_t> positions;           // empty: 0..s-1
  std::vector<int32_t> key_positions = {};  // empty: 0..s-1
};

std::vector<int32_t> range_of(std::initializer_list<std::pair<int32_t, int32_t>> runs) {
  std::vector<int32_t> positions;
  for (const auto& [begin, end] : runs) {
    for (int32_t p = begin; p < end; ++p) positions.push_back(p);
  }
  return positions;
}

// Every n-th of them.
std::vector<int32_t> thinned(const std::vector<int32_t>& positions, size_t n) {
  std::vector<int32_t> some;
  for (size_t i = 0; i < positions.size(); i += n) some.push_back(positions[i]);
  return some;
}

const std::vector<Case> kCases = {
    {"one token", 1, 1, 1, 8, 1, 0, 0, {}},
    {"plain", 2, 2, 2, 64, 70, 0, 0, {}},
    {"scalar reads", 1, 2, 1, 40, 33, 0, 3, {}},
    {"odd heads", 2, 2, 2, 5, 40, 0, 0, {}},
    {"heads that are not whole packs", 1, 4, 2, 4, 40, 0, 0, {}},
    {"wide odd heads", 1, 1, 1, 131, 34, 0, 0, {}},
    {"grouped", 1, 6, 2, 32, 65, 0, 8, {}},
    {"widest heads", 1, 1, 1, 256, 40, 0, 0, {}},
    {"window", 1, 2, 1, 72, 101, 7, 8, {}},
    {"window of one", 1, 2, 1, 8, 40, 1, 0, {}},
    {"window of several tiles", 2, 1, 1, 24, 150, 70, 0, {}},
    {"window beyond the sequence", 1, 2, 1, 16, 35, 99, 0, {}},
    {"zig-zag shard", 2, 2, 1, 16, 160, 0, 0, range_of({{0, 40}, {120, 160}})},
    {"zig-zag shard with window", 1, 2, 1, 16, 160, 20, 0, range_of({{40, 80}, {90, 120}})},
    {"any order", 1, 2, 2, 8, 6, 0, 1, {5, 0, 3, 3}},
    // Rows and whole tiles of rows that see no key, and keys that no row sees.
    {"another rank's keys", 2, 4, 2, 16, 80, 0, 0, range_of({{40, 120}}),
     range_of({{0, 40}, {120, 160}})},
    {"another rank's keys with window", 1, 2, 1, 16, 80, 30, 8, range_of({{40, 120}}),
     range_of({{0, 40}, {120, 160}})},
    {"keys with gaps", 1, 2, 2, 8, 40, 0, 1, range_of({{0, 3}, {60, 100}, {205, 207}}),
     thinned(range_of({{2, 202}}), 5)},
    {"keys with gaps and window", 2, 2, 1, 24, 70, 9, 0, range_of({{0, 70}, {200, 230}}),
     thinned(range_of({{10, 220}}), 3)},
    {"keys that come later", 1, 2, 2, 8, 40, 0, 0, range_of({{0, 40}}), range_of({{40, 80}})},
};

std::vector<int32_t> positions_of(const Case& c) {
  if (!c.positions.empty()) return c.positions;
  return range_of({{0, static_cast<int32_t>(c.s)}});
}

// The CPU's part of a case; values can be held by T.
template <typename T>
struct Expected {
  Matrix<int32_t> positions, key_positions;
  Matrix<float> q, k, v, out, lse;
  AttentionArgs args;

  explicit Expected(const Case& c)
      : positions(column_of(positions_of(c))),
        key_positions(column_of(c.key_positions)),
        q(random_values<T>(c.batch * positions.rows(), c.heads * c.d, 1, -2.0, 2.0)),
        k(random_values<T>(c.batch * c.s, c.kv_heads * c.d, 2, -2.0, 2.0)),
        v(random_values<T>(c.batch * c.s, c.kv_heads * c.d, 3)),
        out(q.rows(), q.cols()),
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
             key_positions} {}

  Expected(const Expected&) = delete;  // args points into the matrices
  Expected& operator=(const Expected&) = delete;
};

// The same matrices on the device, in its type; `args` is complete but for the outputs.
template <typename T>
struct Inputs {
  Matrix<T> q, k, v;
  OnDevice on;
  AttentionArgs args;

  Inputs(const Expected<T>& from, int64_t pad)
      : q(narrowed<T>(from.q, from.q.cols() + pad)),
        k(narrowed<T>(from.k, from.k.cols() + pad)),
        v(narrowed<T>(from.v, from.v.cols() + pad)),
        args(from.args) {
    args.q = on(q);
    args.k = on(k);
    args.v = on(v);
    args.positions = on(from.positions);
    args.key_positions = on(from.key_positions);
  }

  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;
};

template <typename T>
void check_forward(Backend& cpu, const Case& c) {
  Expected<T> expected(c);
  cpu.attention(expected.args);
  Inputs<T> inputs(expected, c.pad);
  Matrix<T> out(expected.out.rows(), expected.out.cols(), expected.out.cols() + 1);
  Matrix<float> lse(expected.lse.rows(), c.heads, c.heads + 2);
  inputs.args.out = inputs.on(out);
  inputs.args.lse = inputs.on(lse);
  cuda::attention(nullptr, inputs.args);
  inputs.on.fetch(out);
  inputs.on.fetch(lse);
  BOOST_TEST(has_clean_padding(out));
  BOOST_TEST(error_of(out, expected.out) < kElementTolerance<T>);
  // -infinity, where no key is seen, has no distance.
  for (int64_t r = 0; r < lse.rows(); ++r) {
    for (int64_t h = 0; h < lse.cols(); ++h) {
      if (std::isfinite(expected.lse(r, h))) continue;
      BOOST_TEST(lse(r, h) == expected.lse(r, h));
      lse(r, h) = expected.lse(r, h) = 0.0F;
    }
  }
  BOOST_TEST(relative_error(lse, expected.lse) < kElementTolerance<float>);
}

// A gradient that is zero in exact arithmetic (one visible key) is compared by size, not ratio.
template <typename T>
void check_gradient(const char* name, const Matrix<T>& result, const Matrix<float>& expected) {
  BOOST_TEST_CONTEXT(name) {
    const double size = std::sqrt(weighted_sum(expected, expected));
    if (size < 1e-4) {
      const auto values = widened(result);
      BOOST_TEST(std::sqrt(weighted_sum(values, values)) < 1e-4);
    } else {
      BOOST_TEST(error_of(result, expected) < kElementTolerance<T>);
    }
  }
}

// With `is_part` as in a ring: the lse is that of more keys than are here, and gradients are added
// to what is there.
template <typename T>
void check_backward(Backend& cpu, const Case& c, bool is_part) {
  Expected<T> expected(c);
  cpu.attention(expected.args);
  for (float& lse : expected.lse.data()) lse += is_part ? 0.5F : 0.0F;
  // Both sides get the same saved output, of which the delta of a row is the sum.
  expected.out = widened(narrowed<T>(expected.out));
  expected.args.out = expected.out;
  const auto dout = random_values<T>(expected.out.rows(), expected.out.cols(), 4);
  auto dq = random_values<T>(expected.q.rows(), expected.q.cols(), 5);
  auto dk = random_values<T>(expected.k.rows(), expected.k.cols(), 6);
  auto dv = random_values<T>(expected.v.rows(), expected.v.cols(), 7);
  auto dq_at = narrowed<T>(dq, dq.cols() + 1);
  auto dk_at = narrowed<T>(dk, dk.cols() + 2);
  auto dv_at = narrowed<T>(dv, dv.cols() + 3);
  cpu.attention_backward({expected.args, dout, dq, dk, dv, is_part});

  Inputs<T> inputs(expected, c.pad);
  const auto out_at = narrowed<T>(expected.out, expected.out.cols() + c.pad);
  const auto dout_at = narrowed<T>(dout, dout.cols() + c.pad);
  OnDevice& on = inputs.on;
  inputs.args.out = on(out_at);
  inputs.args.lse = on(expected.lse);
  cuda::attention_backward(nullptr,
                           {inputs.args, on(dout_at), on(dq_at), on(dk_at), on(dv_at), is_part});
  for (auto* result : {&dq_at, &dk_at, &dv_at}) {
    on.fetch(*result);
    BOOST_TEST(has_clean_padding(*result));
  }
  check_gradient("dq", dq_at, dq);
  check_gradient("dk", dk_at, dk);
  check_gradient("dv", dv_at, dv);
}

}  // namespace

BOOST_AUTO_TEST_CASE(forward_equals_the_cpu) {
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.name) {
      check_forward<float>(*backend, c);
      check_forward<Bf16>(*backend, c);
    }
  }
}

BOOST_AUTO_TEST_CASE(backward_equals_the_cpu) {
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.name) {
      check_backward<float>(*backend, c, false);
      check_backward<Bf16>(*backend, c, false);
    }
  }
}

BOOST_AUTO_TEST_CASE(backward_of_a_part_equals_the_cpu) {
  for (const Case& c : kCases) {
    BOOST_TEST_CONTEXT(c.name) {
      check_backward<float>(*backend, c, true);
      check_backward<Bf16>(*backend, c, true);
    }
  }
}

BOOST_AUTO_TEST_CASE(large_scores_stay_finite) {
  Expected<float> problem(kCases[1]);
  problem.q.fill(60.0F);
  problem.k.fill(60.0F);
  Inputs<float> inputs(problem, 0);
  inputs.args.out = inputs.on(problem.out);
  inputs.args.lse = inputs.on(problem.lse);
  cuda::attention(nullptr, inputs.args);
  inputs.on.fetch(problem.out);
  BOOST_TEST(num_nan(problem.out) == 0);
}

BOOST_AUTO_TEST_CASE(nan_shows_from_its_key_on) {
  const Case c{"", 1, 1, 1, 8, 50, 0, 0, {}};
  Expected<float> problem(c);
  problem.k(20, 3) = kNan;
  Inputs<float> inputs(problem, 0);
  OnDevice& on = inputs.on;
  inputs.args.out = on(problem.out);
  inputs.args.lse = on(problem.lse);
  cuda::attention(nullptr, inputs.args);
  on.fetch(problem.out);
  on.fetch(problem.lse);
  BOOST_TEST(num_nan(problem.lse) == 30);
  BOOST_TEST(num_nan(problem.out) == 30 * 8);
  Matrix<float> dout(50, 8);
  dout.fill(1.0F);
  Matrix<float> dq(50, 8);
  Matrix<float> dk(50, 8);
  Matrix<float> dv(50, 8);
  cuda::attention_backward(nullptr, {inputs.args, on(dout), on(dq), on(dk), on(dv)});
  on.fetch(dq);
  on.fetch(dk);
  BOOST_TEST(num_nan(dq) >= 30 * 8);
  BOOST_TEST(num_nan(dk) == 50 * 8);  // every key is seen by a query that is NaN
}

BOOST_AUTO_TEST_CASE(keys_that_no_query_sees_have_no_gradient) {
  const Case c{"", 1, 1, 1, 8, 80, 0, 0, {0, 1}};
  const Expected<float> problem(c);
  backend->attention(problem.args);
  Inputs<float> inputs(problem, 0);
  OnDevice& on = inputs.on;
  inputs.args.out = on(problem.out);
  inputs.args.lse = on(problem.lse);
  const auto dout = random_values<float>(2, 8, 4);
  Matrix<float> dq(2, 8);
  Matrix<float> dk(80, 8);
  Matrix<float> dv(80, 8);
  cuda::attention_backward(nullptr, {inputs.args, on(dout), on(dq), on(dk), on(dv)});
  on.fetch(dk);
  on.fetch(dv);
  for (int64_t r = 2; r < 80; ++r) {
    BOOST_TEST(dk(r, 0) == 0.0F);
    BOOST_TEST(dv(r, 7) == 0.0F);
  }
}

BOOST_AUTO_TEST_CASE(head_dims_that_do_not_fit_are_refused) {
  for (const int64_t d : {0, 257}) {
    const Case c{"", 1, 1, 1, d, 3, 0, 0, {}};
    const Expected<float> problem(c);
    BOOST_CHECK_THROW(cuda::attention(nullptr, problem.args), base::Error);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
