// Mistakes that people make, one row each: every one ends in one message that helps, and nothing
// runs.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <regex>
#include <string>
#include <vector>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using tests::Answer;
using tests::Cli;

/// What is typed: words that end in "@" are files of the fixture's folder. `file`, when given, is
/// the text of "wrong.json".
struct Typed {
  std::vector<std::string> words;
  std::string file;
  std::string helps;  ///< part of the message
};
std::ostream& operator<<(std::ostream& out, const Typed& row) {
  for (const std::string& word : row.words) out << word << " ";
  return out << row.file.substr(0, 60);
}

const Typed kTyped[] = {
    // The command line.
    {{}, "", "a command is missing"},
    {{"swep"}, "", "did you mean 'sweep'"},
    {{"frobnicate"}, "", "commands: "},
    {{"--verbose"}, "", "there is no command '--verbose'"},
    {{"trial"}, "", "the trial file is missing"},
    {{"trial", "trial.json@", "--sett", "a=b"}, "", "--sett"},
    {{"trial", "trial.json@", "--set"}, "", "set"},
    {{"trial", "trial.json@", "--set", "micro_batch_size"}, "", "expected KNOB=VALUE"},
    {{"trial", "trial.json@", "--set", "micro_batch=2"}, "", "did you mean 'micro_batch_size'"},
    {{"trial", "trial.json@", "--set", "micro_batch_size=two"}, "", "knob 'micro_batch_size'"},
    {{"trial", "trial.json@", "--set", "micro_batch_size=0"}, "", "from 1 to"},
    {{"trial", "trial.json@", "--set", "recompute=norms"}, "", "set of norm, core_attn"},
    {{"program", "trial.json@", "--set", "pipeline_model_parallel_layout=Ett"}, "", "layout"},
    {{"trial", "trial.json@", "--format", "xml"}, "", "expected text or json"},
    {{"trial", "nowhere.json@"}, "", "nowhere.json"},
    {{"sweep", "sweep.json@"}, "", "the database (--db PATH)"},
    {{"sweep", "sweep.json@", "--db", "x.db@", "--max-trials", "2"}, "", "at least 4"},
    {{"sweep", "sweep.json@", "--db", "x.db@", "--max-seconds", "soon"}, "", "--max-seconds"},
    {{"program", "trial.json@", "--rank", "99"}, "", "--rank is 99, expected 0 to"},
    {{"schema"}, "", "the kind of file"},
    {{"schema", "models"}, "", "kinds: sweep, trial, hardware, model"},
    {{"knobs", "extra"}, "", "too many positional options"},
    {{"report"}, "", "usage: moetune report"},
    {{"ls"}, "", "the database"},
    {{"show", "x.db@"}, "", "expected the database and"},
    {{"bisect"}, "", "moetune"},
    {{"init", "--model", "qwen3-30b-a3c"}, "", "qwen3-30b-a3b"},
    {{"init", "--hardware", "my-cluster"}, "", "--hardware is 'my-cluster'"},
    // Databases.
    {{"ls", "nowhere.db@"}, "", "nowhere.db"},
    {{"ls", "trial.json@"}, "", "trial.json"},
    {{"show", "trial.json@", "1"}, "", "trial.json"},
    {{"report", "corpus@", "--out", "x.html@"}, "", "corpus"},
    {{"ls", "@"}, "", "is a folder"},
    {{"ls", "/dev/null"}, "", "/dev/null"},
    // Syntax.
    {{"trial", "wrong.json@"}, "", "is empty"},
    {{"trial", "wrong.json@"}, "{\"model\": ", "line 1"},
    {{"trial", "wrong.json@"}, "{\n  \"num_steps\": 5,\n}", "line 3, column 1"},
    {{"trial", "wrong.json@"}, "{\"a\": 1, \"a\": 2}", "twice"},
    {{"trial", "wrong.json@"}, "[1, 2]", "expected a JSON object"},
    {{"trial", "wrong.json@"}, "{\"a\": \"\xff\"}", "not valid JSON"},
    {{"trial", "wrong.json@"}, std::string(100, '[') + std::string(100, ']'), "nested deeper"},
    {{"trial", "wrong.json@"}, "{ # no comment\n}", "not valid JSON"},
    {{"trial", "wrong.json@"}, "num_steps: 5", "not valid JSON"},
    {{"sweep", "wrong.json@", "--db", "x.db@"}, "{}", "key 'name' is missing"},
};

/// A change of a document that is right, and what the message says.
struct Changed {
  const char* pointer;
  json value;
  const char* helps;
};
std::ostream& operator<<(std::ostream& out, const Changed& row) {
  return out << row.pointer << " " << row.value;
}

