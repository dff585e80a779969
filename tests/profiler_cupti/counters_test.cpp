// Sums over samples that are made up, and the counters themselves where there is a card.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <limits>

#include "profiler/device/counter_sums.h"
#include "profiler/device/cupti_recorder.h"
#include "profiler/device/device_counters.h"

namespace moetune::profiler {
namespace {

namespace data = boost::unit_test::data;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

using Samples = std::vector<CounterSample>;

BOOST_AUTO_TEST_SUITE(counter_sums)

BOOST_AUTO_TEST_CASE(means_are_weighted_by_time_and_bytes_add_up) {
  const Samples samples = {{0, 100, {1.0, 0.5, 10, 1}}, {100, 400, {0.2, 0.1, 30, 2}}};
  const CounterSums sums = sum_counters(samples);
  BOOST_TEST(sums.num_samples == 2);
  BOOST_TEST(sums.num_rejected == 0);
  BOOST_TEST(sums.covered_ns == 400);
  BOOST_TEST(*sums.sm_active_ratio == (100 * 1.0 + 300 * 0.2) / 400,
             boost::test_tools::tolerance(1e-12));
  BOOST_TEST(*sums.tensor_active_ratio == 0.2, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(*sums.dram_read_bytes == 40);
  BOOST_TEST(*sums.dram_write_bytes == 3);
}

BOOST_AUTO_TEST_CASE(nothing_gives_nothing) {
  const CounterSums sums = sum_counters({});
  BOOST_TEST(sums.num_samples == 0);
  BOOST_TEST(sums.covered_ns == 0);
  BOOST_TEST(!sums.sm_active_ratio.has_value());
  BOOST_TEST(!sums.tensor_active_ratio.has_value());
  BOOST_TEST(!sums.dram_read_bytes.has_value());
  BOOST_TEST(!sums.dram_write_bytes.has_value());
}

BOOST_AUTO_TEST_CASE(gaps_are_not_covered_and_do_not_dilute) {
  const Samples samples = {{0, 100, {0.8, 0, 10, 0}}, {900, 1000, {0.6, 0, 10, 0}}};
  const CounterSums sums = sum_counters(samples, {0, 1000});
  BOOST_TEST(sums.covered_ns == 200);
  BOOST_TEST(*sums.sm_active_ratio == 0.7, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(*sums.dram_read_bytes == 20);  // of the covered time
}

BOOST_AUTO_TEST_CASE(a_window_takes_its_part_of_samples_on_its_edges) {
  const Samples samples = {{0, 100, {1, 0, 100, 0}},
                           {100, 200, {0.5, 0, 40, 8}},
                           {200, 300, {0, 0, 100, 0}},
                           {300, 400, {1, 1, 1000, 1000}}};
  const CounterSums sums = sum_counters(samples, {75, 250});
  BOOST_TEST(sums.num_samples == 3);
  BOOST_TEST(sums.num_rejected == 0);  // the last is outside, that is no fault
  BOOST_TEST(sums.covered_ns == 175);
  BOOST_TEST(*sums.dram_read_bytes == 25 + 40 + 50);
  BOOST_TEST(*sums.dram_write_bytes == 8);
  BOOST_TEST(*sums.sm_active_ratio == (25 * 1 + 100 * 0.5) / 175,
             boost::test_tools::tolerance(1e-12));
  BOOST_TEST(*sums.tensor_active_ratio == 0.0);
  // Windows that tile the whole have its sums.
  int64_t bytes = 0;
  int64_t covered_ns = 0;
  for (int64_t start = 0; start < 400; start += 50) {
    const CounterSums part = sum_counters(samples, {start, start + 50});
    bytes += *part.dram_read_bytes;
    covered_ns += part.covered_ns;
  }
  BOOST_TEST(bytes == *sum_counters(samples).dram_read_bytes);
  BOOST_TEST(covered_ns == 400);
}

BOOST_AUTO_TEST_CASE(a_window_within_one_sample) {
  const Samples samples = {{0, 1000, {0.5, 0.25, 1000, 10}}};
  const CounterSums sums = sum_counters(samples, {400, 600});
  BOOST_TEST(sums.covered_ns == 200);
  BOOST_TEST(*sums.dram_read_bytes == 200);
  BOOST_TEST(*sums.dram_write_bytes == 2);
  BOOST_TEST(*sums.sm_active_ratio == 0.5);
  BOOST_TEST(sum_counters(samples, {600, 400}).num_samples == 0);  // a window of no length
  BOOST_TEST(sum_counters(samples, {500, 500}).num_samples == 0);
}

BOOST_AUTO_TEST_CASE(samples_of_no_length_are_rejected) {
  const Samples samples = {
      {50, 50, {1, 1, 1e6, 1e6}}, {80, 60, {1, 1, 1e6, 1e6}}, {100, 200, {0.5, 0.5, 10, 10}}};
  const CounterSums sums = sum_counters(samples, {0, 1000});
  BOOST_TEST(sums.num_samples == 1);
  BOOST_TEST(sums.num_rejected == 2);
  BOOST_TEST(*sums.dram_read_bytes == 10);
  BOOST_TEST(*sums.sm_active_ratio == 0.5);
}

BOOST_AUTO_TEST_CASE(a_counter_that_no_sample_has_is_left_out) {
  const Samples samples = {{0, 100, {0.5, kNaN, 10, kNaN}}, {100, 200, {0.7, kNaN, 10, kNaN}}};
  const CounterSums sums = sum_counters(samples);
  BOOST_TEST(sums.num_samples == 2);
  BOOST_TEST(*sums.sm_active_ratio == 0.6, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(!sums.tensor_active_ratio.has_value());
  BOOST_TEST(*sums.dram_read_bytes == 20);
  BOOST_TEST(!sums.dram_write_bytes.has_value());
  // Where it is only outside of the window, too.
  Samples more = samples;
  more.push_back({200, 300, {0.5, 0.5, 10, 10}});
  BOOST_TEST(!sum_counters(more, {0, 200}).tensor_active_ratio.has_value());
  BOOST_TEST(sum_counters(more, {0, 200}).num_samples == 2);
}

BOOST_DATA_TEST_CASE(a_value_that_is_none_rejects_its_sample_for_all_counters,
                     data::make({kNaN, kInfinity, -kInfinity, -1.0, 1e300}) ^
                         data::make({0, 1, 2, 3, 2}),
                     value, counter) {
  Samples samples = {{0, 100, {0.5, 0.5, 10, 10}}, {100, 200, {0.5, 0.5, 10, 10}}};
  samples[1].values.at(static_cast<size_t>(counter)) = value;
  const CounterSums sums = sum_counters(samples);
  BOOST_TEST(sums.num_samples == 1);
  BOOST_TEST(sums.num_rejected == 1);
  BOOST_TEST(sums.covered_ns == 100);
  BOOST_TEST(*sums.dram_read_bytes == 10);
}

BOOST_AUTO_TEST_CASE(no_values_at_all) {
  const Samples samples(3, {0, 100, {kNaN, kNaN, kNaN, kNaN}});
  const CounterSums sums = sum_counters(samples);
  BOOST_TEST(sums.num_samples == 0);
  BOOST_TEST(sums.num_rejected == 3);
  BOOST_TEST(sums.covered_ns == 0);
  BOOST_TEST(!sums.sm_active_ratio.has_value());
}

BOOST_AUTO_TEST_CASE(a_ratio_is_never_above_one) {
  const Samples samples = {{0, 100, {1.003, 40.0, 0, 0}}, {100, 200, {0.5, 0, 0, 0}}};
  const CounterSums sums = sum_counters(samples);
  BOOST_TEST(*sums.sm_active_ratio == 0.75, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(*sums.tensor_active_ratio == 0.5, boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(time_that_two_samples_share_is_covered_once) {
  const Samples samples = {
      {150, 250, {0, 0, 1, 0}}, {0, 200, {0, 0, 1, 0}}, {20, 40, {0, 0, 1, 0}}};
  const CounterSums sums = sum_counters(samples);
  BOOST_TEST(sums.covered_ns == 250);
  BOOST_TEST(*sums.dram_read_bytes == 3);  // counts are real, only the times are inexact
}

BOOST_AUTO_TEST_CASE(broken_times_do_not_overflow) {
  const Samples samples = {{kMin, kMax, {1, 1, 1e15, 1e15}},
                           {kMin, 0, {1, 1, 1e15, 1e15}},
                           {0, kMax, {1, 1, 1e15, 1e15}},
                           {kMax, kMin, {1, 1, 1, 1}}};
  const CounterSums all = sum_counters(samples);
  BOOST_TEST(all.num_samples == 3);
  BOOST_TEST(all.covered_ns == kMax);
  BOOST_TEST(*all.sm_active_ratio == 1.0);
  BOOST_TEST(sum_counters(samples, {10, 20}).covered_ns == 10);
}

BOOST_AUTO_TEST_CASE(large_counts_stay_exact) {
  const Samples samples(10'000, {0, 100, {0, 0, 335'000'001, 1}});
  BOOST_TEST(*sum_counters(samples).dram_read_bytes == 3'350'000'010'000);
}

BOOST_AUTO_TEST_CASE(whether_samples_lie_in_a_window) {
  const Samples samples = {{100, 200, {}}, {300, 300, {}}};
  BOOST_TEST(any_sample_in(samples, {150, 160}));
  BOOST_TEST(any_sample_in(samples, {0, 101}));
  BOOST_TEST(!any_sample_in(samples, {0, 100}));
  BOOST_TEST(!any_sample_in(samples, {200, 400}));
  BOOST_TEST(!any_sample_in({}, {}));
}

BOOST_AUTO_TEST_SUITE_END()

// The real CUPTI, with and without a card.

boost::test_tools::assertion_result has_a_gpu(boost::unit_test::test_unit_id /*id*/) {
  int num_devices = 0;
  return cudaGetDeviceCount(&num_devices) == cudaSuccess && num_devices > 0;
}
boost::test_tools::assertion_result has_no_gpu(boost::unit_test::test_unit_id id) {
  return !has_a_gpu(id);
}
/// Few users may count; a machine where they may not tests only the note.
boost::test_tools::assertion_result may_count(boost::unit_test::test_unit_id id) {
  if (!has_a_gpu(id)) return false;
  const std::unique_ptr<DeviceCounters> counters = make_device_counters({});
  boost::test_tools::assertion_result result(counters->is_active());
  result.message() << counters->note();
  return result;
}

BOOST_AUTO_TEST_CASE(without_a_gpu_there_is_a_note, *boost::unit_test::precondition(has_no_gpu)) {
  const std::unique_ptr<DeviceCounters> counters = make_device_counters({});
  BOOST_TEST_MESSAGE(counters->note());
  BOOST_TEST(!counters->is_active());
  BOOST_TEST(counters->note().starts_with("GPU counters are not sampled: "));
  counters->begin_step();
  BOOST_TEST(counters->end_step().samples.empty());
}

BOOST_AUTO_TEST_SUITE(on_a_gpu_counters)

/// Copies that no cache holds are read once and written once.
BOOST_AUTO_TEST_CASE(copies_are_counted, *boost::unit_test::precondition(may_count)) {
  constexpr size_t kBytes = 512 << 20;
  constexpr int kNumCopies = 20;
  constexpr double kCopied = static_cast<double>(kBytes) * kNumCopies;
  const std::unique_ptr<DeviceCounters> counters = make_device_counters({});
  const std::unique_ptr<DeviceRecorder> recorder = make_cupti_recorder(0);
  BOOST_TEST_MESSAGE(counters->note());
  BOOST_TEST_MESSAGE(recorder->note());
  for (const std::string& metric : counters->metrics()) BOOST_TEST_MESSAGE(metric);
  void* from = nullptr;
  void* to = nullptr;
  BOOST_REQUIRE(cudaMalloc(&from, kBytes) == cudaSuccess);
  BOOST_REQUIRE(cudaMalloc(&to, kBytes) == cudaSuccess);
  for (int number = 0; number < 3; ++number) {
    counters->begin_step();
    recorder->begin_step(number);
    for (int i = 0; i < kNumCopies; ++i) {
      BOOST_TEST(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice) == cudaSuccess);
    }
    const DeviceStep trace = recorder->end_step();
    const CounterStep step = counters->end_step();
    BOOST_TEST_MESSAGE(fmt::format(
        "{} samples, {} rejected, {:.3f} of {:.3f} ms covered, SM {:.3f}, tensor {:.3f}, read {}, "
        "written {} bytes",
        step.num_samples, step.num_rejected, static_cast<double>(step.covered_ns) * 1e-6,
        static_cast<double>(step.window.end_ns - step.window.start_ns) * 1e-6,
        step.sm_active_ratio.value_or(-1), step.tensor_active_ratio.value_or(-1),
        step.dram_read_bytes.value_or(-1), step.dram_write_bytes.value_or(-1)));
    BOOST_TEST(trace.ranks.at(0).trace.records.size() == static_cast<size_t>(kNumCopies));
    BOOST_TEST(step.is_on_wall_clock);
    BOOST_TEST(!step.is_truncated);
    BOOST_TEST(step.num_samples > 10);
    BOOST_REQUIRE(step.dram_read_bytes.has_value());
    BOOST_REQUIRE(step.dram_write_bytes.has_value());
    for (const int64_t bytes : {*step.dram_read_bytes, *step.dram_write_bytes}) {
      BOOST_TEST(static_cast<double>(bytes) > 0.8 * kCopied);
      BOOST_TEST(static_cast<double>(bytes) < 1.5 * kCopied);
    }
    BOOST_REQUIRE(step.tensor_active_ratio.has_value());
    BOOST_TEST(*step.tensor_active_ratio < 0.01);
  }
  cudaFree(from);
  cudaFree(to);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::profiler
