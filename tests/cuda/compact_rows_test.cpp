// A grouped GEMM with a row list, done by one without: the same bits in the listed rows, and no
// other row is touched.
#include "kernels/cuda/compact_rows.h"

#include <boost/test/unit_test.hpp>

#include "tests/cuda/cuda_fixture.h"

namespace moetune::kernels {
BOOST_AUTO_TEST_SUITE(cuda_compact_rows)

namespace {

constexpr int64_t kRows = 41;
constexpr int64_t kIn = 24;
constexpr int64_t kOut = 40;

template <typename T>
void check_mode(GroupedGemmMode mode, std::initializer_list<int32_t> offsets_in) {
  const auto x = random_matrix<T>(kRows, kIn, 1, kIn + 8);
  const auto y = random_matrix<T>(kRows, kOut, 2);
  const auto w = random_matrix<T>(3 * kOut, kIn, 3);
  Matrix<int32_t> offsets(4, 1);
  std::copy(offsets_in.begin(), offsets_in.end(), &offsets(0, 0));
  const int64_t num_listed = offsets(3, 0);
  Matrix<int32_t> rows(num_listed, 1);
  // In no order, every second row and more.
  for (int64_t i = 0; i < num_listed; ++i) rows(i, 0) = static_cast<int32_t>((i * 17 + 5) % kRows);
  const bool is_forward = mode == GroupedGemmMode::forward;
  const auto run = [&](bool is_compact) {
    auto out = is_forward ? random_matrix<T>(kRows, kOut, 4) : random_matrix<T>(kRows, kIn, 4);
    OnDevice on;
    const GroupedGemmArgs args{
        mode,       is_forward ? on(x) : on(out), is_forward ? on(out) : on(y), on(w), on(rows),
        on(offsets)};
    if (is_compact) {
      void* memory = nullptr;
      const auto bytes = static_cast<size_t>(std::max<int64_t>(cuda::compact_rows_bytes(args), 1));
      BOOST_TEST_REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
      cuda::run_compact(nullptr, args, memory, [](const GroupedGemmArgs& compact) {
        BOOST_TEST(compact.rows.is_null());
        cuda::grouped_gemm(nullptr, compact);
      });
      on.fetch(out);
      cudaFree(memory);
    } else {
      cuda::grouped_gemm(nullptr, args);
      on.fetch(out);
    }
    return out;
  };
  BOOST_TEST(run(true).same_bits(run(false)));
}

}  // namespace

BOOST_AUTO_TEST_CASE_TEMPLATE(equals_the_product_with_a_list, T, ElementTypes) {
  for (const GroupedGemmMode mode : {GroupedGemmMode::forward, GroupedGemmMode::dgrad}) {
    check_mode<T>(mode, {0, 9, 9, 23});
    check_mode<T>(mode, {0, 0, 40, 41});
    check_mode<T>(mode, {0, 0, 0, 1});
  }
}

BOOST_AUTO_TEST_CASE(refuses_calls_without_a_list) {
  GroupedGemmArgs args;
  const auto fail = [](const GroupedGemmArgs&) { BOOST_ERROR("must not run"); };
  BOOST_CHECK_THROW(cuda::run_compact(nullptr, args, nullptr, fail), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
