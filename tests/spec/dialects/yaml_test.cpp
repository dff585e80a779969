// Configurations in YAML as people write them by hand.
#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "engine/spec/dialects/values.h"
#include "tests/spec/dialects/dialect_samples.h"

namespace moetune::spec::dialects {
BOOST_AUTO_TEST_SUITE(yaml_of_dialects)

namespace {

using samples::contains;
using samples::has_note;
using samples::refusal;

std::string stated(const RunConfig& run, std::string_view key) {
  const auto found = std::ranges::find(run.stated, key, &StatedSetting::key);
  return found == run.stated.end() ? "missing" : found->value;
}

struct SwitchWord {
  const char* word;
  bool is_on;
};
std::ostream& operator<<(std::ostream& out, const SwitchWord& row) { return out << row.word; }

}  // namespace

const std::vector<SwitchWord> kSwitches = {
    {"1", true},      {"yes", true},  {"Yes", true},  {"on", true},
    {"TRUE", true},   {"True", true}, {"0", false},   {"no", false},
    {"False", false}, {"off", false}, {"OFF", false}, {"${SP:0}", false},
};
BOOST_DATA_TEST_CASE(switches_of_yaml, boost::unit_test::data::make(kSwitches), row) {
  const std::string word = row.word;
  const std::string overrides = "tensor_model_parallel_size: 2\nsequence_parallel: " + word +
                                "\nuse_distributed_optimizer: " + word + "\n";
  const RunConfig primus = import_run(overrides, Dialect::primus);
  BOOST_TEST(primus.knobs.sequence_parallel == row.is_on);
  BOOST_TEST(primus.knobs.distributed_optimizer == row.is_on);
  BOOST_TEST(stated(primus, "sequence_parallel") == (row.is_on ? "true" : "false"));
  if (word.starts_with('$')) return;
  const RunConfig bridge = import_run(
      "model:\n  tensor_model_parallel_size: 2\n"
      "  sequence_parallel: " +
          word + "\ntrain:\n  micro_batch_size: 1\n",
      Dialect::megatron_bridge);
  BOOST_TEST(bridge.knobs.sequence_parallel == row.is_on);
}

BOOST_AUTO_TEST_CASE(what_is_no_switch) {
  for (const char* word : {"2", "yEs", "maybe", "y", ""}) {
    BOOST_TEST(!parse_yaml_switch(word).has_value(), word);
  }
  BOOST_TEST(
      contains(refusal("tensor_model_parallel_size: 2\nsequence_parallel: 2\n", Dialect::primus),
               "'sequence_parallel' is '2', expected true or false"));
  // A command line has no words for them.
  BOOST_TEST(contains(
      refusal("--tensor-model-parallel-size 2 --sequence-parallel 1", Dialect::megatron_lm),
      "'--sequence-parallel' is '1', expected nothing behind it"));
  // A size of 1 stays one.
  const RunConfig run =
      import_run("tensor_model_parallel_size: 1\nsequence_parallel: 0\n", Dialect::primus);
  BOOST_TEST(run.knobs.tp == 1);
  BOOST_TEST(stated(run, "tensor_model_parallel_size") == "1");
}

/// As Megatron-LM's functional tests are written.
BOOST_AUTO_TEST_CASE(recipes_of_megatron) {
  const std::string text = R"(
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
BEFORE_SCRIPT: |
  mkdir -p ${DATA}/x && echo $A | yq -P > a.yaml
BASE: &BASE
  --tensor-model-parallel-size: 2
  --init-method-std: 0.01
  --bf16: true
  --ffn-hidden-size: 1024
  --init-method-std: 0.02
MODEL_ARGS:
  <<: *BASE
  --ffn-hidden-size: 2048
MODEL_ARGS_2:
  <<: *BASE
  --tensor-model-parallel-size: 4
)";
  const RunConfig run = import_run(text, Dialect::megatron_lm);
  BOOST_TEST(run.knobs.tp == 2);
  BOOST_TEST(run.knobs.cuda_device_max_connections == 1);
  BOOST_TEST(stated(run, "--ffn-hidden-size") == "2048");
  BOOST_TEST(stated(run, "--init-method-std") == "0.02");
  BOOST_TEST(has_note(run, "key '--init-method-std' stands on line 8 and on line 11"));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::spec::dialects
