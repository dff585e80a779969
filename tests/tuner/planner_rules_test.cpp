// Rules of one engine: what Megatron-Core refuses and others run, and the other way round.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string_view>

#include "tests/tuner/planner_samples.h"
#include "tuner/planner/rules.h"

namespace moetune::tuner::planner {
namespace {

using samples::machine;
using samples::moe_model;
using samples::run_of;

bool breaks(const PlanRun& run, std::string_view name) {
  const std::vector<const PlanRule*> broken = broken_rules(run);
  return std::ranges::any_of(broken, [&](const PlanRule* rule) { return rule->name == name; });
}

BOOST_AUTO_TEST_SUITE(rules_of_engines)

// Primus has DeepEP of its own; torchtitan has no capacity.
BOOST_AUTO_TEST_CASE(deepep_takes_no_padding) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.ep = 4;
  run.knobs.dispatcher = spec::Dispatcher::deepep;
  run.knobs.capacity_factor = 1;
  BOOST_TEST(broken_rules(run).empty());
  run.knobs.pad_to_capacity = true;
  BOOST_TEST(breaks(run, "deepep_without_padding"));
  PlanRun of_primus = run;
  of_primus.takes_padded_deepep = true;
  BOOST_TEST(broken_rules(of_primus).empty());
  PlanRun of_titan = run;
  of_titan.is_of_megatron = false;
  BOOST_TEST(broken_rules(of_titan).empty());
  run.knobs.dispatcher = spec::Dispatcher::hybridep;
  BOOST_TEST(broken_rules(run).empty());
}

BOOST_AUTO_TEST_CASE(own_modules_take_whole_sequences) {
  const spec::ModelSpec model = moe_model();
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.cp = 2;
  run.knobs.dp = 8;
  run.states_own_modules = true;
  run.knobs.fused_attention = false;
  BOOST_TEST(breaks(run, "own_modules_without_cp"));
  // Attention without scores is not theirs.
  run.knobs.fused_attention = true;
  BOOST_TEST(broken_rules(run).empty());
  run.knobs.fused_attention = false;
  run.states_own_modules = false;
  BOOST_TEST(broken_rules(run).empty());
}

BOOST_AUTO_TEST_CASE(multi_token_prediction_is_recomputed_by_itself) {
  spec::ModelSpec model = moe_model();
  model.mtp.depth = 1;
  model.mtp.layers = {model.kind_of(0)};
  const spec::HardwareSpec hardware = machine(16);
  PlanRun run = run_of(model, hardware);
  run.knobs.dp = 16;
  run.knobs.recompute = {spec::PlanRecompute::full};
  BOOST_TEST(broken_rules(run).empty());
  run.knobs.recompute_num_layers = 4;
  BOOST_TEST(breaks(run, "mtp_recompute_each_layer"));
  PlanRun other = run;
  other.knobs.recompute_method = spec::RecomputeMethod::block;  // none of its layers
  BOOST_TEST(broken_rules(other).empty());
  other = run;
  other.knobs.recompute = {spec::PlanRecompute::layernorm};
  BOOST_TEST(broken_rules(other).empty());
  other = run;
  other.is_of_megatron = false;
  BOOST_TEST(broken_rules(other).empty());
  const spec::ModelSpec without = moe_model();
  other = run;
  other.model = &without;
  BOOST_TEST(broken_rules(other).empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::tuner::planner
