// Mistakes that people make, one row each: every one ends in one message that helps, and nothing
// runs.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <regex>
#include <string>
#include <vector>

#include "kernels/base/error.h"
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
    {{"help", "swep"}, "", "did you mean 'sweep'"},
    {{"--verbose"}, "", "there is no command '--verbose'"},
    {{"trial"}, "", "the trial file is missing"},
    {{"trial", "trial.json@", "--sett", "a=b"}, "", "unrecognised option '--sett'"},
    {{"trial", "trial.json@", "--set"}, "", "argument for option '--set' is missing"},
    {{"trial", "trial.json@", "--set", "micro_batch_size"}, "", "expected KNOB=VALUE"},
    {{"trial", "trial.json@", "--set", "micro_batch=2"}, "", "did you mean 'micro_batch_size'"},
    {{"trial", "trial.json@", "--set", "tp=2"}, "", "did you mean 'tensor_model_parallel_size'?"},
    {{"program", "trial.json@", "--set", "vpp=2"},
     "",
     "did you mean 'virtual_pipeline_model_parallel_size'?"},
    {{"trial", "trial.json@", "--set", "micro_batch_size=two"}, "", "is 'two', expected >= 1"},
    {{"trial", "trial.json@", "--set", "micro_batch_size=0"}, "", "from 1 to"},
    {{"trial", "trial.json@", "--set", "recompute=norms"}, "", "set of norm, core_attn"},
    {{"program", "trial.json@", "--set", "pipeline_model_parallel_layout=Ett"},
     "",
     "has 1 stages; a multiple of"},
    {{"plan", "--model", "llama3-8b", "--hardware", "h100-80g", "--fix", "foo=1"},
     "",
     "--fix names 'foo', which is no knob of plans; moetune knobs --plans lists them"},
    {{"plan", "--model", "llama3-8b", "--hardware", "h100-80g", "--fix", "precison=bf16"},
     "",
     "--fix names 'precison', which is no knob of plans: did you mean 'precision'?"},
    {{"plan", "--model", "llama3-8b", "--hardware", "h100-80g", "--fix", "tp"},
     "",
     "--fix is 'tp', expected tp=VALUE"},
    {{"trial", "trial.json@", "--format", "xml"}, "", "expected text or json"},
    {{"trial", "nowhere.json@"}, "", "No such file"},
    {{"sweep", "sweep.json@"}, "", "the database (--db PATH)"},
    {{"sweep", "sweep.json@", "--db", "x.db@", "--max-trials", "2"}, "", "at least 4"},
    {{"sweep", "sweep.json@", "--db", "x.db@", "--max-seconds", "soon"}, "", "a whole number of"},
    {{"sweep", "sweep.json@", "--db", "x.db@", "--max-seconds", "0min"}, "", "such as 10min"},
    {{"sweep", "sweep.json@", "--db", "x.db@", "--max-seconds", "10GB"}, "", "such as 10min"},
    {{"program", "trial.json@", "--rank", "99"}, "", "--rank is 99, expected 0 to"},
    {{"schema"}, "", "the kind of file"},
    {{"schema", "models"}, "", "kinds: sweep, engine-sweep, trial, hardware, model"},
    {{"knobs", "extra"}, "", "too many positional options"},
    {{"report"}, "", "the database (--db PATH) is missing"},
    {{"ls"}, "", "the database (--db PATH) is missing"},
    {{"show", "x.db@"}, "", "the trial's number or hash"},
    {{"bisect"}, "", "the folder of a git repository (--repo PATH)"},
    {{"init", "--model", "qwen3-30b-a3c"}, "", "did you mean 'qwen3-30b-a3b'?"},
    {{"init", "--hardware", "my-cluster"}, "", "known names: a100-80g, "},
    {{"init", "--model", "-", "--hardware", "-"}, "", "are both -, expected a file or a name"},
    {{"init", "--hardware", "wrong.json@"},
     R"({"model_type": "llama", "dtype": "bfloat16", "hidden_size": 64})",
     "is the config.json of a model, expected the hardware file of a cluster; --model takes it"},
    {{"init", "--model", "wrong.json@"},
     R"({"name": "ours", "num_nodes": 1, "devices_per_node": 8})",
     "is the hardware file of a cluster, expected the config.json of a model; --hardware takes it"},
    {{"init", "--model", "sweep.json@"}, "", "is a sweep or trial file, expected the config.json"},
    {{"plan", "--model", "sweep.json@", "--hardware", "h100-80g", "--gpus", "8"},
     "",
     "is a sweep or trial file, expected the config.json of a model for --model"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "sweep.json@", "--gpus", "8"},
     "",
     "is a sweep or trial file, expected the hardware file of a cluster for --hardware"},
    // Databases.
    {{"ls", "nowhere.db@"}, "", "there is no such database"},
    {{"ls", "trial.json@"}, "", "name a file written by 'moetune sweep'"},
    {{"show", "trial.json@", "1"}, "", "name a file written by 'moetune sweep'"},
    {{"report", "corpus@", "--out", "x.html@"}, "", "name a file written by 'moetune sweep'"},
    {{"ls", "@"}, "", "is a folder"},
    {{"ls", "/dev/null"}, "", "is not a regular file, expected a runs database"},
    // Plans, and runs of other frameworks.
    {{"plan"}, "", "a model is missing"},
    {{"plan", "--model", "qwen3-30b-a3", "--hardware", "h100-80g", "--gpus", "8"},
     "",
     "did you mean 'qwen3-30b-a3b'"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "0"},
     "",
     "--gpus is '0', expected a whole number of at least 1"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--fix", "pq=1"},
     "",
     "did you mean 'pp'"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--fix", "tp=1", "--fix",
      "tp=2"},
     "",
     "--fix names 'tp' twice"},
    {{"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "8", "--against",
      "torchrun pretrain_gpt.py --tensor-model-parallel-size two"},
     "",
     "'--tensor-model-parallel-size' is 'two'"},
    {{"estimate"}, "", "expected one of SPEC, --rows FILE and --run COMMAND"},
    {{"plan", "--model", "llama3-8b", "--hardware", "h100-80g", "--fix", "tp=1e9"},
     "",
     "knob 'tp' is '1e9', expected 1 to 1048576"},
    {{"plan", "--model", "llama3-8b", "--hardware", "h100-80g", "--fix", "first_stage_layers=-1"},
     "",
     "expected 0 to 1048576; 0 is an even split"},
    {{"estimate", "torchrun pretrain_gpt.py --tensor-model-parallel-size 2"},
     "",
     "'torchrun pretrain_gpt.py --tensor-model-parallel-size 2' is a command of a run and no file: "
     "put it behind --run"},
    {{"diagnose", "torchrun pretrain_gpt.py --tensor-model-parallel-size 2"},
     "",
     "put it behind --run"},
    {{"estimate", "my sweep"}, "", "my sweep: there is no such file, and no sweep of that name"},
    {{"diagnose"}, "", "a folder or file of the run is missing"},
    {{"diagnose", "nowhere@"}, "", "is neither a file nor a folder"},
    {{"diagnose", "wrong.json@"}, "hello", "is no log, trace or configuration"},
    {{"diagnose", "wrong.json@"}, "{\"traceEvents\": 5}", "traceEvents is no list"},
    {{"compare", "wrong.json@"}, "hello", "the second run, a folder or file is missing"},
    {{"calibrate"}, "", "expected a file of rows (--rows)"},
    {{"calibrate", "--log", "trial.json@"}, "", "--log needs --hardware"},
    {{"calibrate", "--db", "no.base@"}, "", "there is no such database"},
    {{"probe", "--hardware", "h100"}, "", "unrecognised option '--hardware'"},
    {{"tell", "sweep.json@"}, "", "a log of the run is missing"},
    {{"import"}, "", "a command or configuration is missing"},
    {{"import", "nowhere.toml"}, "", "is neither a file nor a command of a run"},
    {{"import", "python train.py --lr"}, "", "--dialect says whose it is"},
    {{"export", "--format", "yaml"}, "", "expected megatron-lm, megatron-bridge"},
    {{"trace", "--from", "wrong.json@", "--out", "out.json@"},
     "hello",
     "is no trace of a known kind, expected an export of Nsight Systems"},
    {{"trace", "--from", "wrong.json@", "--out", "out.json@"}, "{}", "has no traceEvents"},
    {{"trace", "--from", "wrong.json@", "--out", "out.json@"},
     "{\"otherData\": {\"writer\": \"moetune 1\"}, \"traceEvents\": []}",
     "origin_ns"},
    {{"trace", "--from", "wrong.json@", "--out", "out.json@"},
     "[{\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": -2.3e15, \"dur\": 5}, "
     "{\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": 2.3e15, \"dur\": 5}]",
     "more than 73 years apart"},
    {{"watch"}, "", "the database (--db PATH) is missing"},
    {{"watch", "no.base@"}, "", "there is no such database"},
    // Options that mean nothing beside each other.
    {{"estimate", "trial.json@", "--hardware", "h200"}, "", "SPEC and --hardware do not go"},
    {{"estimate", "trial.json@", "--gpus", "4"}, "", "SPEC and --gpus do not go together"},
    {{"estimate", "--rows", "wrong.json@", "--gpus", "8"}, "[]", "--rows and --gpus do not go"},
    {{"estimate", "--rows", "wrong.json@", "--set", "a=1"}, "[]", "--rows and --set do not go"},
    {{"estimate", "--run", "wrong.json@", "--set", "a=1"}, "x", "--run and --set do not go"},
    {{"plan", "--model", "llama3-8b", "--hardware", "h100-80g", "--dialect", "primus"},
     "",
     "--dialect needs --against"},
    {{"knobs", "--plans", "--markdown"}, "", "--plans and --markdown do not go together"},
    {{"knobs", "--plans", "--format", "json"}, "", "--plans are listed as text alone"},
    {{"schema", "sweep", "--markdown"}, "", "KIND and --markdown do not go together"},
    {{"trial", "trial.json@", "--print-spec", "--db", "x.db@"}, "", "--print-spec and --db do not"},
    {{"trial", "trial.json@", "--print-spec", "--step-limit", "soon"},
     "",
     "--step-limit is 'soon'"},
    // Names that no file can have.
    {{"ls", std::string(5000, 'x')}, "", "there is no such database"},
    {{"db", "upgrade", std::string(5000, 'x')}, "", "there is no such database"},
    {{"plan", "--model", "llama3-8b", "--hardware", "h100-80g", "--calibration",
      std::string(5000, 'x')},
     "",
     "there is no calibration 'xxx"},
    {{"init", "--out", std::string(5000, 'x')}, "", "...: File name too long"},
    {{"plan", "--model", "llama3-8b", "--hardware", "h100-80g", "--report", std::string(5000, 'x')},
     "",
     "...: File name too long"},
    // What has no end.
    {{"trial", "/dev/zero"}, "", "/dev/zero: has more than 67108864 bytes, expected a JSON file"},
    {{"init", "--model", "/dev/zero"}, "", "/dev/zero: has more than"},
    {{"estimate", "--rows", "/dev/zero"}, "", "/dev/zero: has more than"},
    // Syntax.
    {{"trial", "wrong.json@"}, "", "is empty"},
    {{"trial", "wrong.json@"}, "{\"model\": ", "found the end of the file"},
    {{"trial", "wrong.json@"}, "{\n  \"num_steps\": 5,\n}", "line 3, column 1"},
    {{"trial", "wrong.json@"}, "{\"a\": 1, \"a\": 2}", "twice"},
    {{"trial", "wrong.json@"}, "[1, 2]", "expected a JSON object"},
    {{"trial", "wrong.json@"}, "{\"a\": \"\xff\"}", "not valid JSON"},
    {{"trial", "wrong.json@"}, std::string(100, '[') + std::string(100, ']'), "nested deeper"},
    {{"trial", "wrong.json@"}, "{ # no comment\n}", "not valid JSON"},
    {{"trial", "wrong.json@"}, "num_steps: 5", "not valid JSON"},
    {{"sweep", "wrong.json@", "--db", "x.db@"}, "{}", "key 'name' is missing"},
    // Files of another kind. Newer ones of models have a dtype, as trials do.
    {{"sweep", "wrong.json@", "--db", "x.db@"},
     R"({"model_type": "llama", "dtype": "bfloat16", "hidden_size": 64})",
     "is the config.json of a model, expected a sweep file; `moetune init --model "},
    {{"trial", "wrong.json@"},
     R"({"model_type": "gpt5"})",
     "is the config.json of a model, expected a trial or sweep file"},
    {{"sweep", "wrong.json@", "--db", "x.db@"},
     R"({"name": "ours", "num_nodes": 1, "devices_per_node": 8})",
     "is the hardware file of a cluster, expected a sweep file; `moetune init --hardware "},
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
    {"/model/num_key_value_heads", 3, "expected a divisor of num_attention_heads (4)"},
    {"/model/head_dim", 7, "an even head_dim"},
    {"/model/num_experts_per_tok", 1000, "expected an integer from 1 to 8"},
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
    {"/hardware/intra_node",
     {{"latency_ns", 1000}, {"bandwidth_gbps", 400}},
     "write \"bytes_per_s\": \"400Gb/s\""},
    {"/hardware/memory_bytes", 81920, "did you mean \"80GiB\"?"},
    {"/hardware/launch_ns", 4000000, "did you mean \"4us\"?"},
    {"/hardware/launch_ns", 4, "did you mean \"4us\"?"},
    {"/hardware/sync_ns", 8, "did you mean \"8us\"?"},
    {"/hardware/intra_node", {{"latency_ns", 10}, {"bytes_per_s", 4e9}}, "did you mean \"10us\"?"},
    {"/hardware/inter_node",
     {{"latency_ns", "20ms"}, {"bytes_per_s", 4e9}},
     "did you mean \"20us\"?"},
    {"/hardware/intra_node",
     {{"latency_ns", "1ms"}, {"bytes_per_s", 4e9}},
     "did you mean \"1us\"?"},
    {"/hardware/intra_node",
     {{"latency_ns", 0.0000035}, {"bytes_per_s", 4e9}},
     "did you mean \"3.5us\"?"},
    {"/hardware/efficiency", {{"product", 45}}, "did you mean 0.45?"},
    {"/hardware/memory_GB", 80, "write \"memory_bytes\": \"80GB\""},
    {"/hardware/efficiency", {{"gemm", 0.7}}, "known keys: attention, "},
    {"/hardware/comm_sm_ratio", 15, "from 0 to 0.5"},
    {"/knobs/micro_batch_size", 0, "from 1 to"},
    {"/knobs/data_paralel_size", 2, "did you mean 'data_parallel_size'?"},
    {"/knobs/cp_comm_type", "ring", "all_gather | p2p"},
    {"/knobs/data_parallel_size", 3, "data_parallel_size 2 would be right"},
    {"/training/lr", "1e-3", "key 'training.lr' is \"1e-3\", expected a number from 0"},
    {"/training/lr", 4,
     "key 'training.lr' is 4, expected a learning rate of at most 1; did you mean 4e-4?"},
    {"/training/lr", 150, "did you mean 1.5e-4?"},
    {"/training/lr", 1e7, "expected a number from 0 to 1e+06"},
    {"/training/min_lr", 5, "'training.min_lr' is 5, expected a learning rate of at most 1"},
    {"/training/seq_len", 128, "did you mean 'seq_length'?"},
    {"/training/global_batch_size", 0, "from 1 to"},
    {"/dtype", "bf16", "one of \"f32\", \"f64\""},
    {"/dtype", "fp8", "one of \"f32\", \"f64\""},
    {"/clock", "fast", "one of \"wall\", \"virtual_measured\""},
    {"/backend", "rocm", "one of \"cpu\", \"cuda\""},
    {"/communicator", "nccl", "one of \"threads\", \"fake\""},
    {"/counts_hardware", true, "only a GPU has such counters"},
    {"/num_steps", 2.5, "an integer"},
    {"/data_path", "/nowhere/at/all", "does not exist; known names: quickstart"},
    {"/trace", "everything", "one of \"none\", \"ops\", \"all\""},
};

