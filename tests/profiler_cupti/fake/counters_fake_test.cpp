// The counters against a CUPTI that does what the test wants: the whole life of a step, and for
// each call that can fail a note, inactive counters, and nothing left behind.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>

#include "profiler/device/device_counters.h"
#include "profiler/timeline.h"
#include "tests/profiler_cupti/fake/fake_counters.h"
#include "tests/profiler_cupti/fake/fake_cupti.h"

namespace moetune::profiler {
namespace {

namespace data = boost::unit_test::data;
using fake::CounterMachine;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Of the next `length_ns` from now on.
fake::HardwareSample sample_from_now(double sm, double tensor, double read, double write,
                                     int64_t length_ns = 1'000) {
  const auto now = static_cast<uint64_t>(wall_ns());
  return {now, now + static_cast<uint64_t>(length_ns), {sm, tensor, read, write}};
}

/// Until the samples so far are over.
void wait_for(const fake::HardwareSample& sample) {
  while (static_cast<uint64_t>(wall_ns()) <= sample.end) {
  }
}

/// A step in which the hardware takes `num` samples of 1 us each, of 50 %, 25 %, 1000 and 10 bytes.
CounterStep step_of(DeviceCounters& counters, int num) {
  counters.begin_step();
  for (int i = 0; i < num && fake::counters.is_sampling; ++i) {
    const fake::HardwareSample sample = sample_from_now(50, 25, 1000, 10);
    fake::counters.buffer.push_back(sample);
    wait_for(sample);
  }
  return counters.end_step();
}

struct CountersFixture {
  CountersFixture() {
    fake::reset();
    fake::reset_counters();
  }
  ~CountersFixture() {
    // Everything is given back, in an order that CUPTI survives.
    BOOST_TEST(fake::counters.num_hosts == 0);
    BOOST_TEST(fake::counters.num_samplers == 0);
    BOOST_TEST(fake::counters.num_initialised == 0);
    BOOST_TEST(!fake::counters.is_sampling);
    BOOST_TEST(!fake::counters.was_misused);
  }
};

BOOST_FIXTURE_TEST_SUITE(counters_on_a_fake, CountersFixture)

BOOST_AUTO_TEST_CASE(steps_and_their_sums) {
  CounterOptions options;
  options.hardware_buffer_bytes = 1 << 20;
  options.sampling_interval_ns = 5'000;
  options.samples_per_read = 4;
  const std::unique_ptr<DeviceCounters> counters = make_device_counters(options);
  BOOST_TEST(counters->note() == "");
  BOOST_REQUIRE(counters->is_active());
  BOOST_TEST(counters->metrics().size() == 4U);
  BOOST_TEST(counters->buffer_bytes() == 1 << 20);
  BOOST_TEST(fake::counters.config.hardwareBufferSize == 1U << 20);
  BOOST_TEST(fake::counters.config.samplingInterval == 5'000U);
  BOOST_TEST(fake::counters.config.triggerMode == CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL);
  BOOST_TEST(fake::counters.config.hwBufferAppendMode ==
             CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_LATEST);
  for (const int num : {10, 0, 4, 1}) {  // more than an image holds, none, an image full
    const CounterStep step = step_of(*counters, num);
    BOOST_TEST(step.num_samples == num);
    BOOST_TEST(step.num_rejected == 0);
    BOOST_TEST(step.samples.size() == static_cast<size_t>(num));
    BOOST_TEST(!step.is_truncated);
    BOOST_TEST(step.is_on_wall_clock);
    BOOST_TEST(step.covered_ns == num * 1'000);
    BOOST_TEST(step.window.end_ns - step.window.start_ns >= step.covered_ns);
    BOOST_TEST(step.sm_active_ratio.has_value() == (num > 0));
    if (num > 0) {
      BOOST_TEST(*step.sm_active_ratio == 0.5, boost::test_tools::tolerance(1e-12));
      BOOST_TEST(*step.tensor_active_ratio == 0.25, boost::test_tools::tolerance(1e-12));
      BOOST_TEST(*step.dram_read_bytes == num * 1000);
      BOOST_TEST(*step.dram_write_bytes == num * 10);
    }
  }
  BOOST_TEST(counters->note() == "");
  BOOST_TEST(fake::counters.was_synchronised);
  BOOST_TEST(fake::counters.num_discarded == 0U);
  BOOST_TEST(fake::counters.num_hosts == 1);
}

BOOST_AUTO_TEST_CASE(what_happens_around_a_step_is_not_in_it) {
  const std::unique_ptr<DeviceCounters> counters = make_device_counters({});
  fake::HardwareSample before = sample_from_now(100, 100, 1e6, 1e6);
  wait_for(before);
  counters->begin_step();
  fake::counters.buffer.push_back(before);  // read, but before the step
  const fake::HardwareSample inside = sample_from_now(50, 25, 1000, 10);
  fake::counters.buffer.push_back(inside);
  wait_for(inside);
  const CounterStep step = counters->end_step();
  BOOST_TEST(step.samples.size() == 2U);
  BOOST_TEST(step.num_samples == 1);
  BOOST_TEST(*step.dram_read_bytes == 1000);
  BOOST_TEST(step.samples.at(0).value(Counter::sm_active) == 1.0);
}

BOOST_AUTO_TEST_CASE(another_clock_is_noticed) {
  const std::unique_ptr<DeviceCounters> counters = make_device_counters({});
  counters->begin_step();
  fake::counters.buffer = {{1'000, 2'000, {100, 50, 7, 3}}, {2'000, 5'000, {0, 50, 7, 3}}};
  const CounterStep step = counters->end_step();
  BOOST_TEST(!step.is_on_wall_clock);
  BOOST_TEST(step.num_samples == 2);
  BOOST_TEST(step.covered_ns == 4'000);
  BOOST_TEST(*step.sm_active_ratio == 0.25, boost::test_tools::tolerance(1e-12));
  BOOST_TEST(*step.dram_read_bytes == 14);
}

BOOST_AUTO_TEST_CASE(steps_that_are_not_in_turn) {
  const std::unique_ptr<DeviceCounters> counters = make_device_counters({});
  BOOST_TEST(counters->end_step().num_samples == 0);  // without a beginning
  counters->begin_step();
  fake::counters.buffer.push_back(sample_from_now(100, 100, 1e6, 1e6));
  BOOST_TEST(step_of(*counters, 2).num_samples == 2);  // begins again
  BOOST_TEST(counters->end_step().num_samples == 0);
  BOOST_TEST(counters->is_active());
  counters->begin_step();  // and is destroyed within
}

struct NoteCase {
  const char* part;  ///< of the note
  std::function<void(CounterMachine&)> break_it;
};
std::ostream& operator<<(std::ostream& out, const NoteCase& c) { return out << c.part; }

NoteCase failing(const char* function, CUptiResult result, const char* part, int call = 0) {
  return {part, [=](CounterMachine& machine) {
            machine.failing[function] = result;
            machine.failing_call = call;
          }};
}

const std::vector<NoteCase> kSetupCases = {
    {"there is no NVIDIA driver", [](CounterMachine&) { fake::machine.driver_version = 0; }},
    {"there is no usable GPU: driver version is insufficient",
     [](CounterMachine&) { fake::machine.num_devices = 0; }},
    {"libcupti has version 18, this build needs",
     [](CounterMachine&) { fake::machine.cupti_version = 18; }},
    {"there is no device 3, only 1", [](CounterMachine& m) { m.current_device = 3; }},
    {"setting the clock failed: CUPTI_ERROR_NOT_INITIALIZED",
     [](CounterMachine&) { fake::machine.clock_result = CUPTI_ERROR_NOT_INITIALIZED; }},
    failing("ProfilerInitialize", CUPTI_ERROR_UNKNOWN, "initialising CUPTI's profiler failed"),
    failing("DeviceGetChipName", CUPTI_ERROR_INVALID_DEVICE, "asking for the chip failed"),
    failing("GetCounterAvailability", CUPTI_ERROR_INSUFFICIENT_PRIVILEGES,
            "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35); it needs root, CAP_PERFMON"),
    failing("GetCounterAvailability", CUPTI_ERROR_UNKNOWN, "asking which counters there are", 1),
    failing("HostInitialize", CUPTI_ERROR_UNKNOWN, "CUPTI knows no metrics of chip GH100"),
    failing("HostInitialize", CUPTI_ERROR_UNKNOWN, "CUPTI knows no metrics of chip GH100", 2),
    failing("HostConfigAddMetrics", CUPTI_ERROR_UNKNOWN, "no SM activity (sm__cycles"),
    failing("HostGetMetricProperties", CUPTI_ERROR_UNKNOWN, "GH100 has no dram__bytes_write.sum"),
    failing("HostGetConfigImageSize", CUPTI_ERROR_UNKNOWN, "no memory writes (dram__bytes"),
    failing("HostGetConfigImage", CUPTI_ERROR_UNKNOWN, "no memory reads (dram__bytes"),
    failing("HostGetNumOfPasses", CUPTI_ERROR_UNKNOWN, "no tensor activity (sm__pipe"),
    {"has no dram__bytes_read.sum, GH100 has no dram__bytes_op_read.sum",
     [](CounterMachine& m) { m.metrics.clear(); }},
    failing("Enable", CUPTI_ERROR_INSUFFICIENT_PRIVILEGES,
            "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35); it needs root, CAP_PERFMON"),
    failing("Enable", CUPTI_ERROR_INVALID_OPERATION, "another profiler has the counters"),
    failing("Enable", CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED, "CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED"),
    failing("SetConfig", CUPTI_ERROR_NOT_SUPPORTED, "setting up the sampling failed"),
    failing("GetCounterDataSize", CUPTI_ERROR_UNKNOWN, "asking for the size of samples failed"),
    failing("CounterDataImageInitialize", CUPTI_ERROR_UNKNOWN, "preparing for samples failed"),
    {"asking which counters there are failed: 0 bytes",
     [](CounterMachine& m) { m.has_strange_image_size = true; }},
    {"asking which counters there are failed: 1099511627776 bytes",
     [](CounterMachine& m) {
       m.has_strange_image_size = true;
       m.strange_image_size = size_t{1} << 40;
     }},
};

BOOST_DATA_TEST_CASE(what_is_missing_is_a_note_and_the_run_goes_on, data::make(kSetupCases), c) {
  c.break_it(fake::counters);
  const std::unique_ptr<DeviceCounters> counters = make_device_counters({});
  BOOST_TEST_MESSAGE(counters->note());
  BOOST_TEST(!counters->is_active());
  BOOST_TEST(counters->note().starts_with("GPU counters are not sampled: "));
  BOOST_TEST(contains(counters->note(), c.part));
  BOOST_TEST(counters->metrics().empty());
  BOOST_TEST(counters->buffer_bytes() == 0);
  const CounterStep step = step_of(*counters, 3);
  BOOST_TEST(step.num_samples == 0);
  BOOST_TEST(!step.sm_active_ratio.has_value());
  BOOST_TEST(step.samples.empty());
  BOOST_TEST(fake::counters.calls["Start"] == 0);
}

const std::vector<NoteCase> kStepCases = {
    failing("Start", CUPTI_ERROR_INVALID_OPERATION, "starting failed: CUPTI_ERROR_INVALID_OPER"),
    failing("Stop", CUPTI_ERROR_UNKNOWN, "stopping failed: CUPTI_ERROR_UNKNOWN"),
    failing("DecodeData", CUPTI_ERROR_UNKNOWN, "reading the samples failed"),
    failing("GetCounterDataInfo", CUPTI_ERROR_UNKNOWN, "reading the samples failed"),
    failing("CounterDataGetSampleInfo", CUPTI_ERROR_UNKNOWN, "reading the samples failed", 1),
    failing("CounterDataImageInitialize", CUPTI_ERROR_UNKNOWN, "reading the samples failed", 1),
};

BOOST_DATA_TEST_CASE(what_fails_in_a_step_ends_the_counting, data::make(kStepCases), c) {
  c.break_it(fake::counters);
  const std::unique_ptr<DeviceCounters> counters = make_device_counters({});
  BOOST_REQUIRE(counters->is_active());
  const CounterStep step = step_of(*counters, 3);
  BOOST_TEST_MESSAGE(counters->note());
  BOOST_TEST(counters->note().starts_with("GPU counters are no longer sampled: "));
  BOOST_TEST(contains(counters->note(), c.part));
  BOOST_TEST(!counters->is_active());
  BOOST_TEST(step.is_truncated ==
             (fake::counters.calls["Start"] > 0 && !contains(counters->note(), "starting failed")));
  const std::string note = counters->note();
  const std::map<std::string, int> calls = fake::counters.calls;
  BOOST_TEST(step_of(*counters, 3).num_samples == 0);
  BOOST_TEST(counters->note() == note);
  BOOST_TEST((fake::counters.calls == calls));  // CUPTI is not asked again
}

BOOST_AUTO_TEST_CASE(options_are_checked) {
  for (const CounterOptions& options :
       {CounterOptions{.device = 7}, CounterOptions{.sampling_interval_ns = 0},
        CounterOptions{.hardware_buffer_bytes = -1}, CounterOptions{.samples_per_read = 0}}) {
    BOOST_TEST(!make_device_counters(options)->is_active());
  }
  BOOST_TEST(fake::counters.calls.empty());
}

BOOST_AUTO_TEST_CASE(a_metric_that_does_not_fit_is_left_out) {
  CounterMachine& machine = fake::counters;
  machine.metrics["sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"] = 1;
  machine.metrics.erase("dram__bytes_read.sum");
  machine.metrics["dram__bytes_op_read.sum"] = 0;
  const std::unique_ptr<DeviceCounters> counters = make_device_counters({});
  BOOST_TEST(counters->is_active());
  BOOST_TEST(counters->note() ==
             "GPU counters are sampled in part: no tensor activity "
             "(sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed would take "
             "2 passes with the others, GH100 has no "
             "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed).");
  const std::vector<std::string> expected = {"sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
                                             "dram__bytes_op_read.sum", "dram__bytes_write.sum"};
  BOOST_TEST(counters->metrics() == expected, boost::test_tools::per_element());
  const CounterStep step = step_of(*counters, 5);
  BOOST_TEST(step.num_samples == 5);
  BOOST_TEST(step.sm_active_ratio.has_value());
  BOOST_TEST(!step.tensor_active_ratio.has_value());
  BOOST_TEST(*step.dram_read_bytes == 5000);
  BOOST_TEST(*step.dram_write_bytes == 50);
  BOOST_TEST(std::isnan(step.samples.at(0).value(Counter::tensor_active)));
}

BOOST_AUTO_TEST_CASE(older_chips_sample_by_clock_cycles) {
  for (const char* chip : {"TU102", "GA100", "GA102"}) {
    fake::reset_counters();
    fake::counters.chip = chip;
    const std::unique_ptr<DeviceCounters> counters = make_device_counters({});
    BOOST_TEST(counters->is_active());
    const bool is_turing = std::string(chip) == "TU102";
    const bool by_cycles = std::string(chip) != "GA102";
    BOOST_TEST((fake::counters.config.triggerMode ==
                CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL) == by_cycles);
    BOOST_TEST((fake::counters.config.hwBufferAppendMode ==
                CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST) == is_turing);
  }
}

BOOST_AUTO_TEST_CASE(an_overflow_is_told) {
  const std::unique_ptr<DeviceCounters> counters = make_device_counters({});
  fake::counters.readings = {{CUPTI_SUCCESS, true}};
  const CounterStep step = step_of(*counters, 3);
  BOOST_TEST(step.is_truncated);
  BOOST_TEST(step.num_samples == 3);
  BOOST_TEST(!step_of(*counters, 3).is_truncated);
  BOOST_TEST(counters->is_active());
  BOOST_TEST(counters->note() == "");
}

BOOST_AUTO_TEST_CASE(a_lost_buffer_restarts_the_sampling) {
  CounterOptions options;
  options.samples_per_read = 4;
  const std::unique_ptr<DeviceCounters> counters = make_device_counters(options);
  fake::counters.readings = {{}, {CUPTI_ERROR_OUT_OF_MEMORY, true}};
  const CounterStep step = step_of(*counters, 10);
  BOOST_TEST(step.is_truncated);
  BOOST_TEST(step.num_samples == 4);  // what was read before
  BOOST_TEST(counters->is_active());
  BOOST_TEST(fake::counters.calls["Enable"] == 1);
  BOOST_TEST(step_of(*counters, 2).num_samples == 2);
  BOOST_TEST(fake::counters.calls["Enable"] == 2);
  BOOST_TEST(fake::counters.calls["Disable"] == 1);
  BOOST_TEST(fake::counters.num_samplers == 1);
  BOOST_TEST(step_of(*counters, 2).num_samples == 2);
  BOOST_TEST(fake::counters.calls["Enable"] == 2);
  // And where that fails:
  fake::counters.readings = {{CUPTI_ERROR_OUT_OF_MEMORY, true}};
  BOOST_TEST(step_of(*counters, 2).is_truncated);
  fake::counters.failing["Enable"] = CUPTI_ERROR_INVALID_OPERATION;
  BOOST_TEST(step_of(*counters, 2).num_samples == 0);
  BOOST_TEST(contains(counters->note(), "no longer sampled: another profiler has the counters"));
}

BOOST_AUTO_TEST_CASE(reading_ends_when_it_does_not_get_on) {
  CounterOptions options;
  options.samples_per_read = 4;
  const std::unique_ptr<DeviceCounters> counters = make_device_counters(options);
  constexpr auto kOther = CUPTI_PM_SAMPLING_DECODE_STOP_REASON_OTHER;
  constexpr auto kFull = CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL;
  // Nothing more, for no reason given: that is an end like another.
  fake::counters.readings = {{CUPTI_SUCCESS, false, kOther}, {CUPTI_SUCCESS, false, kOther}};
  CounterStep step = step_of(*counters, 4);
  BOOST_TEST(step.num_samples == 4);
  BOOST_TEST(!step.is_truncated);
  // More to come, and nothing comes.
  fake::counters.readings = {{CUPTI_SUCCESS, false, kFull}, {CUPTI_SUCCESS, false, kFull}};
  step = step_of(*counters, 4);
  BOOST_TEST(step.num_samples == 4);
  BOOST_TEST(step.is_truncated);
  BOOST_TEST(!step_of(*counters, 4).is_truncated);
  BOOST_TEST(fake::counters.calls["Enable"] == 2);
}

BOOST_AUTO_TEST_CASE(claims_of_more_samples_than_fit_are_not_believed) {
  CounterOptions options;
  options.samples_per_read = 4;
  const std::unique_ptr<DeviceCounters> counters = make_device_counters(options);
  fake::counters.num_claimed_samples = 1'000'000;
  const CounterStep step = step_of(*counters, 2);
  BOOST_TEST(step.samples.size() == 4U);  // two are zeros without values
  BOOST_TEST(step.num_samples == 2);
}

BOOST_AUTO_TEST_CASE(samples_without_values_are_told_once) {
  const std::unique_ptr<DeviceCounters> counters = make_device_counters({});
  fake::counters.failing["HostEvaluateToGpuValues"] = CUPTI_ERROR_UNKNOWN;
  for (int i = 0; i < 2; ++i) {
    const CounterStep step = step_of(*counters, 3);
    BOOST_TEST(step.num_samples == 0);
    BOOST_TEST(step.num_rejected == 3);
    BOOST_TEST(!step.dram_read_bytes.has_value());
    BOOST_TEST(counters->note() == "The 3 samples of a step have no values.");
  }
  BOOST_TEST(counters->is_active());
}

BOOST_AUTO_TEST_CASE(one_at_a_time_on_each_device) {
  fake::machine.num_devices = 2;
  std::unique_ptr<DeviceCounters> first = make_device_counters({});
  const std::unique_ptr<DeviceCounters> again = make_device_counters({});
  BOOST_TEST(again->note() ==
             "GPU counters are not sampled: device 0 is already counted in this process.");
  const std::unique_ptr<DeviceCounters> second = make_device_counters({.device = 1});
  BOOST_TEST(second->is_active());
  BOOST_TEST(fake::counters.num_initialised == 1);
  first.reset();
  BOOST_TEST(fake::counters.num_initialised == 1);  // the other needs it
  BOOST_TEST(step_of(*second, 2).num_samples == 2);
  const std::unique_ptr<DeviceCounters> third = make_device_counters({});
  BOOST_TEST(third->is_active());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::profiler
