// The CUDA backend's attention on shapes that the library takes, forward and backward: whole
// sequences, zig-zag shards of context parallelism, windows. Against the CPU operation, and where
// that would take minutes against the own plain kernel in fp32.
#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <functional>

#include "tests/gpu/gpu_fixture.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(gpu_backend_attention, GpuFixture)

namespace {

struct AttentionCase {
  int64_t batch, length, heads, kv_heads, width, window;
  int num_shards = 1, shard = 0;  ///< context parallelism
  bool is_certain = true;         ///< that the library takes it on compute capability 9.0
  bool is_anti_aligned = false;   ///< every query points away from all keys

  // Shard i of n holds chunks i and 2n - 1 - i of 2n.
  [[nodiscard]] std::vector<int32_t> positions() const {
    const int64_t chunk = length / (2 * num_shards);
    std::vector<int32_t> all;
    for (const int64_t at : {int64_t{shard}, int64_t{2 * num_shards - 1 - shard}}) {
      for (int64_t i = 0; i < chunk; ++i) all.push_back(static_cast<int32_t>(at * chunk + i));
    }
    return all;
  }
};

std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << "batch " << c.batch << " keys " << c.length << " heads " << c.heads << "/"
             << c.kv_heads << " width " << c.width << " window " << c.window << " shard " << c.shard
             << " of " << c.num_shards << (c.is_anti_aligned ? ", anti-aligned" : "");
}

const AttentionCase kCases[] = {
    {1, 256, 4, 2, 64, 0},
    {2, 384, 4, 1, 128, 0},
    {2, 384, 3, 3, 64, 0},
    {1, 320, 2, 2, 128, 100},
    {1, 512, 8, 2, 64, 128},
    // The first shard has the first and the last chunk, the last shard those in the middle: one
    // run of positions that ends before the keys do.
    {1, 512, 4, 2, 64, 0, 2, 0},
    {2, 512, 4, 2, 128, 0, 2, 1},
    {2, 768, 4, 1, 128, 0, 3, 0},
    {1, 768, 4, 2, 64, 0, 3, 1},
    // Not in the library's published tables.
    {1, 200, 2, 1, 256, 0, 1, 0, false},
    {1, 512, 4, 2, 128, 100, 2, 0, false},
    {2, 512, 4, 2, 64, 300, 2, 1, false},
};

// Scores of about -110 everywhere: exp() of a row's negative log-sum-exp overflows in f32. Versions
// of cuDNN's backward pass on Hopper gave NaN where the keys then were 64 more than a multiple of
// its tiles of 128. Here 192 keys: of a whole sequence, of a shard in the middle, of a shard's
// first run.
const AttentionCase kAntiAlignedCases[] = {{1, 192, 4, 2, 64, 0, 1, 0, true, true},
                                           {2, 192, 2, 2, 128, 0, 1, 0, true, true},
                                           {1, 256, 4, 2, 64, 0, 2, 1, true, true},
                                           {1, 256, 2, 2, 128, 0, 2, 1, true, true},
                                           {1, 576, 4, 2, 64, 0, 3, 1, true, true}};
constexpr double kOverflowsBelow = -88.7;
constexpr double kAntiAlignedScore = -112.0;

const AttentionCase kLongCases[] = {
    {1, 16384, 2, 1, 128, 0}, {1, 16384, 2, 1, 64, 0, 2, 0}, {1, 16384, 2, 2, 64, 1024}};

/// Inputs as bf16 holds them, outputs poisoned, of elements T.
template <typename T>
struct Data {
  Matrix<int32_t> positions;
  Matrix<T> q, k, v, dout, out, dq, dk, dv;
  Matrix<float> lse;

