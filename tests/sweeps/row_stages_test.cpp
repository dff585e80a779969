// Stages of rows and of commands that write none: counted ends, stages without layers, and what
// Megatron refuses to start.
#include "sweeps/planning/row_stages.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/spec/pipeline_layout.h"
#include "sweeps/planning/estimate.h"
#include "sweeps/planning/rates_file.h"
#include "tests/sweeps/cli_fixture.h"
#include "tests/sweeps/shipped_rows.h"

namespace moetune::sweeps {

using nlohmann::json;
using tests::Answer;
using tests::Cli;

BOOST_AUTO_TEST_SUITE(row_stages)

namespace {

PublishedRow read(const json& row) { return published_rows_of(json::array({row}), "test").front(); }

bool is_told(const PublishedRow& row, const std::string& part) {
  return std::ranges::any_of(row.assumed,
                             [&](const std::string& line) { return line.starts_with(part); });
}

std::string layout_of(const PublishedRow& row) {
  return spec::pipeline_layout_text(row.run.stages);
}

/// A shipped row with other stages, on as few ranks as it then has, and one micro-batch for each
/// stage.
json with_stages(const char* id, int pp, int vpp) {
  json row = tests::shipped_row(id);
  const int cp = row.value("cp", 1);
  const int ranks = std::max(row.value("tp", 1) * cp, row.value("ep", 1));
  const int dp = ranks / (row.value("tp", 1) * cp);
  row.update({{"pp", pp}, {"vpp", vpp}, {"dp", dp}, {"world_size", ranks * pp}});
  row.update({{"num_microbatches", pp * 2}, {"global_batch_size", pp * 2 * dp}});
  row["micro_batch_size"] = 1;
  row.erase("edp");
  return row;
}

}  // namespace

// Whoever ran more stages than the model has layers had some without.
BOOST_AUTO_TEST_CASE(more_stages_than_layers_leave_the_ends_without) {
  struct Sample {
    const char* id;
    int pp;
    int vpp;
    const char* layout;
    const char* told;
  };
  for (const Sample& sample : {
           Sample{"bridge-039", 16, 8, "E|(t|)*126L", "embedding and loss have a stage each"},
           {"bridge-039", 8, 16, "E|(t|)*126L", "embedding and loss have a stage each"},
           {"bridge-148", 8, 12, "E|(t|)*94L", "embedding and loss have a stage each"},
           {"bridge-148", 12, 8, "E|(t|)*94L", "embedding and loss have a stage each"},
           {"bridge-148", 5, 19, "Et|(t|)*93L", "the loss has a stage: 94 layers over 95 stages"},
           {"bridge-019", 16, 4, "E|(t|)*61m|L", "embedding, multi-token prediction and loss"},
           {"bridge-019", 9, 7, "E|(t|)*61mL", "embedding and loss have a stage each"},
       }) {
    BOOST_TEST_CONTEXT(sample.id << " " << sample.pp << " x " << sample.vpp) {
      json row = with_stages(sample.id, sample.pp, sample.vpp);
      const PublishedRow result = read(row);
      BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
      BOOST_TEST(layout_of(result) == sample.layout);
      BOOST_TEST(is_told(result, sample.told), json(result.assumed).dump());
      // It is priced as one that writes them.
      json written = row;
      written["pipeline_layout"] = sample.layout;
      const json rows = estimate_rows(published_rows_of(json::array({row, written}), "test"),
                                      default_calibration())["rows"];
      BOOST_TEST_REQUIRE(rows[0]["supported"] == true, rows[0]["reason"].dump());
      for (const char* key : {"step_time_ns", "peak_allocated_bytes", "tflops_per_gpu"}) {
        BOOST_TEST(rows[0][key] == rows[1][key], key);
        BOOST_TEST(rows[0][key].get<double>() > 0, key);
      }
    }
  }
  BOOST_TEST(read(with_stages("bridge-148", 16, 7)).reason ==
             "pp 16 x vpp 7 are more stages than the model's 94 layers");
}

BOOST_AUTO_TEST_CASE(counted_ends_are_read_of_a_row) {
  json row = with_stages("bridge-148", 8, 12);
  row["other_knobs"] = {{"account_for_embedding_in_pipeline_split", true},
                        {"account_for_loss_in_pipeline_split", "true"}};
  BOOST_TEST(layout_of(read(row)) == "E|(t|)*94L");
  row["vpp"] = 4;
  row["other_knobs"] = {{"account-for-embedding-in-pipeline-split", 1},
                        {"account-for-loss-in-pipeline-split", true}};
  PublishedRow result = read(row);
  BOOST_TEST(layout_of(result) == "Ett|(t*3|)*30ttL");
  BOOST_TEST(!is_told(result, "stages"), json(result.assumed).dump());
  // What does not divide ran all the same.
  row["vpp"] = 5;
  result = read(row);
  BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
  BOOST_TEST(is_told(result,
                     "stages are taken as balanced: 94 layers over 40 stages (pp 8 x vpp 5) do not "
                     "divide with account_for_embedding_in_pipeline_split and "
                     "account_for_loss_in_pipeline_split"),
             json(result.assumed).dump());
  BOOST_TEST(result.run.stages.empty());
  // An even split is not what the row says, either.
  row["pp"] = 2;
  row["vpp"] = 1;
  row["other_knobs"] = {{"account_for_loss_in_pipeline_split", true}};
  row["dp"] = row["world_size"].get<int>() / (2 * row["tp"].get<int>() * row.value("cp", 1));
  row["global_batch_size"] = 8 * row["dp"].get<int>();
  row.erase("num_microbatches");
  result = read(row);
  BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
  BOOST_TEST(is_told(result,
                     "stages are taken as balanced: 94 layers over 2 stages do not divide with "
                     "account_for_loss_in_pipeline_split"),
             json(result.assumed).dump());
  row["other_knobs"] = {{"account_for_loss_in_pipeline_split", "maybe"}};
  BOOST_TEST(is_told(read(row), "account_for_loss_in_pipeline_split not read: 'maybe'"));
  row["other_knobs"] = {{"account_for_loss_in_pipeline_split", true},
                        {"decoder_first_pipeline_num_layers", 40}};
  BOOST_TEST(read(row).reason.find("contradict each other") != std::string::npos);
}

// Where the layers of a hybrid lie is said otherwise, as of commands.
BOOST_AUTO_TEST_CASE(counted_ends_of_a_hybrid_are_told) {
  json row = with_stages("bridge-148", 2, 1);
  row["model"] = json::parse(std::ifstream(std::string(MOETUNE_SOURCE_DIR) +
                                           "/engine/models/nemotron_3_nano_30b_a3b.json"));
  row["other_knobs"] = {{"account_for_embedding_in_pipeline_split", true},
                        {"account_for_loss_in_pipeline_split", true}};
  const PublishedRow result = read(row);
  BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
  BOOST_TEST(result.run.stages.empty());
  BOOST_TEST(is_told(result, "account_for_embedding_in_pipeline_split and "),
             json(result.assumed).dump());
}

BOOST_AUTO_TEST_CASE(an_empty_list_of_stages_says_nothing) {
  json row = with_stages("bridge-148", 2, 1);
  const PublishedRow usual = read(row);
  for (const char* key : {"pipeline_layout", "pipeline_split"}) {
    json empty = row;
    empty[key] = json::array();
    const PublishedRow result = read(empty);
    BOOST_TEST(result.reason == usual.reason, key);
    BOOST_TEST((result.run.stages.empty() && result.run.stage_layers.empty()), key);
  }
}

BOOST_AUTO_TEST_CASE(balanced_stages_are_told) {
  const PublishedRow result = read(tests::shipped_row("bridge-259"));
  BOOST_TEST(is_told(result, "stages are taken as balanced: 94 layers over 16 stages"));
  BOOST_TEST(!is_told(read(tests::shipped_row("bridge-122")), "stages"));
  BOOST_TEST(!is_told(read(tests::shipped_row("bridge-001")), "stages"));
  json row = with_stages("bridge-148", 8, 1);
  row["other_knobs"] = {{"num_layers_in_first_pipeline_stage", 11},
                        {"decoder_last_pipeline_num_layers", 11}};
  const PublishedRow counted = read(row);
  BOOST_TEST_REQUIRE(counted.reason.empty(), counted.reason);
  BOOST_TEST(counted.run.knobs.first_stage_layers == 11);
  BOOST_TEST(counted.run.knobs.last_stage_layers == 11);
  BOOST_TEST(!is_told(counted, "stages"));
}

BOOST_AUTO_TEST_CASE(a_layout_may_be_a_list) {
  const auto layout_with = [](const json& layout) {
    json row = tests::shipped_row("golden-058");
    row["pipeline_layout"] = layout;
    const PublishedRow result = read(row);
    return result.reason.empty() ? layout_of(result) : result.reason;
  };
  const json word = "decoder";
  BOOST_TEST(layout_with({"Ettt", "tt", "tt", "tt", "tt", "tt", "tt", "mL"}) == "Et*3|(tt|)*6mL");
  BOOST_TEST(layout_with({{"embedding", word, word, word},
                          {word, word},
                          {word, word},
                          {word, word},
                          {word, word},
                          {word, word},
                          {word, word},
                          {"mtp", "loss"}}) == "Et*3|(tt|)*6mL");
  BOOST_TEST(layout_with({1, 2}) == "pipeline_layout is neither a text nor a list of stages");
}

BOOST_AUTO_TEST_CASE(layers_of_stages_may_be_a_text) {
  json row = tests::shipped_row("golden-017");  // 32 layers
  for (const json& split : {json("10,6,8,8"), json({10, 6, 8, 8}), json({"10", "6", "8", "8"})}) {
    row["pipeline_split"] = split;
    const PublishedRow result = read(row);
    BOOST_TEST_REQUIRE(result.reason.empty(), result.reason);
    BOOST_TEST(result.run.stage_layers == (std::vector<int64_t>{10, 6, 8, 8}),
               boost::test_tools::per_element());
  }
  row["pipeline_split"] = "10,6,8";
  BOOST_TEST(read(row).reason ==
             "pipeline_split does not add up to pp stages of the model's layers");
  row["pipeline_split"] = "as it comes";
  BOOST_TEST(is_told(read(row), "pipeline_split not read: 'as it comes' is no list of layers"));
}

// 94 layers of Qwen3-235B.
BOOST_FIXTURE_TEST_CASE(commands_are_held_to_their_split, Cli) {
  const auto answer_of = [&](const std::string& words) {
    return run({"estimate", "--run",
                "pretrain_gpt.py --bf16 --micro-batch-size 1 --global-batch-size 256 "
                "--seq-length 4096 --use-distributed-optimizer --expert-model-parallel-size 8 "
                "--moe-grouped-gemm --pipeline-model-parallel-size 8 " +
                    words,
                "--model", "qwen3-235b-a22b", "--hardware", "h100-80g", "--gpus", "64", "--format",
                "json"});
  };
  const auto row_of = [&](const std::string& words) {
    const Answer answer = answer_of(words);
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out)["rows"][0];
  };
  const std::string counted =
      "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split ";
  const std::string virtual_stages = "--num-virtual-stages-per-pipeline-rank ";
  for (const auto& [words, layout] :
       {std::pair{virtual_stages + "12", "'E|(t|)*94L'"},
        {virtual_stages + "4", "'Ett|(t*3|)*30ttL'"},
        {"--num-layers-per-virtual-pipeline-stage 3", "'Ett|(t*3|)*30ttL'"}}) {
    BOOST_TEST_CONTEXT(words) {
      const json own = row_of(counted + words);
      const json written = row_of(std::string("--pipeline-model-parallel-layout ") + layout);
      BOOST_TEST(own["step_time_ns"] == written["step_time_ns"]);
      BOOST_TEST(own["peak_allocated_bytes"] == written["peak_allocated_bytes"]);
      BOOST_TEST(own["num_not_priced_settings"] == written["num_not_priced_settings"]);
    }
  }
  for (const auto& [words, says] :
       {std::pair{"",
                  "94 layers over 8 stages do not divide, and Megatron refuses to start: say "
                  "the stages with --pipeline-model-parallel-layout, or count embedding and "
                  "loss (--account-for-embedding-in-pipeline-split and "
                  "--account-for-loss-in-pipeline-split)"},
        {"--num-virtual-stages-per-pipeline-rank 12",
         "94 layers over 96 stages (pp 8 x vpp 12) do not divide"},
        {"--account-for-loss-in-pipeline-split",
         "94 layers over 8 stages do not divide with --account-for-loss-in-pipeline-split"},
        {"--account-for-loss-in-pipeline-split --pipeline-model-parallel-layout 'E|(t|)*94L'",
         "'--pipeline-model-parallel-layout' and '--account-for-loss-in-pipeline-split' "
         "contradict each other"}}) {
    const Answer answer = answer_of(words);
    BOOST_TEST(answer.code == 2);
    BOOST_TEST(answer.err.find(says) != std::string::npos, answer.err);
  }
  // A recipe may say the rest.
  const Answer recipe = run({"estimate", "--run",
                             "run_recipe.py model.pipeline_model_parallel_size=8 "
                             "model.expert_model_parallel_size=8 train.global_batch_size=256",
                             "--model", "qwen3-235b-a22b", "--hardware", "h100-80g", "--gpus", "64",
                             "--format", "json"});
  BOOST_TEST_REQUIRE(recipe.code == 0, recipe.err);
  BOOST_TEST(recipe.out.find("stages are taken as balanced: 94 layers over 8 stages") !=
             std::string::npos);
}

BOOST_FIXTURE_TEST_CASE(a_plan_may_have_more_stages_than_layers, Cli) {
  const Answer answer = run({"plan", "--model", "llama3-405b", "--hardware", "h100-80g", "--gpus",
                             "256",  "--gbs",   "256",         "--seq",      "8192",     "--fix",
                             "tp=8", "--fix",   "pp=16",       "--fix",      "vpp=8",    "--fix",
                             "cp=1", "--top",   "1",           "--format",   "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  BOOST_TEST(json::parse(answer.out)["plans"][0]["pipeline_layout"] == "E|(t|)*126L");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
