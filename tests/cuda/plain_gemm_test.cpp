// The plain products against the CPU operations: every transpose and dtype, odd sizes, row lists,
// empty experts, and the promise that cutting a call changes no bit.
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <utility>

#include "kernels/base/error.h"
#include "tests/cuda/element_matrix.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(cuda_plain_gemm, BackendFixture)

namespace {

struct GemmCase {
  int64_t m, n, k;
};

constexpr GemmCase kGemmCases[] = {{1, 1, 1}, {64, 64, 16}, {65, 3, 17}, {7, 130, 40}, {5, 6, 0}};

template <typename T, typename C>
void check_gemm(Backend& cpu, const GemmCase& shape, bool trans_a, bool trans_b, bool accumulate) {
  const auto [m, n, k] = shape;
  const auto a = random_values<T>(trans_a ? k : m, trans_a ? m : k, 1);
  const auto b = random_values<T>(trans_b ? n : k, trans_b ? k : n, 2);
  const auto old = random_values<C>(m, n, 3);
  Matrix<float> expected = old;
  if (k > 0) {
    cpu.gemm({a, b, expected, trans_a, trans_b, accumulate});
  } else if (!accumulate) {
    expected.fill(0.0F);
  }
  const auto a_device = narrowed<T>(a, a.cols() + 3);
  const auto b_device = narrowed<T>(b, b.cols() + 1);
  Matrix<C> c(m, n, n + 5);
  if (accumulate) c = narrowed<C>(old, n + 5);
  OnDevice on;
  cuda::gemm(nullptr, {on(a_device), on(b_device), on(c), trans_a, trans_b, accumulate});
  on.fetch(c);
  BOOST_TEST(has_clean_padding(c));
  BOOST_TEST(error_of(c, expected) < kElementTolerance<C>);
}

// Experts' offsets and, where the rows are listed, entries in an order of their own.
struct Experts {
  const char* name;
  std::vector<int32_t> offsets;
  bool is_listed;
};

const std::vector<Experts> kExperts = {
    {"one", {0, 5}, false},
    {"odd", {0, 1, 71, 74}, true},
    {"empty first, between and last", {0, 0, 65, 65, 65, 69, 69}, true},
    {"all empty", {0, 0, 0}, false},
    {"part of the list", {3, 5, 40}, true},
    {"more than a warp of them",
     [] {
       std::vector<int32_t> offsets{0};
       for (int32_t e = 0; e < 70; ++e) offsets.push_back(offsets.back() + e % 3);
       return offsets;
     }(),
     false},
};

constexpr int64_t kIn = 37;
constexpr int64_t kOut = 67;

template <typename T>
struct Grouped {
  int64_t num_rows;
  Matrix<int32_t> offsets;
  Matrix<int32_t> list;
  Matrix<float> x;
  Matrix<float> y;
  Matrix<float> w;

  explicit Grouped(const Experts& experts)
      : num_rows(experts.offsets.back() + 2),
        offsets(column_of(experts.offsets)),
        list(experts.is_listed ? experts.offsets.back() : 0, 1),
        x(random_values<T>(num_rows, kIn, 1)),
        y(random_values<T>(num_rows, kOut, 2)),
        w(random_values<T>((offsets.rows() - 1) * kOut, kIn, 3)) {
    // 7 shares no factor with the lengths above.
    for (int64_t i = 0; i < list.rows(); ++i) {
      list(i, 0) = static_cast<int32_t>((i * 7 + 2) % list.rows());
    }
  }

  [[nodiscard]] GroupedGemmArgs args(GroupedGemmMode mode, const Tensor& x_at, const Tensor& y_at,
                                     const Tensor& w_at) const {
    return {mode, x_at, y_at, w_at, list.rows() == 0 ? Tensor{} : list.tensor(), offsets};
  }

  [[nodiscard]] GroupedGemmArgs args(GroupedGemmMode mode, const Tensor& x_at, const Tensor& y_at,
                                     const Tensor& w_at, OnDevice& on) const {
    return {mode, x_at, y_at, w_at, list.rows() == 0 ? Tensor{} : on(list), on(offsets)};
  }
};

template <typename T>
void check_grouped(Backend& cpu, const Experts& experts) {
  const Grouped<T> problem(experts);
  const auto x = narrowed<T>(problem.x, kIn + 2);
  const auto y = narrowed<T>(problem.y, kOut + 3);
  const auto w = narrowed<T>(problem.w, kIn + 1);
  OnDevice on;

  // Rows that are nobody's keep what they had.
  Matrix<float> expected = problem.y;
  auto result = y;
  cpu.grouped_gemm(problem.args(GroupedGemmMode::forward, problem.x, expected, problem.w));
  cuda::grouped_gemm(nullptr, problem.args(GroupedGemmMode::forward, on(x), on(result), on(w), on));
  on.fetch(result);
  BOOST_TEST(has_clean_padding(result));
  BOOST_TEST(error_of(result, expected) < kElementTolerance<T>);

  expected = problem.x;
  auto dx = x;
  cpu.grouped_gemm(problem.args(GroupedGemmMode::dgrad, expected, problem.y, problem.w));
  cuda::grouped_gemm(nullptr, problem.args(GroupedGemmMode::dgrad, on(dx), on(y), on(w), on));
  on.fetch(dx);
  BOOST_TEST(error_of(dx, expected) < kElementTolerance<T>);

  expected = problem.w;
  auto gradient = narrowed<float>(problem.w, kIn + 4);
  cpu.grouped_gemm(problem.args(GroupedGemmMode::wgrad, problem.x, problem.y, expected));
  cuda::grouped_gemm(nullptr, problem.args(GroupedGemmMode::wgrad, on(x), on(y), on(gradient), on));
  on.fetch(gradient);
  BOOST_TEST(error_of(gradient, expected) < kElementTolerance<float>);
}

}  // namespace

