// Curves of a hardware file that was probed on the machine at hand are plans' rates there.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "sweeps/planning/estimate.h"
#include "sweeps/planning/machines.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

using nlohmann::json;
using spec::PrecisionRecipe;
using tests::Answer;
using tests::Cli;
using tuner::planner::Rates;

namespace {

spec::HardwareSpec probed_h100() {
  spec::HardwareSpec hardware = *machine_of("h100-80g", 8);
  hardware.efficiency[static_cast<size_t>(spec::Work::product)] = 0.71;
  hardware.sources["efficiency"] = spec::kProbedHere;
  return hardware;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(probed_machine)

BOOST_AUTO_TEST_CASE(shipped_files_keep_the_shared_fit) {
  for (const char* name : {"h100-80g", "h200"}) {
    const spec::HardwareSpec hardware = *machine_of(name, 8);
    BOOST_TEST(hardware.efficiency[static_cast<size_t>(spec::Work::product)] < 1);
    BOOST_TEST(!is_probed_here(hardware));
    const Calibration same = with_probed(default_calibration(), hardware);
    BOOST_TEST(to_json(same) == to_json(default_calibration()));
    BOOST_TEST(!same.is_probed);
  }
}

BOOST_AUTO_TEST_CASE(curves_take_the_place_of_rates_in_16_bits) {
  const spec::HardwareSpec hardware = probed_h100();
  const Calibration& shipped = default_calibration();
  const Calibration probed = with_probed(shipped, hardware);
  BOOST_TEST(probed.is_probed);
  BOOST_TEST(probed.rates.product_hopper == 0.71);
  BOOST_TEST(probed.rates.product_hopper_fp8 == shipped.rates.product_hopper_fp8);
  BOOST_TEST(probed.rates.product_blackwell == shipped.rates.product_blackwell);
  BOOST_TEST(probed.basis.starts_with("the hardware file's probe, over "), probed.basis);
  // No published run says how far off such rates are; FP8 has those that it had.
  BOOST_TEST(!num_runs_behind(probed, hardware, PrecisionRecipe::bf16).has_value());
  const auto fp8 = PrecisionRecipe::fp8_blockwise;
  BOOST_TEST((num_runs_behind(probed, hardware, fp8) == num_runs_behind(shipped, hardware, fp8)));
  const Rates of_case = probed.for_case(hardware, "natural").rates;
  const Rates of_shipped = shipped.for_case(hardware, "natural").rates;
  BOOST_TEST(of_case.case_factor[static_cast<size_t>(PrecisionRecipe::bf16)] == 1);
  BOOST_TEST(of_case.case_factor[static_cast<size_t>(fp8)] ==
             of_shipped.case_factor[static_cast<size_t>(fp8)]);
}

// Curves of a CPU say nothing of the devices that plans are for.
BOOST_AUTO_TEST_CASE(a_cpu_changes_nothing) {
  spec::HardwareSpec hardware = probed_h100();
  hardware.peak_flops_per_s = 1e12;
  BOOST_TEST(!with_probed(default_calibration(), hardware).is_probed);
}

BOOST_FIXTURE_TEST_CASE(plan_and_estimate_take_a_probed_file, Cli) {
  const std::string probed = folder.file("here.json");
  const std::string named = folder.file("named.json");
  json file = to_json(probed_h100());
  tests::write_text(probed, file.dump());
  file["sources"]["efficiency"] = "somebody's notes";
  tests::write_text(named, file.dump());
  const auto plan_on = [&](const std::string& machine, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"plan",   "--model", "qwen3-30b-a3b", "--hardware", machine,
                                      "--gpus", "8",       "--format",      "json",       "--fix",
                                      "tp=1",   "--fix",   "pp=1"};
    words.insert(words.end(), more.begin(), more.end());
    const Answer answer = run(words);
    BOOST_TEST_REQUIRE(answer.code <= 1, answer.err);
    return json::parse(answer.out)["plans"][0];
  };
  const json own = plan_on(probed);
  const json shared = plan_on(named);
  const std::string faster = folder.file("faster.json");
  file = to_json(probed_h100());
  file["efficiency"]["product"] = 0.8;
  tests::write_text(faster, file.dump());
  BOOST_TEST(own["grade"] == "calibrated");
  BOOST_TEST(own["num_runs_behind"].is_null());
  BOOST_TEST(shared["num_runs_behind"].is_number());
  BOOST_TEST(own["tflops_per_gpu"] != shared["tflops_per_gpu"]);
  BOOST_TEST(plan_on(faster)["tflops_per_gpu"].get<double>() > own["tflops_per_gpu"].get<double>());
  // A calibration that is named leads.
  BOOST_TEST(plan_on(probed, {"--calibration", "published"})["tflops_per_gpu"] ==
             shared["tflops_per_gpu"]);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
