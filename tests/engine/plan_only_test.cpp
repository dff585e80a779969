// Plans know more than the engine runs. A program with more is refused by what it has too much of,
// before anything runs.
#include <boost/test/unit_test.hpp>

#include "engine/exec/binders.h"
#include "engine/exec/executor.h"
#include "engine/plan/compile.h"
#include "kernels/base/error.h"
#include "tests/engine/training_fixture.h"

namespace moetune::engine {
BOOST_AUTO_TEST_SUITE(plan_only)

namespace {

/// What the engine says to a model; empty where it runs it.
std::string refusal_of(const spec::ModelSpec& model) {
  bool has_run = false;
  try {
    run_ranks(testing::tiny_trial(model), {}, [&](RankTrainer&, World&, int) { has_run = true; });
  } catch (const base::Error& error) {
    BOOST_TEST(!has_run);
    return error.what();
  }
  return {};
}

void check_refused(const spec::ModelSpec& model, const std::string& by) {
  const std::string refusal = refusal_of(model);
  BOOST_TEST(refusal.find(by) != std::string::npos, by << ": " << refusal);
}

BOOST_AUTO_TEST_CASE(what_only_plans_know_is_refused) {
  using spec::FeedForward;
  using spec::Mixer;
  BOOST_TEST(refusal_of(testing::tiny_model()) == "");

  spec::ModelSpec gated = testing::tiny_model();
  gated.has_attention_gate = true;
  check_refused(gated, "nothing runs attn_gate.forward");

  spec::ModelSpec sinks = testing::tiny_model();
  sinks.has_attention_sinks = true;
  check_refused(sinks, "nothing uses layers.0.attn_sinks");

  spec::ModelSpec latent = testing::tiny_model();
  latent.mla = {8, 8, 8, 4, 8};
  latent.layer_kinds.assign(3, {Mixer::mla, FeedForward::moe});
  check_refused(latent, "nothing uses layers.0.mla_q_down");

  spec::ModelSpec further = testing::tiny_model();
  further.mtp = {1, {{Mixer::gqa, FeedForward::moe}}, false};
  check_refused(further, "nothing uses layers.3.mtp_embed_norm");
}

/// What the engine says to a program of two replicas.
std::string refusal_of(const plan::Planned& planned) {
  spec::TrialSpec trial = testing::tiny_trial(testing::tiny_model());
  trial.knobs.data_parallel_size = 2;
  try {
    check_runs(plan::compile(trial, 0, planned));
  } catch (const base::Error& error) {
    return error.what();
  }
  return {};
}

BOOST_AUTO_TEST_CASE(passes_that_only_plans_know_are_refused) {
  BOOST_TEST(refusal_of(plan::Planned{}) == "");
  plan::Planned sharded;
  sharded.fsdp = spec::Fsdp::megatron;
  BOOST_TEST(refusal_of(sharded).starts_with("nothing gathers embedding"));
  plan::Planned offloaded;
  offloaded.offload = {spec::Offload::core_attn};
  BOOST_TEST(refusal_of(offloaded).starts_with("nothing copies to_host.forward"));
  plan::Planned state;
  state.optimizer_offload_ratio = 0.5;
  BOOST_TEST(refusal_of(state).starts_with("nothing copies from_host.update"));
}

BOOST_AUTO_TEST_CASE(operations_without_a_call_have_no_binder) {
  for (const plan::Op op :
       {plan::Op::gdn_scan, plan::Op::mamba_scan, plan::Op::mla_pack, plan::Op::latent_up,
        plan::Op::mtp_slice, plan::Op::amax, plan::Op::quantize}) {
    BOOST_TEST((binder_of(op) == nullptr), plan::op_row(op).name);
  }
  BOOST_TEST((binder_of(plan::Op::core_attn) != nullptr));
}

}  // namespace

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::engine