BOOST_AUTO_TEST_CASE(products_equal_the_cpu) {
  for (const GemmCase& shape : kGemmCases) {
    for (int flags = 0; flags < 8; ++flags) {
      const bool trans_a = (flags & 1) != 0;
      const bool trans_b = (flags & 2) != 0;
      const bool accumulate = (flags & 4) != 0;
      BOOST_TEST_CONTEXT(shape.m << "x" << shape.n << "x" << shape.k << " flags " << flags) {
        check_gemm<float, float>(*backend, shape, trans_a, trans_b, accumulate);
        check_gemm<Bf16, float>(*backend, shape, trans_a, trans_b, accumulate);
        check_gemm<Bf16, Bf16>(*backend, shape, trans_a, trans_b, accumulate);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(an_empty_product_launches_nothing) {
  const Matrix<float> a(0, 4);
  const Matrix<float> b(4, 3);
  const Matrix<float> c(0, 3);
  OnDevice on;
  cuda::gemm(nullptr, {on(a), on(b), on(c)});
}

BOOST_AUTO_TEST_CASE(nan_stays_in_its_row) {
  auto a = random_values<float>(3, 20, 1);
  a(1, 19) = kNan;
  const auto b = random_values<float>(20, 70, 2);
  Matrix<float> c(3, 70);
  OnDevice on;
  cuda::gemm(nullptr, {on(a), on(b), on(c)});
  on.fetch(c);
  BOOST_TEST(num_nan(c) == 70);
  BOOST_TEST(std::isnan(c(1, 69)));
}

BOOST_AUTO_TEST_CASE(shapes_and_dtypes_that_do_not_fit_are_refused) {
  const Matrix<float> a(2, 3);
  const Matrix<float> b(3, 4);
  const Matrix<float> wrong(2, 5);
  const Matrix<Bf16> narrow(2, 4);
  BOOST_CHECK_THROW(cuda::gemm(nullptr, {a, b, wrong}), base::Error);
  BOOST_CHECK_THROW(cuda::gemm(nullptr, {a, b, narrow}), base::Error);
}

BOOST_AUTO_TEST_CASE(experts_equal_the_cpu) {
  for (const Experts& experts : kExperts) {
    BOOST_TEST_CONTEXT(experts.name) {
      check_grouped<float>(*backend, experts);
      check_grouped<Bf16>(*backend, experts);
    }
  }
}

BOOST_AUTO_TEST_CASE(cutting_the_rows_changes_no_bit) {
  Grouped<float> problem({"", {0, 70, 101}, false});
  const auto call = [&](std::initializer_list<int32_t> offsets, GroupedGemmMode mode,
                        Matrix<float>& y, Matrix<float>& w) {
    const auto at = column_of(offsets);
    OnDevice on;
    cuda::grouped_gemm(nullptr, {mode, on(problem.x), on(y), on(w), {}, on(at)});
    on.fetch(y);
    on.fetch(w);
  };
  Matrix<float> whole(problem.num_rows, kOut);
  Matrix<float> cut(problem.num_rows, kOut);
  call({0, 70, 101}, GroupedGemmMode::forward, whole, problem.w);
  call({0, 33, 33}, GroupedGemmMode::forward, cut, problem.w);
  call({33, 70, 88}, GroupedGemmMode::forward, cut, problem.w);
  call({88, 88, 101}, GroupedGemmMode::forward, cut, problem.w);
  BOOST_TEST(cut.same_bits(whole));

  auto whole_gradient = problem.w;
  auto cut_gradient = problem.w;
  call({0, 70, 101}, GroupedGemmMode::wgrad, problem.y, whole_gradient);
  call({0, 33, 33}, GroupedGemmMode::wgrad, problem.y, cut_gradient);
  call({33, 70, 88}, GroupedGemmMode::wgrad, problem.y, cut_gradient);
  call({88, 88, 101}, GroupedGemmMode::wgrad, problem.y, cut_gradient);
  BOOST_TEST(cut_gradient.same_bits(whole_gradient));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
