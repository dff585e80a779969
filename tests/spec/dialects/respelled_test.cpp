// Changes to a run's own text: the key that stands there is changed, what says otherwise goes.
#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(respelled)

namespace {

namespace data = boost::unit_test::data;
using Texts = std::vector<std::string>;

constexpr Dialect kLm = Dialect::megatron_lm;

Texts texts_of_change(const std::string& text, Dialect dialect, void (*change)(PlanKnobs&)) {
  const RunConfig from = import_run(text, dialect, {.world_size = 8});
  RunConfig to = from;
  change(to.knobs);
  Texts texts;
  for (const SettingChange& one : changes_of_text(from, to)) texts.push_back(text_of(one, dialect));
  return texts;
}

struct Row {
  const char* name;
  Dialect dialect;
  std::string text;
  void (*change)(PlanKnobs&);
  Texts texts;
};
std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }

const std::string kStages =
    "pretrain_gpt.py --bf16 --num-layers 48 --pipeline-model-parallel-size 4 "
    "--num-layers-per-virtual-pipeline-stage 6";
const std::string kPrimus =
    "modules:\n  pre_trainer:\n    framework: megatron\n    overrides:\n      micro_batch_size: "
    "1\n";

void no_recompute(PlanKnobs& k) { k.recompute = {}; }
void cheap_recompute(PlanKnobs& k) {
  k.recompute = {PlanRecompute::layernorm, PlanRecompute::moe_act};
}

void attention_graphs(PlanKnobs& k) { k.cuda_graphs.add(PlanGraph::attn); }

const Row kRows[] = {
    {"more stages",
     kLm,
     kStages,
     [](PlanKnobs& k) { k.vpp = 4; },
     {"--num-layers-per-virtual-pipeline-stage 3"}},
    {"no virtual stages",
     kLm,
     kStages,
     [](PlanKnobs& k) { k.vpp = 1; },
     {"--num-layers-per-virtual-pipeline-stage 12"}},
    // Megatron-LM takes one of the two.
    {"no whole layers",
     kLm,
     kStages,
     [](PlanKnobs& k) { k.vpp = 5; },
     {"--num-virtual-stages-per-pipeline-rank 5",
      "without --num-layers-per-virtual-pipeline-stage"}},
    {"fewer ranks of stages",
     kLm,
     kStages,
     [](PlanKnobs& k) { k.pp = 2; },
     {"--pipeline-model-parallel-size 2", "--num-layers-per-virtual-pipeline-stage 12"}},
    {"layers that nobody counts",
     kLm,
     "pretrain_gpt.py --bf16 --pipeline-model-parallel-size 4 "
     "--num-layers-per-virtual-pipeline-stage 6",
     [](PlanKnobs& k) { k.vpp = 2; },
     {"--num-virtual-stages-per-pipeline-rank 2",
      "without --num-layers-per-virtual-pipeline-stage"}},
    {"older recomputation",
     kLm,
     "pretrain_gpt.py --bf16 --recompute-activations",
     no_recompute,
     {"without --recompute-activations"}},
    {"the same with other modules",
     kLm,
     "pretrain_gpt.py --bf16 --recompute-activations",
     cheap_recompute,
     {"--recompute-modules layernorm moe_act"}},
    {"older DeepEP",
     kLm,
     "pretrain_gpt.py --bf16 --num-experts 8 --expert-model-parallel-size 8 "
     "--moe-token-dispatcher-type flex --moe-enable-deepep",
     [](PlanKnobs& k) { k.dispatcher = Dispatcher::hybridep; },
     {"--moe-flex-dispatcher-backend hybridep", "without --moe-enable-deepep"}},
    {"DeepEP of Megatron-Bridge",
     Dialect::megatron_bridge,
     "model.num_moe_experts=8 model.expert_model_parallel_size=8 model.moe_enable_deepep=true",
     [](PlanKnobs& k) { k.dispatcher = Dispatcher::hybridep; },
     {"model.moe_flex_dispatcher_backend=hybridep", "model.moe_token_dispatcher_type=flex",
      "without model.moe_enable_deepep"}},
    {"an older name",
     kLm,
     "pretrain_gpt.py --bf16 --cuda-graph-impl transformer_engine --cuda-graph-scope attn",
     [](PlanKnobs& k) { k.cuda_graphs.add(PlanGraph::moe_router); },
     {"--cuda-graph-scope attn moe_router"}},
    // Up to core_v0.17 Megatron-LM knows only this name, and core_v0.19 still takes it.
    {"a name of its release",
     kLm,
     "pretrain_gpt.py --bf16 --num-experts 8 --expert-model-parallel-size 8 "
     "--moe-token-dispatcher-type flex --moe-enable-deepep",
     attention_graphs,
     {"--cuda-graph-impl transformer_engine", "--cuda-graph-scope attn"}},
    {"a name of Megatron-Bridge's release",
     Dialect::megatron_bridge,
     "model.num_moe_experts=8 model.expert_model_parallel_size=8 model.moe_enable_deepep=true",
     attention_graphs,
     {"model.cuda_graph_impl=transformer_engine", "model.cuda_graph_scope='[attn]'"}},
    {"a short form tells no release",
     kLm,
     "pretrain_gpt.py --bf16 --recompute-activations",
     attention_graphs,
     {"--cuda-graph-impl transformer_engine", "--cuda-graph-modules attn"}},
    // Turbo DeepEP needs a type of the router, which the file leaves to it.
    {"what only follows",
     Dialect::primus,
     kPrimus + "      moe_token_dispatcher_type: alltoall\n      enable_primus_turbo: true\n"
               "      use_turbo_deepep: true\n      expert_model_parallel_size: 8\n",
     [](PlanKnobs& k) { k.micro_batch_size = 2; },
     {"micro_batch_size: 2"}},
    {"a list of YAML",
     Dialect::primus,
     kPrimus + "      recompute_granularity: selective\n      recompute_modules: [core_attn]\n",
     cheap_recompute,
     {"recompute_modules: [layernorm, moe_act]"}},
    {"words of TOML",
     Dialect::torchtitan,
     "[activation_checkpoint]\nmode = \"full\"\n",
     cheap_recompute,
     {"activation_checkpoint.mode = \"selective\"",
      "activation_checkpoint.selective_ac_option = \"op\""}},
    {"options of torchtitan",
     Dialect::torchtitan,
     "torchrun -m torchtitan.train --activation_checkpoint.mode full",
     cheap_recompute,
     {"--activation_checkpoint.mode selective", "--activation_checkpoint.selective_ac_option op"}},
};

}  // namespace

BOOST_DATA_TEST_CASE(a_texts_own_words_are_changed, data::make(kRows), row) {
  const Texts texts = texts_of_change(row.text, row.dialect, row.change);
  BOOST_TEST(texts == row.texts, boost::test_tools::per_element());
}

// The framework reads what is said to copy as the run that it is for.
BOOST_AUTO_TEST_CASE(a_changed_command_is_the_other_run) {
  for (const int32_t vpp : {1, 4}) {
    RunConfig to = import_run(kStages, kLm, {.world_size = 8});
    to.knobs.vpp = vpp;
    const auto changes = changes_of_text(import_run(kStages, kLm, {.world_size = 8}), to);
    BOOST_TEST_REQUIRE(changes.size() == 1U);
    const std::string all =
        kStages.substr(0, kStages.rfind(" --")) + " " + text_of(changes.front(), kLm);
    BOOST_TEST(import_run(all, kLm, {.world_size = 8}).knobs.vpp == vpp, all);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
