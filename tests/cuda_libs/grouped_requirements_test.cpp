// CUTLASS's grouped GEMM as far as it goes without a card: what its kernels ask of one is there on
// Hopper, and it takes just the widths that GroupedGemm says it takes. Its own test of the
// problems never runs in training, where their shapes are on the device.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "kernels/cuda/cutlass_grouped_gemm.h"

namespace moetune::kernels {
namespace {

using cuda::GroupedGemm;
using cuda::GroupedProblem;

// Compute capability 9.0 (CUDA C++ Programming Guide, technical specifications).
constexpr int64_t kMostSharedBytes = 232448;  // of a block, asked for by the kernel
constexpr int64_t kMostThreads = 1024;
constexpr int kNumSms = 132;

constexpr GroupedGemmMode kModes[] = {GroupedGemmMode::forward, GroupedGemmMode::dgrad,
                                      GroupedGemmMode::wgrad};

struct Widths {
  int64_t in, out;
};
std::ostream& operator<<(std::ostream& out, const Widths& w) {
  return out << w.in << " to " << w.out;
}

// Of Qwen3-MoE 30B-A3B's experts and of others, the narrowest, and some that are not multiples
// of 8.
const Widths kWidths[] = {{2048, 1536}, {768, 2048}, {7168, 4096}, {1024, 1536}, {8, 8},   {24, 40},
                          {64, 12},     {4, 64},     {100, 64},    {64, 100},    {33, 32}, {2, 2}};

/// Some experts without rows, with one, with odd numbers of them.
const std::vector<int32_t> kRows = {0, 1, 7, 8, 300, 129, 65536, 0};

std::vector<GroupedProblem> problems_of(GroupedGemmMode mode, const Widths& widths,
                                        const std::vector<int32_t>& rows) {
  const auto in = static_cast<int32_t>(widths.in);
  const auto out = static_cast<int32_t>(widths.out);
  std::vector<GroupedProblem> problems;
  for (const int32_t n : rows) {
    switch (mode) {
      case GroupedGemmMode::forward:
        problems.push_back({n, out, in});
        break;
      case GroupedGemmMode::dgrad:
        problems.push_back({n, in, out});
        break;
      case GroupedGemmMode::wgrad:
        problems.push_back({n > 0 ? out : 0, in, n});
        break;
    }
  }
  return problems;
}

/// Packed tensors of the widths at an aligned address that nobody reads.
GroupedGemmArgs args_of(GroupedGemmMode mode, const Widths& widths) {
  const auto tensor = [](DType dtype, int64_t rows, int64_t cols) {
    Tensor made = Tensor::matrix(reinterpret_cast<void*>(uintptr_t{1} << 20), dtype, rows, cols);
    made.ld = (cols + 7) / 8 * 8;  // so that only the widths decide
    return made;
  };
  const DType weights = mode == GroupedGemmMode::wgrad ? DType::f32 : DType::bf16;
  const auto num_experts = static_cast<int64_t>(kRows.size());
  return {mode,
          tensor(DType::bf16, 1 << 17, widths.in),
          tensor(DType::bf16, 1 << 17, widths.out),
          tensor(weights, num_experts * widths.out, widths.in),
          {},
          tensor(DType::i32, num_experts + 1, 1)};
}

struct NeedsCutlass {
  boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const {
    boost::test_tools::assertion_result result(GroupedGemm::is_available());
    result.message() << "this build has no CUTLASS (make cuda-libs)";
    return result;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(cuda_grouped_requirements, *boost::unit_test::precondition(NeedsCutlass{}))

BOOST_AUTO_TEST_CASE(a_block_fits_on_hopper) {
  for (const GroupedGemmMode mode : kModes) {
    const auto needs = GroupedGemm::requirements(mode, {}, kNumSms);
    BOOST_TEST(needs.shared_memory_bytes > 0);
    BOOST_TEST(needs.shared_memory_bytes <= kMostSharedBytes);
    BOOST_TEST(needs.num_threads > 0);
    BOOST_TEST(needs.num_threads <= kMostThreads);
  }
}

// It is asked for once, for one expert.
BOOST_AUTO_TEST_CASE(workspace_follows_the_device_and_not_the_experts) {
  for (const GroupedGemmMode mode : kModes) {
    const auto bytes = [&](size_t num_experts, int num_sms) {
      const auto problems =
          problems_of(mode, kWidths[0], std::vector<int32_t>(num_experts, int32_t{100}));
      return GroupedGemm::requirements(mode, problems, num_sms).kernel_bytes;
    };
    BOOST_TEST(bytes(1, kNumSms) > 0);
    BOOST_TEST(bytes(256, kNumSms) == bytes(1, kNumSms));
    BOOST_TEST(bytes(1, kNumSms / 2) < bytes(1, kNumSms));
  }
}

BOOST_DATA_TEST_CASE(takes_the_widths_that_it_says, boost::unit_test::data::make(kWidths), widths) {
  for (const GroupedGemmMode mode : kModes) {
    const auto needs = GroupedGemm::requirements(mode, problems_of(mode, widths, kRows), kNumSms);
    const std::string why_not = GroupedGemm::why_unsupported(args_of(mode, widths));
    BOOST_TEST_CONTEXT("mode " << static_cast<int>(mode) << ", CUTLASS: '" << needs.refusal
                               << "', we: '" << why_not << "'") {
      BOOST_TEST(needs.refusal.empty() == why_not.empty());
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::kernels