  explicit Data(const AttentionCase& c)
      : positions(column_of(c.positions())),
        q(input(c.batch * positions.rows(), c.heads * c.width, 1)),
        k(input(c.batch * c.length, c.kv_heads * c.width, 2)),
        v(input(c.batch * c.length, c.kv_heads * c.width, 3)),
        dout(input(c.batch * positions.rows(), c.heads * c.width, 4)),
        out(q.rows(), q.cols()),
        dq(q.rows(), q.cols()),
        dk(k.rows(), k.cols()),
        dv(k.rows(), k.cols()),
        lse(q.rows(), c.heads) {
    if (!c.is_anti_aligned) return;
    // One column per head does it; the others stay as random as anywhere.
    const double length = std::sqrt(-kAntiAlignedScore * std::sqrt(static_cast<double>(c.width)));
    for (int64_t i = 0; i < c.heads; ++i) fill_column(q, i * c.width, -length);
    for (int64_t i = 0; i < c.kv_heads; ++i) fill_column(k, i * c.width, length);
  }

  // As bf16 holds it.
  static void fill_column(Matrix<T>& matrix, int64_t column, double value) {
    const auto rounded = static_cast<float>(static_cast<Bf16>(value));
    for (int64_t row = 0; row < matrix.rows(); ++row) matrix(row, column) = static_cast<T>(rounded);
  }

  static Matrix<T> input(int64_t rows, int64_t cols, uint64_t seed) {
    if constexpr (std::is_same_v<T, float>) {
      return widened(random_matrix<Bf16>(rows, cols, seed, 0, -2.0, 2.0));
    } else {
      return random_matrix<T>(rows, cols, seed, 0, -2.0, 2.0);
    }
  }

  /// `where` gives a matrix's memory on the host or on the device.
  template <typename Where>
  AttentionBackwardArgs args(const AttentionCase& c, Where&& where) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(c.width));
    const AttentionArgs forward{where(q),   where(k),         where(v), where(out),
                                where(lse), where(positions), c.batch,  c.heads,
                                c.kv_heads, c.window,         scale};
    return {forward, where(dout), where(dq), where(dk), where(dv)};
  }
};

/// Where all keys are alike in one column, dq is zero there: the rows of the scores' gradient add
/// up to zero. In bf16 that sum is rounding, times the length of the keys, which is as much as they
/// are longer than in other columns. It is compared with what it would be in those, so lengthened.
void check_cancelled_columns(const AttentionCase& c, Matrix<Bf16>& dq, Matrix<float>& expected) {
  const auto length = std::sqrt(-kAntiAlignedScore * std::sqrt(static_cast<double>(c.width)));
  double cancelled = 0;
  double others = 0;
  for (int64_t row = 0; row < dq.rows(); ++row) {
    for (int64_t col = 0; col < dq.cols(); ++col) {
      const auto value = static_cast<double>(static_cast<float>(dq(row, col)));
      (col % c.width == 0 ? cancelled : others) += value * value;
      if (col % c.width == 0) dq(row, col) = static_cast<Bf16>(expected(row, col));
    }
  }
  const double column = std::sqrt(others / static_cast<double>(c.width - 1));
  BOOST_TEST(std::sqrt(cancelled) < kElementTolerance<Bf16> * length * column);
}

/// The backend's results against those of a reference in fp32.
void run_and_compare(GpuFixture& f, const AttentionCase& c, Data<float>& expected) {
  Data<Bf16> d(c);
  const AttentionBackwardArgs args = d.args(c, [&](const auto& matrix) { return f.on(matrix); });
  f.gpu->attention(args.forward);
  f.gpu->attention_backward(args);
  f.on.fetch(d.lse);
  BOOST_TEST(relative_error(d.lse, expected.lse) < 1e-3);
  f.check_close(d.out, expected.out);
  f.on.fetch(d.dq);
  if (c.is_anti_aligned) check_cancelled_columns(c, d.dq, expected.dq);
  BOOST_TEST(relative_error(widened(d.dq), expected.dq) < kElementTolerance<Bf16>);
  f.check_close(d.dk, expected.dk);
  f.check_close(d.dv, expected.dv);
  if (c.is_certain) {
    f.check_attention_library();
  } else {
    BOOST_TEST_MESSAGE(c << ": " << f.gpu->kernels_note());
  }
}

}  // namespace

