// Texts that are no GPT's, or not all of a run: refused with what they are, or told.
#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(other_models)

namespace {

using samples::contains;
using samples::has_note;
using samples::refusal;

constexpr Dialect kLm = Dialect::megatron_lm;
constexpr Dialect kPrimus = Dialect::primus;

struct Refused {
  Dialect dialect;
  const char* text;
  const char* why;  ///< empty: it is read
};
std::ostream& operator<<(std::ostream& out, const Refused& row) { return out << row.text; }

const std::vector<Refused> kRefused = {
    // A script that was not read makes flags of variables.
    {kLm, "TP=2 EP=16 bash ./go.sh --moe-grouped-gemm",
     "starts ./go.sh, which was not read and makes the rest of TP=2 EP=16"},
    {kLm, "export GBS=64\nsbatch go.sh --bf16 --seq-length 4096\n", "the rest of GBS=64"},
    {kLm, "env TP=2 NCCL_DEBUG=INFO bash go.sh --bf16", "the rest of TP=2"},
    {kLm, "sbatch --export=ALL,TP=2,PP=4 go.slurm --bf16", "starts go.slurm, which was not read"},
    {kLm, "TP=2 bash go.sh --tensor-model-parallel-size 2 --bf16", ""},
    {kLm, "env TP=2 torchrun pretrain_gpt.py --bf16 --log-env env", ""},
    {kLm, "TP=2 bash go.sh torchrun pretrain_gpt.py --bf16", ""},
    {kLm, "TP=fast bash go.sh --bf16", ""},
    // Primus' command line.
    {kLm, "bash go.sh --bf16 --expert_model_parallel_size 8",
     "'--expert_model_parallel_size' is no flag of Megatron-LM, which has "
     "'--expert-model-parallel-size'"},
    {kLm, "torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 --my_own_flag 8", ""},
    {kPrimus, "#!/bin/bash\nEXP=mine.yaml bash go.sh --micro_batch_size 2\n",
     "scripts and commands of Primus are not read: give the YAML of --config or EXP"},
    {kPrimus, "{micro_batch_size: 2}", ""},
    // Only variables.
    {kLm, "LAYOUT='--tensor-model-parallel-size 2'\n",
     "has flags of megatron-lm and starts nothing with them"},
    {kLm, "# --tensor-model-parallel-size 2\nls\n", "has no setting that megatron-lm takes"},
    // Other models.
    {kPrimus, "micro_batch_size: 1\nmodel_type: mamba\n", "'model_type' is 'mamba': moetune plans"},
    {kPrimus, "micro_batch_size: 1\nmodel_type: painter\n", "'model_type' is 'painter'"},
    {kPrimus, "micro_batch_size: 1\nmodel_type: gpt\n", ""},
    {kPrimus, "micro_batch_size: 1\nmodel_type: null\nlfm_layer_types: null\n", ""},
    {kPrimus,
     "micro_batch_size: 1\nmodel_type: mamba\nhybrid_override_pattern: M*M*\nhidden_size: 256\n",
     ""},
    {kPrimus, "micro_batch_size: 1\nlfm_layer_types: [conv, full_attention]\n",
     "'lfm_layer_types' makes layers"},
    {kPrimus, "micro_batch_size: 1\nrouted_expert_hidden_size: 64\n",
     "'routed_expert_hidden_size' makes experts"},
    {kPrimus, "micro_batch_size: 1\nis_hybrid_model: true\nhybrid_attention_ratio: 0.5\n",
     "which layers 'hybrid_attention_ratio' makes Mamba's is not known here"},
    {kLm, "pretrain_gpt.py --bf16 --is-hybrid-model --hybrid-attention-ratio 0.5",
     "which layers '--hybrid-attention-ratio' makes"},
    {kLm, "train.py --bf16 --llm-tp 2", "'--llm-tp' gives a part of the model a layout"},
    // Four bits.
    {kPrimus, "fp4: e2m1\nfp4_recipe: mxfp4\n", "'fp4_recipe' is 'mxfp4', which is not planned"},
    {kPrimus, "fp4: e2m1\nfp4_recipe: nvfp4\n", ""},
};

}  // namespace

BOOST_DATA_TEST_CASE(what_is_refused, boost::unit_test::data::make(kRefused), row) {
  const std::string why = refusal(row.text, row.dialect);
  BOOST_TEST(why.empty() == std::string_view(row.why).empty(), why);
  BOOST_TEST(contains(why, row.why), why);
}

BOOST_AUTO_TEST_CASE(one_model_of_several_is_priced) {
  const RunConfig run = import_run(
      "train.py --bf16 --seq-length 576 --decoder-seq-length 2048 --vision-model-type eye", kLm);
  BOOST_TEST(run.seq_length == 2048);
  BOOST_TEST(has_note(run, "only the language model is priced"));
  BOOST_TEST(has_note(run, "'--decoder-seq-length' is the language model's sequence"));
}

