// Families that only plans know, from the file to the answer: each public model is priced, and what
// is taken otherwise than it is stands among the assumptions.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "sweeps/planning/estimate.h"
#include "sweeps/planning/published_rows.h"
#include "sweeps/planning/rates_file.h"
#include "tests/spec/spec_samples.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

using nlohmann::json;
using tests::Answer;
using tests::Cli;

BOOST_AUTO_TEST_SUITE(planned_families)

namespace {

/// On one device, where nothing has to divide.
json row_of(const json& model) {
  return {{"id", model.at("name")},
          {"model", model.at("config")},
          {"hardware", "H100"},
          {"world_size", 1},
          {"tp", 1},
          {"cp", 1},
          {"pp", 1},
          {"ep", 1},
          {"dp", 1},
          {"micro_batch_size", 1},
          {"global_batch_size", 1},
          {"seq_length", 16384},
          {"precision", "bf16"},
          {"task", "pretrain"},
          {"optimizer", {{"type", "adam"}, {"distributed", true}}},
          {"routing", "forced_balance"}};
}

size_t count_of(const json& texts, const std::string& text) {
  size_t count = 0;
  for (const json& each : texts) count += each == text ? 1 : 0;
  return count;
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_public_model_is_priced_and_its_assumption_told) {
  json rows = json::array();
  for (const json& model : spec::samples::public_models()) rows.push_back(row_of(model));
  const std::vector<PublishedRow> read = published_rows_of(rows, "test");
  const json answers = estimate_rows(read, default_calibration()).at("rows");
  BOOST_TEST_REQUIRE(answers.size() == read.size());
  size_t num_told = 0;
  for (size_t i = 0; i < read.size(); ++i) {
    const json& answer = answers[i];
    BOOST_TEST_CONTEXT(answer.at("id")) {
      BOOST_TEST_REQUIRE(answer.at("supported") == true, answer.dump());
      const auto weights = 2 * static_cast<double>(read[i].model->num_parameters());
      BOOST_TEST(answer.at("peak_allocated_bytes").get<double>() > weights);
      BOOST_TEST(answer.at("step_time_ns").get<double>() > 0);
      const std::string told = spec::model_assumption(*read[i].model);
      if (told.empty()) continue;
      BOOST_TEST(count_of(answer.at("assumed"), told) == 1U, answer.at("assumed").dump());
      ++num_told;
    }
  }
  BOOST_TEST(num_told >= 8U);
}

BOOST_AUTO_TEST_CASE(a_plan_tells_it_once_beside_a_command_too) {
  Cli cli;
  const std::string told =
      "olmoe: norms of queries and keys go over all heads, priced as one of each head";
  const std::vector<std::string> question = {
      "plan",  "--model", "olmoe-1b-7b", "--hardware", "h100-80g", "--gpus", "8",
      "--seq", "4096",    "--gbs",       "64",         "--format", "json"};
  std::vector<std::string> beside = question;
  beside.insert(beside.end(),
                {"--against",
                 "pretrain_gpt.py --micro-batch-size 1 --global-batch-size 64 --seq-length 4096 "
                 "--bf16 --use-distributed-optimizer --expert-model-parallel-size 8 "
                 "--moe-grouped-gemm"});
  for (const std::vector<std::string>& words : {question, beside}) {
    const Answer answer = cli.run(words);
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    const json document = json::parse(answer.out);
    BOOST_TEST(count_of(document.at("assumptions"), told) == 1U, document.at("assumptions").dump());
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
