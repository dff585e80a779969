// What a step comes to on every kind of layout, as it was recorded: the peak of every rank's memory
// by group and the modelled duration of each step, which are the same on every machine. Losses and
// gradients depend on the processor; MOETUNE_RECORD_STEPS=FILE writes them too, with one binary,
// and MOETUNE_COMPARE_STEPS=FILE compares them bit by bit, with another on the same machine.
#include <bit>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/base/fnv.h"
#include "tests/engine/parity_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(step_fixtures)

namespace {

using nlohmann::json;

constexpr int64_t kSteps = 3;
constexpr const char* kFixtures = MOETUNE_SOURCE_DIR "/tests/golden/steps.json";

/// Choices that only change the order or the memory of a step, on a layout with two of everything
/// that they touch.
constexpr const char* kChoices[] = {
    R"({"recompute": "full"})",
    R"({"recompute": "norm,core_attn,moe_act,experts"})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "recompute": "full",
        "ep_chunks_forward": 2, "ep_chunks_backward": 3})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "recompute": "norm,moe_act",
        "ep_chunks_forward": 3})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "recompute": "experts",
        "ep_chunks_backward": 4, "linear_ce_chunk_tokens": 64})",
    R"({"context_parallel_size": 2, "pipeline_model_parallel_size": 2, "recompute": "core_attn"})",
    R"({"context_parallel_size": 2, "expert_model_parallel_size": 2, "recompute": "full",
        "pipeline_model_parallel_size": 2})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2, "cuda_graph_modules": "attn"})",
    R"({"data_parallel_size": 2, "expert_model_parallel_size": 2,
        "cuda_graph_modules": "attn,moe_router,moe_preprocess"})",
    R"({"context_parallel_size": 2, "cuda_graph_modules": "attn,moe_router"})",
    R"({"data_parallel_size": 2, "cuda_graph_modules": "full_iteration",
        "overlap_grad_reduce": true})",
    R"({"data_parallel_size": 2, "pipeline_model_parallel_size": 3, "overlap_grad_reduce": true,
        "recompute": "norm"})",
    R"({"data_parallel_size": 2, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"})",
};

spec::ModelSpec tied_model() {
  spec::ModelSpec model = testing::tiny_model();
  model.ties_embeddings = true;
  return model;
}

struct Case {
  std::string name;
  spec::TrialSpec trial;
};

std::vector<Case> cases() {
  std::vector<std::string> layouts = {"{}"};
  layouts.insert(layouts.end(), std::begin(testing::kLayouts), std::end(testing::kLayouts));
  layouts.insert(layouts.end(), std::begin(kChoices), std::end(kChoices));
  const std::pair<const char*, spec::ModelSpec> models[] = {
      {"tiny", testing::tiny_model()}, {"mixed", testing::mixed_model()}, {"tied", tied_model()}};
  std::vector<Case> all;
  for (const auto& [name, model] : models) {
    for (const std::string& layout : layouts) {
      const spec::Knobs knobs = testing::knobs_of(layout);
      spec::TrialSpec trial = testing::tiny_trial(model, knobs);
      // Two nodes wherever there are ranks for them.
      if (trial.hardware.devices_per_node % 2 == 0) {
        trial.hardware.devices_per_node /= 2;
        trial.hardware.num_nodes = 2;
      }
      all.push_back({std::string(name) + " " + json::parse(layout).dump(), trial});
    }
  }
  return all;
}

uint64_t mixed(uint64_t hash, double value) {
  return base::fnv_with(hash, std::bit_cast<uint64_t>(value));
}

json record_of(const Case& each) {
  testing::check_constraints_hold(each.trial);
  const testing::TrainingRun run = testing::train(each.trial, kSteps);
  json record;
  for (const profiler::MemoryLedger& ledger : run.ledgers) {
    record["peak_by_group"].push_back(ledger.peak_by_group());
  }
  for (size_t step = 0; step < run.steps.size(); ++step) {
    const StepResult& result = run.steps[step];
    record["step_ns"].push_back(result.step_ns);
    uint64_t hash = base::kFnvStart;
    for (const double value : {result.loss, result.aux_loss, result.z_loss, result.grad_norm}) {
      hash = mixed(hash, value);
    }
    for (const auto& [name, gradient] : run.gradients[step]) {
      for (const double value : gradient) hash = mixed(hash, value);
    }
    record["bits"].push_back(hash);
  }
  return record;
}

BOOST_AUTO_TEST_CASE(steps_are_as_recorded) {
  const char* const to = std::getenv("MOETUNE_RECORD_STEPS");
  const char* const from = std::getenv("MOETUNE_COMPARE_STEPS");
  json expected;
  if (to == nullptr) {
    std::ifstream file(from != nullptr ? from : kFixtures);
    BOOST_TEST_REQUIRE(file.good());
    expected = json::parse(file);
  }
  json recorded = json::object();
  for (const Case& each : cases()) {
    BOOST_TEST_CONTEXT(each.name) {
      recorded[each.name] = record_of(each);
      if (to != nullptr) continue;
      const json& record = recorded[each.name];
      BOOST_TEST_REQUIRE(expected.contains(each.name));
      const json& old = expected.at(each.name);
      BOOST_TEST(record.at("peak_by_group") == old.at("peak_by_group"));
      BOOST_TEST(record.at("step_ns") == old.at("step_ns"));
      if (from != nullptr) BOOST_TEST(record.at("bits") == old.at("bits"));
    }
  }
  if (to == nullptr) return;
  // One row a line, so that a change of the file shows the rows that it moves.
  std::ofstream file(to);
  const char* separator = "{\n";
  for (const auto& [name, record] : recorded.items()) {
    file << separator << json(name).dump() << ": " << record.dump();
    separator = ",\n";
  }
  file << "\n}\n";
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
