// moetune probe on this CPU, and rates from it and from stored trials.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

using nlohmann::json;
using tests::Answer;
using tests::Cli;

namespace {

/// The engine itself in place of its stand-in; it reads the text as bytes.
struct RealEngine : Cli {
  tests::ScopedEnvironment real{"MOETUNE_RANK", tests::bin("moetune-rank")};

  RealEngine() {
    write_spec([](json& trial) {
      trial["model"]["vocab_size"] = 256;
      trial["hardware"]["memory_bytes"] = 0;
      trial["hardware"]["peak_flops_per_s"] = 1e11;
      trial["hardware"]["memory_bytes_per_s"] = 2e10;
    });
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(probe)

BOOST_FIXTURE_TEST_CASE(a_cpu_is_probed, RealEngine) {
  const std::string file = folder.file("here.json");
  const Answer answer = run({"probe", spec, "--rounds", "1", "--out", file, "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  BOOST_TEST(document["trials"].size() == 4U);
  for (const json& trial : document["trials"]) BOOST_TEST(trial["status"] == "ok");
  std::set<std::string> works;
  for (const json& rate : document["rates"]) {
    works.insert(rate["work"].get<std::string>());
    BOOST_TEST(rate["per_s_low"].get<double>() > 1e6);
    BOOST_TEST(rate["per_s_low"].get<double>() <= rate["per_s"].get<double>());
    BOOST_TEST(rate["per_s"].get<double>() <= rate["per_s_high"].get<double>());
  }
  for (const char* work : {"product", "grouped", "attention", "heavy", "light"}) {
    BOOST_TEST(works.count(work) == 1U, work);
  }
  // What is written is a hardware file with the emulated links that the trial's has.
  const json written = json::parse(tests::read_text(file));
  BOOST_TEST(written == document["hardware"]);
  BOOST_TEST(written["peak_flops_per_s"].get<double>() > 1e8);
  // What was measured has that for its source, and nothing else has.
  for (const char* key : {"efficiency", "half_rows", "peak_flops_per_s", "memory_bytes_per_s"}) {
    BOOST_TEST(written["sources"][key] == "moetune probe on the machine at hand", key);
  }
  for (const json& key : document["kept"]) {
    BOOST_TEST(!written["sources"].contains(key.get<std::string>()), key.dump());
  }
  BOOST_TEST(document["links"].empty());

  // Rates of a CPU say nothing of the devices that plans are for.
  check_refused({"calibrate", "--probe", file}, 2, {"no GPU", "peak_flops_per_s"});
  json device = written;
  device["peak_flops_per_s"] = 9.9e14;
  device["memory_bytes_per_s"] = 3.3e12;
  device["efficiency"]["attention"] = 0.4;  // beside other programs all can be measured as 1
  tests::write_text(file, device.dump());
  const Answer rates = run({"calibrate", "--probe", file});
  BOOST_TEST_REQUIRE(rates.code == 0, rates.err);
  BOOST_TEST(json::parse(rates.out)["basis"].get<std::string>().starts_with("a probe, over "));
  BOOST_TEST(!json::parse(rates.out).contains("cases"));
}

BOOST_FIXTURE_TEST_CASE(rates_are_fitted_to_stored_trials, RealEngine) {
  BOOST_TEST_REQUIRE(run({"trial", spec, "--db", db}).code == 0);
  const std::string file = folder.file("rates.json");
  const Answer made = run({"calibrate", "--db", db, "--out", file});
  BOOST_TEST_REQUIRE(made.code == 0, made.err);
  BOOST_TEST(made.err.find("rates of a CPU say nothing of theirs") != std::string::npos, made.err);
  const json rates = json::parse(tests::read_text(file));
  BOOST_TEST(rates["basis"] == "1 stored trial");
  BOOST_TEST_REQUIRE(rates["cases"].size() == 1U);
  BOOST_TEST(rates["cases"][0]["num_runs"] == 1);
  const Answer used = run({"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-8x8", "--top",
                           "1", "--calibration", file});
  BOOST_TEST(used.code == 0, used.err);
}

BOOST_FIXTURE_TEST_CASE(rates_are_fitted_to_a_log, Cli) {
  const std::string logs = std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/logs/";
  const std::string original = tests::read_text(logs + "megatron_lm.log");
  const auto median_error = [&](const std::string& ms) {
    const std::string log = folder.file("train.log");
    const std::regex time("elapsed time per iteration \\(ms\\): [0-9.]+");
    tests::write_text(log,
                      std::regex_replace(original, time, "elapsed time per iteration (ms): " + ms));
    const Answer made = run({"calibrate", "--log", log, "--hardware", "h100-80g"});
    BOOST_TEST_REQUIRE(made.code == 0, made.err);
    const json rates = json::parse(made.out);
    BOOST_TEST(rates["basis"] == "1 logged run");
    BOOST_TEST_REQUIRE(rates["cases"].size() == 1U);
    BOOST_TEST(rates["cases"][0]["hardware"] == "H100 SXM 80 GB");
    return rates["cases"][0]["median_error_ratio"].get<double>();
  };
  // The model takes 13 s for this step, and no rates make it 4.
  BOOST_TEST(median_error("13000.0") < 0.2);
  BOOST_TEST(median_error("4000.0") > 0.5);
  // Figures of all ranks for those of one would be 8 times off, above the device's peak.
  const std::string log = folder.file("train.log");
  tests::write_text(log, std::regex_replace(original, std::regex("iteration \\(ms\\): [0-9.]+"),
                                            "iteration (ms): 1600.0"));
  check_refused({"calibrate", "--log", log, "--hardware", "h100-80g"}, 2, {"of another device"});
}

BOOST_FIXTURE_TEST_CASE(what_is_no_source_of_rates_is_refused, Cli) {
  const std::string sheet = std::string(MOETUNE_SOURCE_DIR) + "/sweeps/hardware/b200.json";
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"calibrate", "--probe", sheet}, "no measured efficiencies"},
      {{"calibrate", "--probe", "nowhere.json"}, "nowhere.json"},
      {{"calibrate", "--db", "nowhere.db"}, "nowhere.db"},
      {{"calibrate", "--log", "nowhere.log", "--hardware", "h100-80g"}, "nowhere.log"},
      {{"calibrate", "--log", sheet, "--hardware", "h100-80g"}, "no log of a run"},
      {{"calibrate", "--log", sheet}, "--log needs --hardware"},
      {{"calibrate", "--model", "qwen3-30b-a3b"}, "--model needs --log"},
      {{"calibrate"}, "a file of rows"},
      {{"probe", spec, "--out", "/nowhere/file.json"}, "--out"},
      {{"probe", "nowhere.json"}, "nowhere.json"},
      {{"probe", spec, "--rounds", "0"}, "--rounds"}};
  for (const auto& [words, helps] : wrong) {
    const Answer answer = run(words);
    BOOST_TEST(answer.code == 2, helps);
    BOOST_TEST(answer.err.find(helps) != std::string::npos, answer.err);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
