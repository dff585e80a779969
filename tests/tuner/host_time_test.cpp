// What the host has to do for a layer, against what dry runs of Megatron-LM counted.
#include "tuner/planner/host_time.h"

#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tests/tuner/planner_samples.h"

namespace moetune::tuner::planner {
BOOST_AUTO_TEST_SUITE(host_time)

namespace {

using namespace samples;
using spec::Dispatcher;
using spec::PlanGraph;
using spec::PlanRecompute;

/// Of tests/engines/dry_run/host_calls.py, Megatron-LM d98e8a64: calls of Python functions, two for
/// each launch, twenty for each of Triton's.
struct Counted {
  std::string name;
  double calls = 0;
  std::function<void(spec::ModelSpec&, spec::PlanKnobs&)> change;
};

std::vector<Counted> counted_layers() {
  using M = spec::ModelSpec;
  using K = spec::PlanKnobs;
  const auto with_mla = [](M& m, K& k) {
    m.mla.kv_lora_rank = 512;
    m.shared_ffn_size = 768;
    m.num_experts = 64;
    k.ep = 8;
  };
  return {
      {"8 experts of a rank", 3788, [](M&, K&) {}},
      {"16 experts of a rank", 4252, [](M&, K& k) { k.ep = 8; }},
      {"32 experts of a rank", 5204, [](M&, K& k) { k.ep = 4; }},
      {"allgather", 3400, [](M&, K& k) { k.dispatcher = Dispatcher::allgather; }},
      {"deepep", 3428, [](M&, K& k) { k.dispatcher = Dispatcher::deepep; }},
      {"hybridep", 2959, [](M&, K& k) { k.dispatcher = Dispatcher::hybridep; }},
      {"hybridep full", 4967,
       [](M&, K& k) {
         k.dispatcher = Dispatcher::hybridep;
         k.recompute = {PlanRecompute::full};
       }},
      {"tp 2", 3903, [](M&, K& k) { k.tp = 2; }},
      {"cp 2 p2p", 4497, [](M&, K& k) { k.cp = 2; }},
      {"cp 2 a2a", 5147,
       [](M&, K& k) {
         k.cp = 2;
         k.cp_comm_type = spec::PlanCp::a2a;
       }},
      {"core_attn", 4273, [](M&, K& k) { k.recompute = {PlanRecompute::core_attn}; }},
      {"layernorm moe_act", 4337,
       [](M&, K& k) {
         k.recompute = {PlanRecompute::layernorm, PlanRecompute::moe_act};
       }},
      {"moe", 5115, [](M&, K& k) { k.recompute = {PlanRecompute::moe}; }},
      {"full", 6350, [](M&, K& k) { k.recompute = {PlanRecompute::full}; }},
      {"graphs attn", 2749, [](M&, K& k) { k.cuda_graphs = {PlanGraph::attn}; }},
      {"graphs moe_router moe_preprocess", 3313,
       [](M&, K& k) {
         k.cuda_graphs = {PlanGraph::moe_router, PlanGraph::moe_preprocess};
       }},
      {"graphs attn moe_router moe_preprocess", 2135,
       [](M&, K& k) {
         k.cuda_graphs = {PlanGraph::attn, PlanGraph::moe_router, PlanGraph::moe_preprocess};
       }},
      {"fp8 blocks", 4435, [](M&, K& k) { k.precision = spec::PrecisionRecipe::fp8_blockwise; }},
      {"fp8 tensor", 4679, [](M&, K& k) { k.precision = spec::PrecisionRecipe::fp8_current; }},
      {"fp8 delayed", 4364, [](M&, K& k) { k.precision = spec::PrecisionRecipe::fp8_delayed; }},
      {"fp8 tensor, 32 experts of a rank", 7991,
       [](M&, K& k) {
         k.precision = spec::PrecisionRecipe::fp8_current;
         k.ep = 4;
       }},
      {"shared expert", 4269, [](M& m, K&) { m.shared_ffn_size = 768; }},
      {"latent", 4644, with_mla},
      {"latent mla_up_proj", 5068,
       [=](M& m, K& k) {
         with_mla(m, k);
         k.recompute = {PlanRecompute::mla_up_proj};
       }},
      {"latent full", 7410,
       [=](M& m, K& k) {
         with_mla(m, k);
         k.recompute = {PlanRecompute::full};
       }},
      {"latent tp 2", 4953,
       [=](M& m, K& k) {
         with_mla(m, k);
         k.tp = 2;
       }},
      {"dense", 1994, [](M& m, K&) { m.num_experts = 0; }},
      {"dense without norms of queries and keys", 1690,
       [](M& m, K&) {
         m.num_experts = 0;
         m.has_qk_norm = false;
       }},
      {"dense mlp", 2392,
       [](M& m, K& k) {
         m.num_experts = 0;
         k.recompute = {PlanRecompute::mlp};
       }},
      {"dense tp 2", 2165,
       [](M& m, K& k) {
         m.num_experts = 0;
         k.tp = 2;
       }},
      {"dense core_attn", 2478,
       [](M& m, K& k) {
         m.num_experts = 0;
         k.recompute = {PlanRecompute::core_attn};
       }},
      {"dense fp8 tensor", 2358,
       [](M& m, K& k) {
         m.num_experts = 0;
         k.precision = spec::PrecisionRecipe::fp8_current;
       }},
      {"dense full", 3536,
       [](M& m, K& k) {
         m.num_experts = 0;
         k.recompute = {PlanRecompute::full};
       }},
  };
}

}  // namespace

BOOST_AUTO_TEST_CASE(layers_make_the_calls_that_were_counted) {
  for (const Counted& one : counted_layers()) {
    spec::ModelSpec model = moe_model();
    model.num_experts = 128;
    model.experts_per_token = 8;
    model.shared_ffn_size = 0;
    model.has_qk_norm = true;
    const spec::HardwareSpec hardware = machine(16);
    PlanRun run = run_of(model, hardware);
    run.knobs.ep = 16;
    one.change(model, run.knobs);
    const spec::LayerKind kind = {
        model.mla.kv_lora_rank > 0 ? spec::Mixer::mla : spec::Mixer::gqa,
        model.num_experts > 0 ? spec::FeedForward::moe : spec::FeedForward::dense};
    BOOST_TEST_CONTEXT(one.name) {
      BOOST_TEST(host_calls(run, kind, 0) == one.calls, boost::test_tools::tolerance(0.07));
    }
  }
}

// Of "frozen" layers: 3088 and 3472 calls, 170 and 210 launches become 2851 and 3059, 151 and 175.
BOOST_AUTO_TEST_CASE(frozen_experts_have_no_gradients_to_launch) {
  const auto frozen_share = [](int32_t ep) {
    spec::ModelSpec model = moe_model();
    model.num_experts = 128;
    const spec::HardwareSpec hardware = machine(16);
    PlanRun run = run_of(model, hardware);
    run.knobs.ep = ep;
    const spec::LayerKind kind = {spec::Mixer::gqa, spec::FeedForward::moe};
    return host_calls(run, kind, 0) - host_calls(run, kind, 1);
  };
  BOOST_TEST(frozen_share(8) - frozen_share(16) == 483 - 275, boost::test_tools::tolerance(0.01));
}

BOOST_AUTO_TEST_CASE(the_reference_is_one_of_them) {
  BOOST_TEST(reference_host_calls() == counted_layers().front().calls);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::tuner::planner