const Changed kTrials[] = {
    {"/model/model_type", "gpt5", "supported: llama, mixtral, qwen3_moe"},
    {"/model/hidden_size", "128", "key 'hidden_size' is \"128\", expected an integer"},
    {"/model/num_key_value_heads", 3, "num_key_value_heads"},
    {"/model/head_dim", 7, "an even head_dim"},
    {"/model/num_experts_per_tok", 1000, "num_experts_per_tok"},
    {"/model/hidden_act", "swiglu", "one of silu"},
    {"/model/quantization_config", {{"bits", 4}}, "quantized weights are not supported"},
    {"/model/num_hidden_layers", -1, "from 1 to 1024"},
    {"/hardware/num_nodes", 0, "from 1 to 65536"},
    {"/hardware/memory_bytes", "80 gigs", "such as \"80GB\""},
    {"/hardware/memory_bytes", 80, "did you mean \"80GB\"?"},
    {"/hardware/peak_flops_per_s", 989, "did you mean \"989TF\"?"},
    {"/hardware/intra_node", {{"latency_ns", 1000}, {"bytes_per_s", 450}}, "\"450GB/s\""},
    {"/hardware/intra_node",
     {{"latency_us", 10}, {"bytes_per_s", 4e9}},
     "\"latency_ns\": \"10us\""},
    {"/hardware/efficiency", {{"gemm", 0.7}}, "known keys: "},
    {"/hardware/comm_sm_ratio", 15, "from 0 to 0.5"},
    {"/knobs/micro_batch_size", 0, "from 1 to"},
    {"/knobs/data_paralel_size", 2, "did you mean 'data_parallel_size'?"},
    {"/knobs/cp_comm_type", "ring", "all_gather | p2p"},
    {"/knobs/data_parallel_size", 3, "breaks the rule"},
    {"/training/lr", "1e-3", "key 'training.lr'"},
    {"/training/seq_len", 128, "did you mean 'seq_length'?"},
    {"/training/global_batch_size", 0, "from 1 to"},
    {"/dtype", "bf16", "one of \"f32\", \"f64\""},
    {"/dtype", "fp8", "one of"},
    {"/clock", "fast", "virtual_measured"},
    {"/backend", "rocm", "one of \"cpu\", \"cuda\""},
    {"/communicator", "nccl", "one of"},
    {"/counts_hardware", true, "only a GPU has such counters"},
    {"/num_steps", 2.5, "an integer"},
    {"/data_path", "/nowhere/at/all", "/nowhere/at/all"},
    {"/trace", "everything", "one of"},
};

const Changed kSweeps[] = {
    {"/strategy", "four_walls", "three_walls"},
    {"/num_steps", 3, "95 % interval"},
    {"/trace", "none", "the wall is read from a trace"},
    {"/budget", {{"max_trials", 1}}, "from 4 to"},
    {"/budget", {{"max_seconds", "10 minutes"}}, "such as \"10min\""},
    {"/budget", {{"max_minutes", 10}}, "'max_seconds', in s; write \"max_seconds\": \"10min\""},
    {"/space", {{"micro_batch_size", json::array()}}, "at least one value"},
    {"/space", {{"micro_batch_size", 2}}, "an array"},
    {"/space", {{"micro_batch_size", {1, 1}}}, "there twice"},
    {"/space", {{"micro_batch_size", {0}}}, "from 1 to"},
    {"/space", {{"micro_batches", {1}}}, "did you mean"},
    {"/model", "no-such-model", "no-such-model"},
    {"/hardware", 5, "an object"},
    {"/validate_steps", 0, "from 1 to"},
    {"/min_gain_ratio", 5, "from 0 to 1"},
};

}  // namespace

struct WrongInputs : Cli {
  WrongInputs() {
    write_sweep([](json&) {});
  }

  std::vector<std::string> in_folder(std::vector<std::string> words) {
    for (std::string& word : words) {
      if (!word.ends_with('@')) continue;
      word.pop_back();
      word = folder.file(word);
    }
    return words;
  }

  /// One message, and no sign of what is inside.
  void check_helps(const std::vector<std::string>& words, const std::string& helps) {
    const Answer answer = run(words);
    BOOST_TEST_CONTEXT(answer.err) {
      BOOST_TEST(answer.code == 2);
      BOOST_TEST(answer.out == "");
      BOOST_TEST(answer.err.starts_with("moetune: "));
      BOOST_TEST(answer.err.find(helps) != std::string::npos, "the message says " << helps);
      BOOST_TEST(answer.err.find("moetune: ", 1) == std::string::npos);
      BOOST_TEST(!std::regex_search(
          answer.err, std::regex("exception|terminate|what\\(\\)|nlohmann|bad_|std::|\\.cpp")));
    }
  }
};

BOOST_FIXTURE_TEST_SUITE(wrong_inputs, WrongInputs)

BOOST_DATA_TEST_CASE_F(WrongInputs, what_is_typed, boost::unit_test::data::make(kTyped)) {
  tests::write_text(folder.file("wrong.json"), sample.file);
  check_helps(in_folder(sample.words), sample.helps);
}

BOOST_DATA_TEST_CASE_F(WrongInputs, trial_files, boost::unit_test::data::make(kTrials)) {
  write_spec([&](json& document) { document[json::json_pointer(sample.pointer)] = sample.value; });
  check_helps({"program", spec}, sample.helps);
}

BOOST_DATA_TEST_CASE_F(WrongInputs, sweep_files, boost::unit_test::data::make(kSweeps)) {
  write_sweep([&](json& document) { document[json::json_pointer(sample.pointer)] = sample.value; });
  check_helps({"sweep", folder.file("sweep.json"), "--db", db, "--quiet"}, sample.helps);
}

// Several at once, each with its line.
BOOST_AUTO_TEST_CASE(all_mistakes_of_a_file_are_one_message) {
  write_sweep([](json& document) {
    document["num_step"] = 6;
    document["training"]["lr"] = "fast";
    document["hardware"]["num_nodes"] = 0;
    document["model"]["hidden_size"] = 0;
  });
  tests::write_text(folder.file("sweep.json"),
                    json::parse(tests::read_text(folder.file("sweep.json"))).dump(2));
  const Answer answer = run({"sweep", folder.file("sweep.json"), "--db", db});
  BOOST_TEST_CONTEXT(answer.err) {
    BOOST_TEST(answer.code == 2);
    BOOST_TEST(answer.err.starts_with("moetune: 4 mistakes:\n"));
    const std::regex line(R"(\n  .*sweep\.json(: \w+)?: line \d+: )");
    BOOST_TEST(std::distance(std::sregex_iterator(answer.err.begin(), answer.err.end(), line),
                             std::sregex_iterator()) == 4);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
