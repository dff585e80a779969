// The experts' GEMMs: against naive loops, and the promise that splitting rows over calls changes
// no bit.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <numeric>

#include "tests/kernels/gradient_check.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(grouped_gemm, BackendFixture)

namespace {

constexpr int64_t kIn = 40;
constexpr int64_t kOut = 24;

template <typename T>
struct Problem {
  std::vector<int32_t> sizes;
  int64_t num_rows;
  Matrix<int32_t> offsets;
  Matrix<int32_t> rows;
  Matrix<T> x;
  Matrix<T> w;
  Matrix<T> y;

  explicit Problem(std::vector<int32_t> expert_sizes, bool shuffled = true)
      : sizes(std::move(expert_sizes)),
        num_rows(std::accumulate(sizes.begin(), sizes.end(), 0)),
        offsets(static_cast<int64_t>(sizes.size()) + 1, 1),
        rows(num_rows, 1),
        x(num_rows, kIn, kIn + 3),
        w(static_cast<int64_t>(sizes.size()) * kOut, kIn),
        y(num_rows, kOut, kOut + 1) {
    offsets(0, 0) = 0;
    for (size_t e = 0; e < sizes.size(); ++e) {
      offsets(static_cast<int64_t>(e) + 1, 0) = offsets(static_cast<int64_t>(e), 0) + sizes[e];
    }
    std::iota(rows.data().begin(), rows.data().end(), 0);
    if (shuffled) std::shuffle(rows.data().begin(), rows.data().end(), std::mt19937_64(7));
    x.fill_random(1);
    w.fill_random(2);
    y.fill_random(3);
  }

  [[nodiscard]] int64_t expert_of(int64_t entry) const {
    int64_t e = 0;
    while (offsets(e + 1, 0) <= entry) ++e;
    return e;
  }

  [[nodiscard]] GroupedGemmArgs args(GroupedGemmMode mode) const {
    return {mode, x, y, w, rows, offsets};
  }
};

template <typename T>
void check_all_modes(Backend& backend, std::vector<int32_t> sizes) {
  Problem<T> problem(std::move(sizes));
  Matrix<double> y(problem.num_rows, kOut);
  Matrix<double> dx(problem.num_rows, kIn);
  Matrix<double> dw(problem.w.rows(), kIn);
  dw.fill(0.5);
  dx.fill(0.0);
  y.fill(0.0);
  for (int64_t entry = 0; entry < problem.num_rows; ++entry) {
    const int64_t row = problem.rows(entry, 0);
    const int64_t first = problem.expert_of(entry) * kOut;
    for (int64_t o = 0; o < kOut; ++o) {
      for (int64_t i = 0; i < kIn; ++i) {
        const auto w = static_cast<double>(problem.w(first + o, i));
        y(row, o) += static_cast<double>(problem.x(row, i)) * w;
        dx(row, i) += static_cast<double>(problem.y(row, o)) * w;
        dw(first + o, i) +=
            static_cast<double>(problem.y(row, o)) * static_cast<double>(problem.x(row, i));
      }
    }
  }
  auto dgrad = problem;
  dgrad.x = Matrix<T>(problem.num_rows, kIn);
  backend.grouped_gemm(dgrad.args(GroupedGemmMode::dgrad));
  BOOST_TEST(relative_error(dgrad.x, dx) < kForwardTolerance<T>);
  auto wgrad = problem;
  wgrad.w.fill(T{0.5});
  backend.grouped_gemm(wgrad.args(GroupedGemmMode::wgrad));
  BOOST_TEST(relative_error(wgrad.w, dw) < kForwardTolerance<T>);
  problem.y = Matrix<T>(problem.num_rows, kOut);
  backend.grouped_gemm(problem.args(GroupedGemmMode::forward));
  BOOST_TEST(relative_error(problem.y, y) < kForwardTolerance<T>);
}

// Runs `mode` once over all rows and once over `num_chunks` uneven calls, and compares the bits.
template <typename T>
void check_split(Backend& backend, GroupedGemmMode mode, int32_t num_chunks, bool shuffled) {
  const Problem<T> problem({70, 0, 33, 1, 64}, shuffled);
  const bool is_forward = mode == GroupedGemmMode::forward;
  auto whole = problem;
  auto split = problem;
  (is_forward ? whole.y : whole.x).fill(T{-1});
  (is_forward ? split.y : split.x).fill(T{-2});
  auto whole_args = whole.args(mode);
  if (!shuffled) whole_args.rows = {};
  backend.grouped_gemm(whole_args);
  for (int32_t chunk = 0; chunk < num_chunks; ++chunk) {
    std::vector<int32_t> rows;
    std::vector<int32_t> offsets = {0};
    for (size_t e = 0; e < problem.sizes.size(); ++e) {
      const int32_t first = problem.offsets(static_cast<int64_t>(e), 0);
      for (int32_t i = 0; i < problem.sizes[e]; ++i) {
        if ((i * 5 / 3) % num_chunks == chunk) rows.push_back(problem.rows(first + i, 0));
      }
      offsets.push_back(static_cast<int32_t>(rows.size()));
    }
    const auto row_list = column_of(rows);
    const auto offset_list = column_of(offsets);
    auto args = split.args(mode);
    args.rows = row_list;
    args.offsets = offset_list;
    backend.grouped_gemm(args);
  }
  BOOST_TEST_INFO("forward " << is_forward << " chunks " << num_chunks << " shuffled " << shuffled
                             << " bytes " << sizeof(T));
  BOOST_TEST((is_forward ? whole.y.same_bits(split.y) : whole.x.same_bits(split.x)));
}

}  // namespace