BOOST_DATA_TEST_CASE_F(GpuFixture, as_on_the_cpu, boost::unit_test::data::make(kCases), c) {
  Data<float> expected(c);
  const AttentionBackwardArgs args =
      expected.args(c, [](const auto& matrix) { return matrix.tensor(); });
  cpu->attention(args.forward);
  cpu->attention_backward(args);
  run_and_compare(*this, c, expected);
}

BOOST_DATA_TEST_CASE_F(GpuFixture, scores_far_below_zero_as_on_the_cpu,
                       boost::unit_test::data::make(kAntiAlignedCases), c) {
  Data<float> expected(c);
  const AttentionBackwardArgs args =
      expected.args(c, [](const auto& matrix) { return matrix.tensor(); });
  cpu->attention(args.forward);
  cpu->attention_backward(args);
  const auto highest = std::max_element(expected.lse.data().begin(), expected.lse.data().end());
  BOOST_TEST_REQUIRE(*highest < kOverflowsBelow);
  run_and_compare(*this, c, expected);
}

// What the library cannot do, and is not asked for: keys at positions of their own, and gradients
// that are added to others. The second shard's queries on the first one's keys.
BOOST_AUTO_TEST_CASE(a_ring_of_parts_runs_in_the_plain_kernel) {
  const AttentionCase queries{1, 512, 4, 2, 64, 0, 2, 1};
  const AttentionCase keys{1, 256, 4, 2, 64, 0};  // as many as a shard has
  Data<float> expected(keys);
  Data<Bf16> d(keys);
  const auto positions = column_of(queries.positions());
  const auto key_positions = column_of(AttentionCase{1, 512, 4, 2, 64, 0, 2, 0}.positions());
  AttentionBackwardArgs wanted =
      expected.args(keys, [](const auto& matrix) { return matrix.tensor(); });
  AttentionBackwardArgs args = d.args(keys, [&](const auto& matrix) { return on(matrix); });
  wanted.forward.positions = positions;
  wanted.forward.key_positions = key_positions;
  args.forward.positions = on(positions);
  args.forward.key_positions = on(key_positions);
  cpu->attention(wanted.forward);
  cpu->attention_backward(wanted);
  wanted.accumulate = true;
  cpu->attention_backward(wanted);
  gpu->attention(args.forward);
  gpu->attention_backward(args);
  args.accumulate = true;
  gpu->attention_backward(args);
  on.fetch(d.lse);
  BOOST_TEST(relative_error(d.lse, expected.lse) < 1e-3);
  check_close(d.out, expected.out);
  check_close(d.dq, expected.dq);
  check_close(d.dk, expected.dk);
  check_close(d.dv, expected.dv);
  const KernelUses uses = uses_of(gpu->kernels_note(), "attention");
  BOOST_TEST(uses.num_library == 0);
  BOOST_TEST(uses.num_plain == 3);
  const bool is_asked = MOETUNE_HAS_CUDNN != 0;
  BOOST_TEST(uses.text.find(is_asked ? "positions of their own" : "not in this build") !=
             std::string::npos);
}

BOOST_DATA_TEST_CASE_F(GpuFixture, long_sequences_as_the_plain_kernel,
                       boost::unit_test::data::make(kLongCases), c) {
  Data<float> expected(c);
  const AttentionBackwardArgs args =
      expected.args(c, [&](const auto& matrix) { return on(matrix); });
  cuda::attention(stream(), args.forward);
  cuda::attention_backward(stream(), args);
  for (Matrix<float>* result :
       {&expected.out, &expected.lse, &expected.dq, &expected.dk, &expected.dv}) {
    on.fetch(*result);
  }
  // NaN is what all of them began with.
  BOOST_TEST_REQUIRE(relative_error(expected.dk, expected.dk) == 0.0);
  run_and_compare(*this, c, expected);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
