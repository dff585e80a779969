// The experts' GEMM of the CUDA backend on widths that the library takes: uneven and empty experts,
// row lists, against the CPU operation, and against one dense product per expert.
#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>

#include "kernels/cuda/cublas_grouped_loop.h"
#include "kernels/cuda/cutlass_grouped_gemm.h"
#include "tests/gpu/gpu_fixture.h"

namespace moetune::kernels {
BOOST_FIXTURE_TEST_SUITE(gpu_backend_grouped, GpuFixture)

namespace {

struct Experts {
  int64_t in, out;
  std::vector<int32_t> counts;

  [[nodiscard]] auto count() const { return static_cast<int64_t>(counts.size()); }
  [[nodiscard]] int64_t num_rows() const {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  }
  [[nodiscard]] Matrix<int32_t> offsets() const {
    std::vector<int32_t> sums = {0};
    for (const int32_t n : counts) sums.push_back(sums.back() + n);
    return column_of(sums);
  }
};

std::ostream& operator<<(std::ostream& out, const Experts& e) {
  out << e.in << " to " << e.out << ", rows";
  for (const int32_t n : e.counts) out << " " << n;
  return out;
}

const Experts kExperts[] = {{256, 192, {130, 0, 1, 257, 64, 0}},
                            {64, 128, {0, 0, 300}},
                            {128, 256, {128, 128, 128, 128}},
                            {72, 8, {5, 0, 0, 19, 3, 0, 0, 1}}};

/// Entries of a list of all rows of a buffer that is half as large again, in no order.
Matrix<int32_t> row_list(int64_t count) {
  std::vector<int32_t> rows(static_cast<size_t>(count + count / 2));
  std::iota(rows.begin(), rows.end(), 0);
  std::mt19937 generator(7);
  std::shuffle(rows.begin(), rows.end(), generator);
  rows.resize(static_cast<size_t>(count));
  return column_of(rows);
}

/// Activations and weights of one case, `num_rows` rows each; outputs are poisoned.
struct Data {
  Matrix<Bf16> x, y, w, out, dx;
  Matrix<float> dw;