/// Layouts that cannot be, by several changes at once (RFC 7396).
struct Patched {
  json patch;
  const char* helps;
};
std::ostream& operator<<(std::ostream& out, const Patched& row) {
  return out << row.patch.dump().substr(0, 200);
}

json two_tensor_ranks(json patch) {
  patch["knobs"]["tensor_model_parallel_size"] = 2;
  patch["knobs"]["context_parallel_size"] = 1;
  return patch;
}

json with_layout(const std::string& layout, json knobs = json::object()) {
  knobs["pipeline_model_parallel_layout"] = layout;
  return {{"knobs", knobs}};
}

// Of 8 devices: dp 2, cp 2, pp 2, ep 4; 4 layers, 4 heads, 8 sequences.
const Patched kImpossible[] = {
    {two_tensor_ranks({{"model", {{"mlp_only_layers", {1}}, {"intermediate_size", 49}}}}),
     "tensor_model_parallel_size 2 does not divide the 49 columns of the MLP"},
    {two_tensor_ranks({{"model", {{"shared_expert_intermediate_size", 15}}}}),
     "does not divide the 15 columns of the shared expert"},
    {two_tensor_ranks({{"model", {{"vocab_size", 63}}}}), "the 63 entries of the vocabulary"},
    {two_tensor_ranks({{"training", {{"seq_length", 127}}}}),
     "does not split 1 sequences of 127 tokens"},
    {{{"knobs", {{"tensor_model_parallel_size", 3}}}}, "does not divide the 4 attention heads"},
    {{{"knobs",
       {{"tensor_model_parallel_size", 4},
        {"context_parallel_size", 1},
        {"data_parallel_size", 1}}}},
     "tensor_model_parallel_size 4 does not divide the 2 key-value groups"},
    {{{"knobs", {{"expert_tensor_parallel_size", 2}}}},
     "expert_model_parallel_size 4 x expert_tensor_parallel_size 2 does not divide"},
    {{{"knobs", {{"expert_tensor_parallel_size", 3}}}}, "the 16 columns of an expert"},
    {{{"knobs",
       {{"pipeline_model_parallel_size", 1},
        {"data_parallel_size", 4},
        {"virtual_pipeline_model_parallel_size", 2}}}},
     "2 virtual stages need pipeline_model_parallel_size above 1"},
    {{{"knobs", {{"virtual_pipeline_model_parallel_size", 2}}},
      {"training", {{"global_batch_size", 6}}}},
     "the 3 micro-batches of a step are not a multiple of pipeline_model_parallel_size 2"},
    {with_layout(std::string(1 << 20, 't')), "has 1048576 characters, at most 10000 are read"},
    {with_layout("Etz|ttL"), "'z' at 2 is no letter"},
    {with_layout("Et\n|ttL"), "is no letter"},
    {with_layout("Ett|tL"), "has 3 layers (t), the model has 4"},
    {with_layout("Et|t|ttL"), "has 3 stages; a multiple of pipeline_model_parallel_size 2"},
    {with_layout("Ett|ttL", {{"decoder_first_pipeline_num_layers", 2}}),
     "excludes decoder_first_pipeline_num_layers"},
    {with_layout("Ett|ttL", {{"decoder_last_pipeline_num_layers", 2}}),
     "and decoder_last_pipeline_num_layers; use 0 for both"},
    {with_layout("Ett|ttL", {{"virtual_pipeline_model_parallel_size", 2}}),
     "has 1 virtual stages a rank, virtual_pipeline_model_parallel_size says 2"},
};

