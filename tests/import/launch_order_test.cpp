// Device work in the order of its launches, which is not that of its starts.
#include "profiler/analysis/launch_order.h"

#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <vector>

#include "tests/import/trace_texts.h"

namespace moetune::profiler {
BOOST_AUTO_TEST_SUITE(launch_order)

namespace {

using Rows = std::vector<uint32_t>;

/// Of four kernels the first to start was launched last, the third has no launch, and the others
/// are of one call.
ImportedTrace four_kernels() {
  tests::EventText events;
  for (int i = 0; i < 3; ++i) events.call(i, 0.5, i + 1);
  events.kernel(1000, 99, 3).kernel(1100, 99, 1).kernel(1200, 150, 77).kernel(1300, 99, 1);
  return events.read();
}

}  // namespace

BOOST_AUTO_TEST_CASE(work_of_one_call_stays_in_the_order_of_its_starts) {
  const ImportedTrace trace = four_kernels();
  const auto all = [](const ImportedOp&) { return true; };
  BOOST_TEST(ops_by_call(trace, all) == (Rows{1, 3, 0}));
  // Those that are in order already, and none.
  const int64_t last_ns = trace.ops[3].start_ns;
  BOOST_TEST(ops_by_call(trace, [&](const ImportedOp& op) { return op.start_ns == last_ns; }) ==
             Rows{3});
  BOOST_TEST(ops_by_call(trace, [](const ImportedOp&) { return false; }).empty());
}

BOOST_AUTO_TEST_CASE(work_ends_with_the_latest_that_was_launched_before) {
  const ImportedTrace trace = four_kernels();
  const int64_t zero_ns = trace.calls[0].start_ns;
  std::vector<int64_t> launches;
  std::vector<int64_t> ends;
  for (const LaunchedWork& work : launched_work_of(trace)) {
    launches.push_back(work.launch_ns - zero_ns);
    ends.push_back(work.latest_end_ns - zero_ns);
  }
  BOOST_TEST(launches == (std::vector<int64_t>{0, 0, 0, 2000}), boost::test_tools::per_element());
  BOOST_TEST(ends == (std::vector<int64_t>{1'199'000, 1'350'000, 1'399'000, 1'399'000}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::profiler
