// Runs beside --model: what they say themselves counts, and what they leave out is the model's.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "sweeps/planning/named_files.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(own_sizes, tests::Cli)

namespace {

using nlohmann::json;
using tests::Answer;
using tests::contains;

/// A model of Mixtral's width with so many layers, whose tokenizer says the vocabulary.
std::string command_with(int layers, const std::string& more = "") {
  return "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers " + std::to_string(layers) +
         " --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --swiglu "
         "--group-query-attention --num-query-groups 8 --num-experts 8 --moe-router-topk 2 "
         "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights "
         "--position-embedding-type rope --moe-grouped-gemm --seq-length 4096 --bf16 "
         "--micro-batch-size 1 --global-batch-size 64 --expert-model-parallel-size 8 "
         "--use-distributed-optimizer --moe-token-dispatcher-type alltoall " +
         more;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_vocabulary_that_nobody_says) {
  const auto estimated = [&](const std::string& command, const std::string& model) {
    std::vector<std::string> words = {"estimate",  "--run",    command, "--hardware",
                                      "h200-141g", "--format", "json"};
    if (!model.empty()) words.insert(words.end(), {"--model", model});
    return run(words);
  };
  const Answer alone = estimated(command_with(4), "");
  BOOST_TEST(alone.code == 2);
  BOOST_TEST(contains(alone.err, "does not say its vocabulary: add --vocab-size to it, or"),
             alone.err);
  // With other layers than the model it keeps its own sizes.
  const Answer proxy = estimated(command_with(4), "mixtral_8x7b");
  BOOST_TEST_REQUIRE(proxy.code == 0, proxy.err);
  const Answer said = estimated(command_with(4, "--vocab-size 32000"), "");
  BOOST_TEST_REQUIRE(said.code == 0, said.err);
  BOOST_TEST(contains(proxy.out, "the vocabulary is that of --model"), proxy.out);
  BOOST_TEST(!contains(proxy.out, "the tokenizer decides"), proxy.out);
  BOOST_TEST(json::parse(proxy.out)["rows"][0]["peak_allocated_bytes"] ==
             json::parse(said.out)["rows"][0]["peak_allocated_bytes"]);
  const Answer whole = estimated(command_with(32), "mixtral_8x7b");
  BOOST_TEST_REQUIRE(whole.code == 0, whole.err);
  BOOST_TEST(!contains(whole.out, "the tokenizer decides"), whole.out);
}

BOOST_AUTO_TEST_CASE(parts_of_the_model_have_to_be_the_same) {
  for (const std::string more :
       {"--moe-shared-expert-intermediate-size 1024", "--kv-channels 64"}) {
    const Answer answer = run({"estimate", "--run", command_with(32, more), "--hardware",
                               "h200-141g", "--model", "mixtral_8x7b"});
    BOOST_TEST(answer.code == 2);
    BOOST_TEST(contains(answer.err, "but the model of --model has"), answer.err);
  }
  // Mixtral has no dense layers: the width is that of its experts.
  std::string narrow = command_with(32);
  narrow.replace(narrow.find("14336"), 5, "7168");
  const Answer answer =
      run({"estimate", "--run", narrow, "--hardware", "h200-141g", "--model", "mixtral_8x7b"});
  BOOST_TEST(answer.code == 2);
  BOOST_TEST(contains(answer.err, "--ffn-hidden-size is 7168, but the model of --model has 14336"),
             answer.err);
}

BOOST_AUTO_TEST_CASE(settings_of_presets_are_counted) {
  spec::dialects::UnpricedSettings settings;
  settings.unknown = {"mine", "theirs", "others"};
  settings.num_inherited = 2;
  BOOST_TEST(settings_text(settings) ==
             "not known, and not priced: mine and 2 more from presets\n");
  settings.num_inherited = 3;
  BOOST_TEST(settings_text(settings) == "not known, and not priced: 3 from presets\n");
  settings.num_inherited = 0;
  BOOST_TEST(settings_text(settings) == "not known, and not priced: mine, theirs, others\n");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
