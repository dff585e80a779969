// Work on experts' rows, known by the names of kernels alone.
#include "profiler/analysis/expert_kernels.h"

#include <boost/test/unit_test.hpp>
#include <string>
#include <utility>
#include <vector>

#include "profiler/analysis/imported_steps.h"
#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(expert_kernels)

namespace {

using tests::EventText;

constexpr const char* kDispatch = "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)";
constexpr const char* kNotify = "void deep_ep::intranode::notify_dispatch<8>(int const*)";
constexpr const char* kCombine = "void deep_ep::intranode::combine<__nv_bfloat16, 8>(float*)";
constexpr const char* kGrouped =
    "void cutlass::device_kernel<GemmUniversal<cutlass::gemm::GroupProblemShape<int>>>";
constexpr const char* kAttention = "void flash_fwd_kernel<Flash_fwd_kernel_traits<128>>";
constexpr const char* kProduct = "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN";

/// 100 us each, one behind the other, launched before.
ImportedTrace kernels_named(const std::vector<std::string>& names) {
  EventText events;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto number = static_cast<int>(i);
    events.call(number, 0.5, number + 1).kernel(1000 + 100 * number, 99, number + 1, names[i]);
  }
  return events.read();
}

/// A letter for each kernel: e where it works on experts' rows.
std::string marked(const std::vector<std::string>& names) {
  std::string letters;
  for (const bool is_of_experts : expert_kernels_of(kernels_named(names))) {
    letters += is_of_experts ? 'e' : '-';
  }
  return letters;
}

}  // namespace

BOOST_AUTO_TEST_CASE(names_tell_what_works_on_rows_of_experts) {
  BOOST_TEST(marked({kProduct, kGrouped, kProduct}) == "-e-");
  BOOST_TEST(marked({kProduct, kNotify, kDispatch, kProduct, kProduct, kCombine, kProduct}) ==
             "---ee--");
  // Rows that are not taken back in the trace, or were brought before it.
  BOOST_TEST(marked({kDispatch, kProduct, kProduct}) == "---");
  BOOST_TEST(marked({kProduct, kCombine, kProduct}) == "---");
  // Another micro-batch's layer in between.
  BOOST_TEST(marked({kDispatch, kAttention, kProduct, kGrouped, kCombine, kDispatch, kProduct,
                     kCombine}) == "---e--e-");
}

BOOST_AUTO_TEST_CASE(records_of_steps_say_so) {
  const ImportedTrace trace = kernels_named({kProduct, kDispatch, kProduct, kCombine});
  const StepTrace step = ImportedSteps(std::span(&trace, 1), {}).make(0).at(0);
  BOOST_TEST_REQUIRE(step.records.size() == 4U);
  BOOST_TEST(!step.records[0].is_of_experts);
  BOOST_TEST(step.records[2].is_of_experts);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