const Changed kSweeps[] = {
    {"/strategy", "four_walls", "known are: three_walls"},
    {"/num_steps", 3, "95 % interval"},
    {"/trace", "none", "the wall is read from a trace"},
    {"/budget", {{"max_trials", 1}}, "from 4 to"},
    {"/budget", {{"max_seconds", "10 minutes"}}, "such as \"10min\""},
    {"/budget", {{"trial_timeout_ms", 500}}, "write \"trial_timeout_s\": \"500ms\""},
    {"/budget", {{"max_minutes", 10}}, "'max_seconds', in s; write \"max_seconds\": \"10min\""},
    {"/space", {{"micro_batch_size", json::array()}}, "at least one value"},
    {"/space", {{"micro_batch_size", 2}}, "an array"},
    {"/space", {{"micro_batch_size", {1, 1}}}, "there twice"},
    {"/space", {{"micro_batch_size", {0}}}, "from 1 to"},
    {"/space", {{"micro_batches", {1}}}, "did you mean 'micro_batch_size'?"},
    {"/model", "no-such-model", "known names: deepseek-v2, "},
    {"/data_path", "quikstart", "did you mean 'quickstart'?"},
    {"/hardware", 5, "an object"},
    {"/validate_steps", 0, "from 1 to"},
    {"/training/lr", 400, "did you mean 4e-4?"},
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

  /// One message, no sign of what is inside, and no database.
  void check_helps(const std::vector<std::string>& words, const std::string& helps) {
    const Answer answer = run(words);
    BOOST_TEST_CONTEXT(answer.err) {
      BOOST_TEST(answer.code == 2);
      BOOST_TEST(answer.out == "");
      BOOST_TEST(answer.err.starts_with("moetune: "));
      BOOST_TEST(answer.err.size() < 4000U);  // whatever was put in
      BOOST_TEST(answer.err.find(helps) != std::string::npos, "the message says " << helps);
      BOOST_TEST(answer.err.find("moetune: ", 1) == std::string::npos);
      BOOST_TEST(!std::regex_search(
          answer.err, std::regex("exception|terminate|what\\(\\)|nlohmann|bad_|std::|\\.cpp")));
      for (const auto& entry : std::filesystem::directory_iterator(folder.file(""))) {
        const std::string name = entry.path().filename();
        BOOST_TEST(name.find(".db") == std::string::npos, name << " is not written");
      }
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

BOOST_DATA_TEST_CASE_F(WrongInputs, impossible_layouts, boost::unit_test::data::make(kImpossible)) {
  write_spec([&](json& document) { document.merge_patch(sample.patch); });
  check_helps({"program", spec}, sample.helps);
  // A trial that cannot run is a row with its reason.
  const Answer answer = run({"trial", spec, "--db", db});
  BOOST_TEST_CONTEXT(answer.out << answer.err) {
    BOOST_TEST(answer.code == 2);
    BOOST_TEST((answer.out + answer.err).find(sample.helps) != std::string::npos, sample.helps);
    BOOST_TEST(answer.out.find("ms per step") == std::string::npos, "no rank was started");
  }
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

// Broken rules, too, where the file has the knob with the value that breaks them.
BOOST_AUTO_TEST_CASE(all_broken_rules_are_one_message) {
  write_sweep([](json& document) {
    document["knobs"]["expert_model_parallel_size"] = 3;
    document["knobs"]["micro_batch_size"] = 3;
  });
  const std::string file = folder.file("sweep.json");
  tests::write_text(file, json::parse(tests::read_text(file)).dump(2));
  const std::vector<std::vector<std::string>> commands = {
      {"sweep", file, "--db", db}, {"trial", file}, {"program", file}};
  for (const std::vector<std::string>& words : commands) {
    const Answer answer = run(words);
    BOOST_TEST_CONTEXT(answer.err) {
      BOOST_TEST(answer.code == 2);
      BOOST_TEST(answer.err.starts_with("moetune: 3 mistakes:\n"));
      for (const char* part : {"expert_model_parallel_size' breaks the rule ep_divides_plane",
                               "expert_model_parallel_size' breaks the rule ep_divides_experts",
                               "micro_batch_size' breaks the rule micro_batch_divides_global"}) {
        const std::regex line(fmt::format(R"(\n  .*sweep\.json: line \d+: key 'knobs\.{})", part));
        BOOST_TEST(std::regex_search(answer.err, line), "the message has a line of " << part);
      }
    }
  }
  BOOST_TEST(!std::filesystem::exists(db));
  // Of the keys that a rule is about, one that the file has.
  write_sweep([](json& document) {
    document["knobs"].erase("micro_batch_size");
    document["training"]["global_batch_size"] = 7;
  });
  tests::write_text(file, json::parse(tests::read_text(file)).dump(2));
  const Answer odd = run({"program", file});
  BOOST_TEST(std::regex_search(odd.err, std::regex(R"(sweep\.json: line \d+: key 'training\.)"
                                                   "global_batch_size' breaks the rule "
                                                   "micro_batch_divides_global")),
             odd.err);
  // The file's line is not to blame for what --set says.
  write_sweep([](json&) {});
  check_helps({"sweep", file, "--db", db, "--set", "micro_batch_size=3"},
              "sweep.json: key 'knobs.micro_batch_size' breaks the rule");
}

// Whoever pastes a command does not have to read all of it again.
BOOST_AUTO_TEST_CASE(a_long_command_is_cut) {
  std::string command = "torchrun pretrain_gpt.py --tensor-model-parallel-size 2";
  for (int i = 0; i < 1000; ++i) command += " --flag value";
  const std::string name(5000, 'x');
  for (const std::vector<std::string>& words : {std::vector<std::string>{"estimate", command},
                                                {"diagnose", command},
                                                {"estimate", name},
                                                {"diagnose", name},
                                                {"import", name},
                                                {"estimate", "--rows", command}}) {
    const Answer answer = run(words);
    BOOST_TEST(answer.code == 2);
    BOOST_TEST(answer.err.size() < 800U, answer.err.substr(0, 1000));
    BOOST_TEST(tests::contains(answer.err, words.back().substr(0, 40)), answer.err.substr(0, 1000));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