BOOST_AUTO_TEST_CASE(equals_naive_loops) {
  for (const auto& sizes : std::vector<std::vector<int32_t>>{
           {5, 0, 33, 1}, {32, 64}, {0, 0, 3}, {31, 32, 33, 0}, {1}}) {
    check_all_modes<float>(*backend, sizes);
    check_all_modes<double>(*backend, sizes);
  }
}

// Unshuffled, the whole call addresses rows without a list and the parts go through one.
BOOST_AUTO_TEST_CASE(splitting_rows_changes_no_bit) {
  for (const auto mode : {GroupedGemmMode::forward, GroupedGemmMode::dgrad}) {
    for (const int32_t num_chunks : {1, 2, 3, 8}) {
      for (const bool shuffled : {false, true}) {
        check_split<float>(*backend, mode, num_chunks, shuffled);
        check_split<double>(*backend, mode, num_chunks, shuffled);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(no_rows_and_no_experts_do_nothing) {
  const Problem<float> problem({0, 0, 0});
  auto args = problem.args(GroupedGemmMode::forward);
  backend->grouped_gemm(args);
  args.mode = GroupedGemmMode::wgrad;
  backend->grouped_gemm(args);
  const auto none = column_of({0});
  args.offsets = none;
  backend->grouped_gemm(args);
  Matrix<float> w(3 * kOut, kIn);
  w.fill_random(2);
  BOOST_TEST(problem.w.same_bits(w));
}

BOOST_AUTO_TEST_CASE(rows_outside_the_list_are_untouched) {
  Problem<float> problem({4, 4});
  problem.y.fill(7.0F);
  const auto rows = column_of({1, 6});
  const auto offsets = column_of({0, 1, 2});
  auto args = problem.args(GroupedGemmMode::forward);
  args.rows = rows;
  args.offsets = offsets;
  backend->grouped_gemm(args);
  for (const int64_t row : {0, 2, 3, 4, 5, 7}) BOOST_TEST(problem.y(row, 3) == 7.0F);
  BOOST_TEST(problem.y(1, 3) != 7.0F);
  BOOST_TEST(problem.y(6, 3) != 7.0F);
}

BOOST_AUTO_TEST_CASE(gradients_by_central_differences) {
  Problem<double> problem({3, 0, 2});
  Matrix<double> dy(problem.num_rows, kOut);
  dy.fill_random(9);
  const auto loss = [&] {
    backend->grouped_gemm(problem.args(GroupedGemmMode::forward));
    return weighted_sum(dy, problem.y);
  };
  Matrix<double> dx(problem.num_rows, kIn);
  Matrix<double> dw(problem.w.rows(), kIn);
  dw.fill(0.0);
  backend->grouped_gemm({GroupedGemmMode::dgrad, dx, dy, problem.w, problem.rows, problem.offsets});
  backend->grouped_gemm({GroupedGemmMode::wgrad, problem.x, dy, dw, problem.rows, problem.offsets});
  BOOST_TEST(gradient_error(loss, problem.x, dx) < kGradientTolerance);
  BOOST_TEST(gradient_error(loss, problem.w, dw) < kGradientTolerance);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