  Data(const Experts& e, int64_t num_rows)
      : x(random_matrix<Bf16>(num_rows, e.in, 1)),
        y(random_matrix<Bf16>(num_rows, e.out, 2)),
        w(random_matrix<Bf16>(e.count() * e.out, e.in, 3)),
        out(num_rows, e.out),
        dx(num_rows, e.in),
        dw(e.count() * e.out, e.in) {
    dw.fill_random(4);
  }
};

/// The rows of the list, which are what the operation writes.
template <typename T>
Matrix<float> listed(const Matrix<T>& matrix, const Matrix<int32_t>& rows) {
  Matrix<float> result(rows.rows(), matrix.cols());
  for (int64_t i = 0; i < rows.rows(); ++i) {
    for (int64_t c = 0; c < matrix.cols(); ++c) {
      result(i, c) = static_cast<float>(matrix(rows(i, 0), c));
    }
  }
  return result;
}

/// Whether every row that is not in the list still has the bits of a fresh matrix.
bool has_clean_rest(const Matrix<Bf16>& matrix, const Matrix<int32_t>& rows) {
  std::vector<bool> is_listed(static_cast<size_t>(matrix.rows()));
  for (int64_t i = 0; i < rows.rows(); ++i) is_listed[static_cast<size_t>(rows(i, 0))] = true;
  const Matrix<Bf16> fresh(1, matrix.cols());
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    const auto bytes = static_cast<size_t>(matrix.cols()) * sizeof(Bf16);
    if (!is_listed[static_cast<size_t>(r)] &&
        std::memcmp(&matrix(r, 0), &fresh(0, 0), bytes) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

BOOST_DATA_TEST_CASE_F(GpuFixture, all_rows_in_order, boost::unit_test::data::make(kExperts), e) {
  const Matrix<int32_t> offsets = e.offsets();
  Data d(e, e.num_rows());
  Matrix<float> out(d.out.rows(), e.out), dx(d.dx.rows(), e.in), dw = d.dw;
  const auto x = widened(d.x), y = widened(d.y), w = widened(d.w);
  cpu->grouped_gemm({GroupedGemmMode::forward, x, out, w, {}, offsets});
  cpu->grouped_gemm({GroupedGemmMode::dgrad, dx, y, w, {}, offsets});
  cpu->grouped_gemm({GroupedGemmMode::wgrad, x, y, dw, {}, offsets});
  gpu->grouped_gemm({GroupedGemmMode::forward, on(d.x), on(d.out), on(d.w), {}, on(offsets)});
  gpu->grouped_gemm({GroupedGemmMode::dgrad, on(d.dx), on(d.y), on(d.w), {}, on(offsets)});
  gpu->grouped_gemm({GroupedGemmMode::wgrad, on(d.x), on(d.y), on(d.dw), {}, on(offsets)});
  check_close(d.out, out);
  check_close(d.dx, dx);
  on.fetch(d.dw);
  BOOST_TEST(relative_error(d.dw, dw) < kElementTolerance<Bf16>);
  check_grouped_library();
}

BOOST_DATA_TEST_CASE_F(GpuFixture, listed_rows, boost::unit_test::data::make(kExperts), e) {
  const Matrix<int32_t> offsets = e.offsets();
  const Matrix<int32_t> rows = row_list(e.num_rows());
  Data d(e, e.num_rows() + e.num_rows() / 2);
  Matrix<float> out(d.out.rows(), e.out), dx(d.dx.rows(), e.in);
  const auto x = widened(d.x), y = widened(d.y), w = widened(d.w);
  cpu->grouped_gemm({GroupedGemmMode::forward, x, out, w, rows, offsets});
  cpu->grouped_gemm({GroupedGemmMode::dgrad, dx, y, w, rows, offsets});
  gpu->grouped_gemm({GroupedGemmMode::forward, on(d.x), on(d.out), on(d.w), on(rows), on(offsets)});
  gpu->grouped_gemm({GroupedGemmMode::dgrad, on(d.dx), on(d.y), on(d.w), on(rows), on(offsets)});
  on.fetch(d.out);
  on.fetch(d.dx);
  BOOST_TEST(relative_error(listed(d.out, rows), listed(out, rows)) < kElementTolerance<Bf16>);
  BOOST_TEST(relative_error(listed(d.dx, rows), listed(dx, rows)) < kElementTolerance<Bf16>);
  BOOST_TEST(has_clean_rest(d.out, rows));
  BOOST_TEST(has_clean_rest(d.dx, rows));
  check_grouped_library();
  // The library cannot sum over a list: a plain kernel does.
  Matrix<float> dw = d.dw;
  cpu->grouped_gemm({GroupedGemmMode::wgrad, x, y, dw, rows, offsets});
  gpu->grouped_gemm({GroupedGemmMode::wgrad, on(d.x), on(d.y), on(d.dw), on(rows), on(offsets)});
  on.fetch(d.dw);
  BOOST_TEST(relative_error(d.dw, dw) < kElementTolerance<Bf16>);
}

BOOST_AUTO_TEST_CASE(experts_without_any_rows_change_nothing) {
  const Experts e{64, 64, {0, 0, 0}};
  const Matrix<int32_t> offsets = e.offsets();
  Data d(e, 40);
  const Matrix<float> dw = d.dw;
  gpu->grouped_gemm({GroupedGemmMode::forward, on(d.x), on(d.out), on(d.w), {}, on(offsets)});
  gpu->grouped_gemm({GroupedGemmMode::dgrad, on(d.dx), on(d.y), on(d.w), {}, on(offsets)});
  gpu->grouped_gemm({GroupedGemmMode::wgrad, on(d.x), on(d.y), on(d.dw), {}, on(offsets)});
  on.fetch(d.out);
  on.fetch(d.dx);
  on.fetch(d.dw);
  const Matrix<int32_t> none(0, 1);
  BOOST_TEST(has_clean_rest(d.out, none));
  BOOST_TEST(has_clean_rest(d.dx, none));
  BOOST_TEST(d.dw.same_bits(dw));
  check_grouped_library();
}

// The two libraries against each other: neither the CPU nor the choice of the backend between them.
BOOST_DATA_TEST_CASE_F(GpuFixture, one_grouped_product_is_one_per_expert,
                       boost::unit_test::data::make(kExperts), e) {
  const bool is_expected = expects_library("CUTLASS beside cuBLASLt",
                                           MOETUNE_HAS_CUBLASLT != 0 && MOETUNE_HAS_CUTLASS != 0);
  if (!cuda::GroupedGemm::is_available() || !cuda::CublasLtGemm::is_available()) {
    BOOST_TEST(!is_expected);
    return;
  }
  cuda::GroupedGemm grouped(0);
  if (!grouped.runs_on_device()) {
    BOOST_TEST(!is_expected);
    return;
  }
  cuda::CublasLtGemm gemm(0);
  const Matrix<int32_t> offsets = e.offsets();
  Data a(e, e.num_rows()), b(e, e.num_rows());
  const int64_t bytes = std::max(grouped.workspace_bytes(e.count()), gemm.workspace_bytes());
  const std::unique_ptr<void, std::function<void(void*)>> workspace(
      gpu->allocate(bytes), [this](void* memory) { gpu->free(memory); });
  for (const GroupedGemmMode mode :
       {GroupedGemmMode::forward, GroupedGemmMode::dgrad, GroupedGemmMode::wgrad}) {
    const auto args = [&](Data& d) {
      return GroupedGemmArgs{mode,
                             mode == GroupedGemmMode::dgrad ? on(d.dx) : on(d.x),
                             mode == GroupedGemmMode::forward ? on(d.out) : on(d.y),
                             mode == GroupedGemmMode::wgrad ? on(d.dw) : on(d.w),
                             {},
                             on(offsets)};
    };
    grouped.run(stream(), args(a), workspace.get(), bytes);
    cuda::cublas_grouped_loop(stream(), gemm, args(b), workspace.get(), bytes);
  }
  on.fetch(b.out);
  on.fetch(b.dx);
  check_close(a.out, widened(b.out));
  check_close(a.dx, widened(b.dx));
  on.fetch(a.dw);
  on.fetch(b.dw);
  // Both sum in fp32 without rounding to bf16, so only the order of the sums may differ.
  BOOST_TEST(relative_error(a.dw, b.dw) < 1e-4);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