BOOST_AUTO_TEST_CASE(other_tasks_are_told) {
  BOOST_TEST(has_note(import_run("torchrun pretrain_bert.py --bf16", kLm), "'pretrain_bert.py'"));
  BOOST_TEST(has_note(import_run("--bf16 --bert-load x", kLm), "'--bert-load' is of BERT"));
  BOOST_TEST(has_note(import_run("python run_text_generation_server.py --bf16", kLm),
                      "is of generating text"));
  BOOST_TEST(has_note(import_run("--bf16 --inference-max-requests 8", kLm),
                      "'--inference-max-requests' is of generating text"));
  BOOST_TEST(import_run("torchrun pretrain_gpt.py --bf16 --swiglu", kLm).notes.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_growing_batch_is_that_of_its_end) {
  const RunConfig run =
      import_run("--bf16 --step-batch-size-schedule '1.5B:96 0:32 1K:64'", kLm, {.world_size = 8});
  BOOST_TEST(run.global_batch_size == 96);
  BOOST_TEST(!run.is_batch_derived);
  BOOST_TEST(has_note(run, "ends with a batch of 96"));
  BOOST_TEST(!contains(export_run(run, kLm), "schedule '"));
  BOOST_TEST(contains(refusal("--bf16 --step-batch-size-schedule 0:8 --global-batch-size 8", kLm),
                      "contradict each other"));
  BOOST_TEST(contains(refusal("--bf16 --step-batch-size-schedule soon", kLm), "expected pairs"));
}

BOOST_AUTO_TEST_CASE(other_runs_of_a_script_are_told) {
  const RunConfig run = import_run(
      "torchrun pretrain_gpt.py --bf16\n"
      "torchrun pretrain_gpt.py --bf16 --tensor-model-parallel-size 4\n"
      "torchrun convert.py --bf16 --swiglu\n",
      kLm);
  BOOST_TEST(run.knobs.tp == 4);
  BOOST_TEST(
      has_note(run, "2 runs that differ: the first with most of the known settings is read"));
}

BOOST_AUTO_TEST_CASE(quotes_in_quotes) {
  const RunConfig run = import_run(
      "num_layers: 4\nhidden_size: 64\nnum_attention_heads: 4\nnum_experts: 4\n"
      "moe_layer_freq: \"'([0]*1+[1]*3)'\"\npipeline_model_parallel_size: 2\n"
      "pipeline_model_parallel_layout: \"'Ett|ttL'\"\n",
      kPrimus, {.world_size = 2});
  BOOST_TEST(run.pipeline_layout == "Ett|ttL");
  BOOST_TEST(run.model_flags["moe_layer_freq"] == "([0]*1+[1]*3)");
}

BOOST_AUTO_TEST_CASE(listed_layers_are_a_number_for_each_stage) {
  const std::string two_stages =
      "num_layers: 8\nhidden_size: 64\nnum_attention_heads: 4\npipeline_model_parallel_size: 2\n"
      "recompute_granularity: full\n";
  const RunConfig even = import_run(two_stages + "recompute_layer_ids: \"0,2,5,7\"\n", kPrimus);
  BOOST_TEST(even.knobs.recomputes_block());
  BOOST_TEST(even.knobs.recompute_num_layers == 2);
  BOOST_TEST(has_note(even, "'recompute_layer_ids' names 2 layers of each stage"));
  BOOST_TEST(unpriced_settings(even).known.empty());
  const std::string written = export_run(even, kPrimus);
  BOOST_TEST(contains(written, "recompute_layer_ids"), written);
  BOOST_TEST(!contains(written, "recompute_method: block"), written);
  BOOST_TEST(contains(refusal(two_stages + "recompute_layer_ids: [0, 1, 7]\n", kPrimus),
                      "it names 1 layers of one stage and 2 of another"));
  BOOST_TEST(contains(refusal(two_stages + "recompute_layer_ids: [0, 8]\n", kPrimus),
                      "layer 8 lies behind the 8"));
  BOOST_TEST(contains(refusal(two_stages + "recompute_layer_ids: all\n", kPrimus),
                      "expected numbers of layers"));
  BOOST_TEST(contains(refusal("pipeline_model_parallel_size: 2\nrecompute_granularity: full\n"
                              "recompute_layer_ids: [0]\n",
                              kPrimus),
                      "how many layers each stage has is not known"));
}

BOOST_AUTO_TEST_CASE(what_the_text_says_itself_comes_first) {
  ImportOptions how;
  how.files = {{"pre_trainer.yaml", "theirs_a: 1\nmicro_batch_size: 2\nshared: 1\n"},
               {"mine.yaml", "theirs_b: 1\nnum_layers: 4\n"}};
  const RunConfig run = import_run(
      "modules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n"
      "    model: mine.yaml\n    overrides:\n      own_c: 3\n      shared: 2\n",
      kPrimus, how);
  const UnpricedSettings settings = unpriced_settings(run);
  BOOST_TEST(settings.num_inherited == 2U);
  BOOST_TEST_REQUIRE(settings.unknown.size() == 4U);
  BOOST_TEST(settings.unknown[0] == "shared");
  BOOST_TEST(settings.unknown[1] == "own_c");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
