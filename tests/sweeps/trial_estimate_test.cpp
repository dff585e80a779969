// A trial of moetune's own engine priced by its program: its intervals, and uneven routing.
#include "sweeps/planning/trial_estimate.h"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "engine/spec/sweep_spec.h"
#include "tests/spec/spec_samples.h"

namespace moetune::sweeps {
namespace {

/// The quick start, its experts on four ranks, on devices of so much memory.
spec::TrialSpec quickstart(int64_t memory_bytes) {
  const std::string folder = std::string(MOETUNE_SOURCE_DIR) + "/sweeps/configs";
  const char* const path = "sweeps/configs/quickstart.json";
  spec::TrialSpec trial =
      spec::sweep_from_json(spec::parse_json(spec::samples::read_file(path), path), path, folder)
          .base;
  trial.knobs.expert_model_parallel_size = 4;
  trial.hardware.memory_bytes = memory_bytes;
  return trial;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trial_estimate)

BOOST_AUTO_TEST_CASE(uneven_routing_takes_memory_and_time) {
  const spec::TrialSpec trial = quickstart(0);
  const TrialEstimate even = estimate_trial(trial, 1);
  const TrialEstimate uneven = estimate_trial(trial, 2);
  BOOST_TEST(even.peak_bytes.high == uneven.peak_bytes.value);
  BOOST_TEST(uneven.peak_bytes.value > 1.1 * even.peak_bytes.value);
  BOOST_TEST(uneven.step_ns.value > 1.1 * even.step_ns.value);
  // A rank of four receives at most all rows.
  const TrialEstimate all = estimate_trial(trial, 4);
  BOOST_TEST(all.peak_bytes.high == all.peak_bytes.value);
  BOOST_TEST(estimate_trial(trial, 1000).step_ns.value == all.step_ns.value);
}

BOOST_AUTO_TEST_CASE(it_fits_up_to_a_load) {
  const double even = estimate_trial(quickstart(0), 1).peak_bytes.value;
  const double twice = estimate_trial(quickstart(0), 2).peak_bytes.value;
  const auto on = [](double bytes, double load) {
    return estimate_trial(quickstart(static_cast<int64_t>(bytes)), load);
  };
  const TrialEstimate between = on((even + twice) / 2, 1);
  BOOST_TEST((between.verdict == Verdict::fits));
  BOOST_TEST(between.load_that_fits > 1.3);
  BOOST_TEST(between.load_that_fits < 1.7);
  const TrialEstimate just = on((even + twice) / 2, between.load_that_fits);
  BOOST_TEST((just.verdict == Verdict::fits));
  BOOST_TEST((on((even + twice) / 2, between.load_that_fits + 0.1).verdict == Verdict::oom));
  BOOST_TEST(on(even - 1, 1).load_that_fits == 0);
  BOOST_TEST(on(10 * twice, 1).load_that_fits == kMostLoad);
}

BOOST_AUTO_TEST_CASE(every_figure_has_its_ends) {
  const spec::TrialSpec trial = quickstart(0);
  const nlohmann::json row = to_json(estimate_trial(trial, 1), trial);
  for (const char* key : {"peak_allocated_bytes", "peak_reserved_bytes", "step_time_ns",
                          "tokens_per_s_per_gpu", "tflops_per_gpu"}) {
    BOOST_TEST_CONTEXT(key) {
      const auto value = row.at(key).get<double>();
      BOOST_TEST(value > 0);
      BOOST_TEST(row.at(std::string(key) + "_low").get<double>() <= value);
      BOOST_TEST(row.at(std::string(key) + "_high").get<double>() > value);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
