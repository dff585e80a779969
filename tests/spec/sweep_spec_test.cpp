// Reading sweep files: what they mean, and what is said about the ones that are wrong.
#include "engine/spec/sweep_spec.h"

#include <unistd.h>

#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <numeric>
#include <set>

#include "tests/spec/spec_samples.h"

namespace moetune::spec {
BOOST_AUTO_TEST_SUITE(sweep_spec)

namespace {

namespace data = boost::unit_test::data;
using samples::contains;
using samples::json;

/// A folder that vanishes with the test.
struct Folder {
  Folder()
      : path(std::filesystem::temp_directory_path() /
             ("sweep_spec_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name) << text;
  }
  std::filesystem::path path;
};

json document() {
  return {{"name", "small"},
          {"model", samples::qwen3_moe()},
          {"hardware", samples::cluster()},
          {"data_path", "corpus"},
          {"training", {{"global_batch_size", 16}, {"seq_length", 64}}},
          {"knobs", {{"data_parallel_size", 8}}},
          {"space",
           {{"micro_batch_size", {1, 2}},
            {"recompute", {"none", "moe_act,norm"}},
            {"overlap_grad_reduce", {false, true}}}}};
}

SweepSpec read(const json& sweep, const std::string& folder = "/base") {
  return sweep_from_json(sweep, "sweep.json", folder);
}

std::string error_of(const json& sweep, const std::string& folder = "/base") {
  return samples::usage_error([&] { read(sweep, folder); });
}

BOOST_AUTO_TEST_CASE(a_small_file_is_read) {
  const SweepSpec sweep = read(document());
  BOOST_TEST(sweep.name == "small");
  BOOST_TEST(sweep.base.model.num_experts == 8);
  BOOST_TEST(sweep.base.hardware.name == "two-by-four");
  BOOST_TEST(sweep.base.knobs.data_parallel_size == 8);
  BOOST_TEST(sweep.base.training.global_batch_size == 16);
  BOOST_TEST(sweep.base.training.seq_length == 64);
  BOOST_TEST(sweep.base.data_path == "/base/corpus");
  BOOST_TEST_REQUIRE(sweep.space.size() == 3U);
  BOOST_TEST(sweep.space.at("micro_batch_size") == (std::vector<std::string>{"1", "2"}),
             boost::test_tools::per_element());
  // Sets come out in the table's order.
  BOOST_TEST(sweep.space.at("recompute") == (std::vector<std::string>{"none", "norm,moe_act"}),
             boost::test_tools::per_element());
  BOOST_TEST(sweep.space.at("overlap_grad_reduce") == (std::vector<std::string>{"false", "true"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(what_is_left_out_has_the_documented_default) {
  json file = document();
  file.erase("space");
  const SweepSpec sweep = read(file);
  const SweepSpec defaults;
  BOOST_TEST(sweep.space.empty());
  BOOST_TEST(sweep.strategy == "three_walls");
  BOOST_TEST(sweep.budget.max_trials == defaults.budget.max_trials);
  BOOST_TEST(sweep.budget.max_seconds == defaults.budget.max_seconds);
  BOOST_TEST(sweep.budget.trial_timeout_s == defaults.budget.trial_timeout_s);
  BOOST_TEST(sweep.scale_trials == defaults.scale_trials);
  BOOST_TEST(sweep.min_gain_ratio == defaults.min_gain_ratio);
  BOOST_TEST(sweep.validate_steps == defaults.validate_steps);
  BOOST_TEST(sweep.validate_max_loss == defaults.validate_max_loss);
  BOOST_TEST(sweep.memory_margin_ratio == defaults.memory_margin_ratio);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_judged_is_refused) {
  const auto refusal = [](const char* key, const json& value) {
    json file = document();
    file[key] = value;
    return error_of(file);
  };
  BOOST_TEST(contains(refusal("num_steps", 5), "key 'num_steps' is 5, expected at least 6"));
  BOOST_TEST(contains(refusal("trace", "none"), "key 'trace'"));
  BOOST_TEST(contains(refusal("num_traced_steps", 0), "key 'num_traced_steps'"));
  json other = document();
  other["strategy"] = "grid";
  other["trace"] = "none";
  BOOST_TEST((read(other).base.trace == TraceLevel::none));  // only the workflow reads walls
}

BOOST_AUTO_TEST_CASE(a_space_too_large_to_enumerate_is_refused) {
  json file = document();
  std::vector<int> many(20'001);
  std::iota(many.begin(), many.end(), 1);
  file["space"]["micro_batch_size"] = many;
  BOOST_TEST(contains(error_of(file), "more than 20000 layouts"));
}

BOOST_AUTO_TEST_CASE(every_key_reaches_its_member) {
  json file = document();
  file.update(
      {{"strategy", "other"},
       {"budget",
        {{"max_trials", 7}, {"min_trials", 5}, {"max_seconds", 8}, {"trial_timeout_s", 2.5}}},
       {"scale_trials", 3},
       {"min_gain_ratio", 0.25},
       {"validate_steps", 11},
       {"validate_max_loss", 1.5},
       {"memory_margin_ratio", 0.125},
       {"clock", "virtual_modelled"},
       {"dtype", "f64"},
       {"trace", "all"},
       {"num_warmup_steps", 2},
       {"num_steps", 6},
       {"num_traced_steps", 3},
       {"reference_tolerance", 0.5},
       {"data_path", "/elsewhere/corpus"}});
  const SweepSpec sweep = read(file);
  BOOST_TEST(sweep.strategy == "other");
  BOOST_TEST(sweep.budget.max_trials == 7);
  BOOST_TEST(sweep.budget.min_trials == 5);
  BOOST_TEST(sweep.budget.max_seconds == 8);
  BOOST_TEST(sweep.budget.trial_timeout_s == 2.5);
  BOOST_TEST(sweep.scale_trials == 3);
  BOOST_TEST(sweep.min_gain_ratio == 0.25);
  BOOST_TEST(sweep.validate_steps == 11);
  BOOST_TEST(sweep.validate_max_loss == 1.5);
  BOOST_TEST(sweep.memory_margin_ratio == 0.125);
  BOOST_TEST((sweep.base.clock == ClockMode::virtual_modelled));
  BOOST_TEST((sweep.base.dtype == DType::f64));
  BOOST_TEST((sweep.base.trace == TraceLevel::all));
  BOOST_TEST(sweep.base.num_warmup_steps == 2);
  BOOST_TEST(sweep.base.num_steps == 6);
  BOOST_TEST(sweep.base.num_traced_steps == 3);
  BOOST_TEST(sweep.base.reference_tolerance == 0.5);
  BOOST_TEST(sweep.base.data_path == "/elsewhere/corpus");
}

BOOST_AUTO_TEST_CASE(model_and_hardware_may_be_files) {
  const Folder folder;
  folder.write("model.json", samples::qwen3_moe().dump());
  folder.write("hardware.json", samples::cluster().dump());
  json file = document();
  file["model"] = "model.json";
  file["hardware"] = (folder.path / "hardware.json").string();
  const SweepSpec sweep = read(file, folder.path);
  BOOST_TEST(sweep.base.model.hidden_size == 32);
  BOOST_TEST(sweep.base.hardware.num_devices() == 8);
}

BOOST_AUTO_TEST_CASE(a_wrong_file_is_named) {
  const Folder folder;
  json file = document();
  file["model"] = "missing.json";
  const std::string missing = error_of(file, folder.path);
  BOOST_TEST(contains(missing, "sweep.json"), missing);
  BOOST_TEST(contains(missing, "'model'"), missing);
  BOOST_TEST(contains(missing, (folder.path / "missing.json").string()), missing);

  // A folder can be opened, but it is no file.
  file["model"] = ".";
  BOOST_TEST(contains(error_of(file, folder.path), "'model'"));

  folder.write("broken.json", "{\"hidden_size\": ");
  file["model"] = "broken.json";
  const std::string broken = error_of(file, folder.path);
  BOOST_TEST(contains(broken, (folder.path / "broken.json").string()), broken);

  // What is wrong inside a file is said of that file.
  json hardware = samples::cluster();
  hardware["launch_ns"] = "soon";
  folder.write("hardware.json", hardware.dump());
  file = document();
  file["hardware"] = "hardware.json";
  const std::string inside = error_of(file, folder.path);
  BOOST_TEST(contains(inside, (folder.path / "hardware.json").string()), inside);
  BOOST_TEST(contains(inside, "launch_ns"), inside);
  BOOST_TEST(contains(inside, "soon"), inside);
}

/// A change of document() as a JSON merge patch, and what the message must name.
struct Wrong {
  const char* patch;
  std::vector<std::string> named;
};
std::ostream& operator<<(std::ostream& out, const Wrong& wrong) { return out << wrong.patch; }

const std::vector<Wrong> kWrong = {
    {R"({"name": null})", {"name"}},
    {R"({"name": 3})", {"name", "3"}},
    {R"({"model": 3})", {"model", "3", "path"}},
    {R"({"model": null})", {"model"}},
    {R"({"hardware": null})", {"hardware"}},
    {R"({"buget": {}})", {"buget", "budget"}},
    {R"({"budget": 3})", {"budget", "3"}},
    {R"({"budget": {"max_trial": 3}})", {"budget.max_trial", "max_trials"}},
    {R"({"budget": {"max_trials": 0}})", {"budget.max_trials", "0"}},
    {R"({"budget": {"max_trials": 3}})", {"budget.max_trials", "3", "from 4"}},
    {R"({"budget": {"max_seconds": "long"}})", {"budget.max_seconds", "long"}},
    {R"({"budget": {"trial_timeout_s": -1}})", {"budget.trial_timeout_s", "-1"}},
    {R"({"knobs": {"micro_batch": 1}})", {"micro_batch", "micro_batch_size"}},
    {R"({"knobs": {"micro_batch_size": "x"}})", {"micro_batch_size", "x"}},
    {R"({"training": {"seq_lenght": 1}})", {"seq_lenght", "seq_length"}},
    {R"({"space": []})", {"space"}},
    {R"({"space": {"micro_batch": [1]}})", {"micro_batch", "micro_batch_size"}},
    {R"({"space": {"dp": [1]}})", {"key 'space.dp'", "did you mean 'data_parallel_size'?"}},
    {R"({"space": {"offload": ["moe_act"]}})", {"key 'space.offload'", "rule engine_runs_knob"}},
    {R"({"space": {"micro_batch_size": 1}})", {"space.micro_batch_size", "1"}},
    {R"({"space": {"micro_batch_size": []}})", {"space.micro_batch_size"}},
    {R"({"space": {"micro_batch_size": [0]}})", {"space.micro_batch_size", "0"}},
    {R"({"space": {"micro_batch_size": [1.5]}})", {"space.micro_batch_size"}},
    {R"({"space": {"micro_batch_size": ["many"]}})", {"space.micro_batch_size", "many"}},
    {R"({"space": {"micro_batch_size": [[1]]}})", {"space.micro_batch_size"}},
    {R"({"space": {"micro_batch_size": [1, 2, 1]}})", {"space.micro_batch_size", "1"}},
    {R"({"space": {"recompute": ["norm,moe_act", "moe_act,norm"]}})", {"space.recompute"}},
    {R"({"space": {"recompute": ["norms"]}})", {"space.recompute", "norms"}},
    {R"({"space": {"overlap_grad_reduce": [1]}})", {"space.overlap_grad_reduce"}},
    {R"({"scale_trials": -1})", {"scale_trials", "-1"}},
    {R"({"min_gain_ratio": 2})", {"min_gain_ratio", "2"}},
    {R"({"validate_steps": 0})", {"validate_steps", "0"}},
    {R"({"validate_max_loss": "low"})", {"validate_max_loss", "low"}},
    {R"({"memory_margin_ratio": 1})", {"memory_margin_ratio", "1"}},
    {R"({"clock": "sundial"})", {"clock", "sundial", "wall"}},
};

BOOST_DATA_TEST_CASE(mistakes_are_named, data::make(kWrong), wrong) {
  json file = document();
  file.merge_patch(json::parse(wrong.patch));
  const std::string message = error_of(file);
  BOOST_TEST_CONTEXT("message: " << message) {
    BOOST_TEST(contains(message, "sweep.json"));
    for (const std::string& part : wrong.named) {
      BOOST_TEST_CONTEXT(part) { BOOST_TEST(contains(message, part)); }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_document_that_is_no_object_is_refused) {
  for (const char* text : {"[]", "3", "null", "\"quickstart\""}) {
    BOOST_TEST(contains(error_of(json::parse(text)), "sweep.json"));
  }
}

const std::string kConfigs = "sweeps/configs";

SweepSpec committed_sweep(const std::string& name) {
  const std::string path = kConfigs + "/" + name + ".json";
  const std::string folder = std::string(MOETUNE_SOURCE_DIR) + "/" + kConfigs;
  return sweep_from_json(parse_json(samples::read_file(path), path), path, folder);
}

BOOST_AUTO_TEST_CASE(the_committed_quickstart_can_run) {
  const SweepSpec sweep = committed_sweep("quickstart");
  BOOST_TEST(sweep.base.hardware.num_devices() == 8);
  BOOST_TEST(sweep.space.size() >= 5U);
}

// Most are for devices that tests do not have; all of them have to start.
BOOST_AUTO_TEST_CASE(every_committed_sweep_starts_from_a_legal_point_of_its_space) {
  std::set<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(MOETUNE_SOURCE_DIR) + "/" + kConfigs)) {
    names.insert(entry.path().stem());
  }
  for (const char* name : {"quickstart", "many-experts", "eight-gpus", "single-gpu"}) {
    BOOST_TEST(names.contains(name), name);
  }
  for (const std::string& name : names) {
    BOOST_TEST_CONTEXT(name) {
      const SweepSpec sweep = committed_sweep(name);
      BOOST_TEST(sweep.name == name);
      BOOST_TEST(std::filesystem::exists(sweep.base.data_path));
      for (const Violation& violation : check_constraints(parts_of(sweep.base))) {
        BOOST_ERROR(violation.rule << ": " << violation.message);
      }
      for (const auto& [knob, values] : sweep.space) {
        const std::string start = get_knob(sweep.base.knobs, *find_knob(knob));
        BOOST_TEST((std::ranges::find(values, start) != values.end()),
                   knob << " starts at " << start);
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec
