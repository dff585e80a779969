// A run of which the log says a part and a command or a trace another: what is told of it together,
// and commands that are of another run than the log.
#include "sweeps/runs/known_run.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/spec/dialects/run_config.h"
#include "engine/spec/model_spec.h"
#include "reports/diagnosis_page.h"
#include "sweeps/runs/compared_runs.h"
#include "sweeps/runs/diagnosis_report.h"
#include "sweeps/runs/echoed_config.h"
#include "sweeps/runs/other_config.h"
#include "sweeps/runs/secrets.h"
#include "sweeps/runs/token_rate.h"
#include "tests/import/trace_texts.h"
#include "tests/profiler/temp_folder.h"
#include "tests/runs/golden_logs.h"

namespace moetune::sweeps {

BOOST_AUTO_TEST_SUITE(known_runs)

namespace {

using nlohmann::json;
using spec::dialects::Dialect;
using spec::dialects::import_run;

/// Of four layers; the batch is that of golden_logs::megatron_step().
std::string command_with(const std::string& flags) {
  return "torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --bf16 --num-layers 4 "
         "--hidden-size 64 --num-attention-heads 4 --seq-length 128 --micro-batch-size 1 " +
         flags + "\n";
}

struct Folder {
  tests::TempFolder temp;
  std::string path = temp.file("run");

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(path);
    std::ofstream(path + "/" + name, std::ios::binary) << text;
  }
  [[nodiscard]] RunDiagnosis diagnosis() const { return diagnose_run({path}, {}); }
};

std::string line_of(const RunDiagnosis& diagnosis, const std::string& name) {
  for (const auto& [key, text] : fact_lines(diagnosis)) {
    if (key == name) return text;
  }
  return "(none)";
}

std::string text_of(const std::vector<std::string>& notes) { return json(notes).dump(); }

std::vector<std::string> contradictions_of(const std::string& command, const std::string& log) {
  return contradictions(import_run(command, Dialect::megatron_lm), golden_logs::facts_of(log));
}

const std::string kRanks8 =
    "using world size: 8, data-parallel size: 2, context-parallel size: 1, "
    "tensor-model-parallel size: 2, pipeline-model-parallel size: 2\n";

}  // namespace

BOOST_AUTO_TEST_CASE(a_command_says_what_the_log_does_not) {
  const Folder folder;
  folder.write("train.log", golden_logs::megatron_steps(1, 9));
  folder.write("run.sh", command_with("--tensor-model-parallel-size 2 --global-batch-size 64"));
  const RunDiagnosis diagnosis = folder.diagnosis();
  const json run = to_json(diagnosis)["run"];
  BOOST_TEST(run["world_size"] == 16);
  BOOST_TEST(run["parallel"]["tp"] == 2);
  BOOST_TEST(run["parallel"]["dp"] == 8);
  // 64 x 128 tokens in a second on 16 devices.
  BOOST_TEST(run["tokens_per_s_per_gpu"] == 512.0);
  BOOST_TEST(run["tokens_per_s_is_derived"] == true);
  BOOST_TEST(run["configuration"]["dialect"] == "megatron-lm");
  BOOST_TEST(run["configuration"]["source"] == folder.path + "/run.sh");
  BOOST_TEST(run["configuration"]["num_settings"] == 0);
  BOOST_TEST(line_of(diagnosis, "run") == "megatron-lm, 9 steps, 16 ranks");
  BOOST_TEST(line_of(diagnosis, "layout") ==
             "tp 2, cp 1, pp 1, vpp 1, ep 1, etp 2, dp 8, micro-batch 1, global batch 64, "
             "sequence 128");
  BOOST_TEST(line_of(diagnosis, "model") == "4 layers, hidden size 64, 4 heads");
  BOOST_TEST(line_of(diagnosis, "config").starts_with(folder.path + "/run.sh: --bf16 --num-layers"),
             line_of(diagnosis, "config"));
}

// 6 times the multiplications of a token forward: see ModelSpec::training_flops_per_token.
BOOST_AUTO_TEST_CASE(tflops_follow_from_sizes_where_no_log_says_them) {
  const Folder folder;
  std::string steps;
  for (int step = 1; step <= 9; ++step) {
    std::string line = golden_logs::megatron_step(step);
    const size_t at = line.find(" throughput per GPU");
    if (at != std::string::npos) line.erase(at, line.find('|', at) + 1 - at);
    steps += line;
  }
  folder.write("train.log", steps);
  const std::string sizes =
      "--global-batch-size 64 --untie-embeddings-and-output-weights "
      "--disable-bias-linear --swiglu ";
  folder.write("run.sh", command_with(sizes));
  BOOST_TEST(to_json(folder.diagnosis())["run"]["tflops_per_gpu"].is_null());
  folder.write("run.sh", command_with(sizes + "--vocab-size 1000"));
  const RunDiagnosis diagnosis = folder.diagnosis();
  const json run = to_json(diagnosis)["run"];
  BOOST_TEST_REQUIRE(run["tflops_is_derived"] == true);
  const spec::ModelSpec model = spec::model_from_json(diagnosis.config->model, "test");
  BOOST_TEST(
      run["tflops_per_gpu"].get<double>() == 512.0 * model.training_flops_per_token(128) / 1e12,
      boost::test_tools::tolerance(1e-9));
  BOOST_TEST(line_of(diagnosis, "speed").ends_with("TFLOP/s a GPU by the model's sizes"),
             line_of(diagnosis, "speed"));
  // The log says what the tokenizer made of it.
  folder.write("run.sh", command_with(sizes));
  folder.write("train.log",
               " > padded vocab (size: 1000) with 24 dummy tokens (new size: 1024)\n" + steps);
  const json padded = to_json(folder.diagnosis())["run"];
  BOOST_TEST(padded["tflops_per_gpu"] == run["tflops_per_gpu"]);
  BOOST_TEST(padded["model_sizes"]["vocab_size"] == 1000);
  BOOST_TEST(padded["model_sizes"]["padded_vocab_size"] == 1024);
}

BOOST_AUTO_TEST_CASE(a_command_alone_is_told) {
  const Folder folder;
  folder.write("run.sh", command_with("--global-batch-size 64"));
  const RunDiagnosis diagnosis = folder.diagnosis();
  const json run = to_json(diagnosis)["run"];
  BOOST_TEST(run["framework"] == "megatron-lm");
  BOOST_TEST(run["status"].is_null());
  BOOST_TEST(run["num_steps"].is_null());
  BOOST_TEST(run["parallel"]["dp"] == 16);
  BOOST_TEST(run["tokens_per_s_per_gpu"].is_null());
  const std::string text = run_text(diagnosis, std::nullopt);
  BOOST_TEST(text.starts_with("run      megatron-lm, 16 ranks\nlayout   tp 1, "), text);
  BOOST_TEST(line_of(diagnosis, "status") == "(none)");
  // Long lines are broken.
  BOOST_TEST(text.find("\n         --") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(a_command_and_a_trace_say_the_rate) {
  const Folder folder;
  tests::EventText events;
  for (int i = 0; i < 40; ++i) {
    if (i % 10 == 0) events.range(1000 * i, 9999, "ProfilerStep#" + std::to_string(i / 10));
    events.call(1000 * i, 1, i + 1).kernel(1000 * i + 10, 900, i + 1);
  }
  const auto write_trace = [&](const std::string& ranks) {
    folder.write("trace.json",
                 events.json(R"(, "distributedInfo": {"rank": 0, "world_size": )" + ranks + "}"));
  };
  write_trace("16");
  folder.write("run.sh", command_with("--global-batch-size 64"));
  const RunDiagnosis diagnosis = folder.diagnosis();
  const json run = to_json(diagnosis)["run"];
  BOOST_TEST(run["framework"] == "megatron-lm");
  BOOST_TEST(run["parallel"]["dp"] == 16);
  // 512 tokens of a device in 10 ms.
  BOOST_TEST(run["tokens_per_s_per_gpu"].get<double>() == 51200.0,
             boost::test_tools::tolerance(1e-6));
  BOOST_TEST(line_of(diagnosis, "speed") == "10.0 ms a step in the traces, 51200 tokens/s a GPU");
  // Of two runs nothing follows.
  write_trace("4");
  const json other = to_json(folder.diagnosis())["run"];
  BOOST_TEST(other["parallel"]["dp"].is_null());
  BOOST_TEST(other["tokens_per_s_per_gpu"].is_null());
}

BOOST_AUTO_TEST_CASE(what_a_trace_lacks_is_told_behind_its_name) {
  const Folder folder;
  tests::EventText events;
  for (int i = 0; i < 40; ++i) events.call(100 * i, 1, i + 1).kernel(100 * i + 9, 90, i + 1);
  events.add(R"({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 9000,
      "dur": 5, "args": {"stream": 7, "correlation": 1180591620717411303424}})");
  folder.write("trace.json", events.json());
  const std::string text = run_text(folder.diagnosis(), std::nullopt);
  BOOST_TEST(text.find("note: " + folder.path +
                       "/trace.json: 1 of 41 device operations have a "
                       "correlation id that does not fit into 32 bits: ") != std::string::npos,
             text);
}

BOOST_AUTO_TEST_CASE(model_and_configuration_of_a_log_are_told) {
  const RunDiagnosis diagnosis = diagnose_run({golden_logs::folder() + "megatron_lm.log"}, {});
  BOOST_TEST(line_of(diagnosis, "model") ==
             "48 layers, hidden size 2048, 32 heads, 128 experts of 768 (8 for each token)");
  const std::string config = line_of(diagnosis, "config");
  BOOST_TEST(config.starts_with("as the log echoes it: "), config);
  BOOST_TEST(config.find(" --exp-avg-dtype fp32 ") != std::string::npos, config);
}

// What torch calls it is no word of the parser.
BOOST_AUTO_TEST_CASE(echoed_types_are_those_of_the_flags) {
  const std::vector<EchoedSetting> settings = {
      {"use_precision_aware_optimizer", "True"}, {"use_distributed_optimizer", "True"},
      {"exp_avg_dtype", "torch.uint8"},          {"exp_avg_sq_dtype", "torch.float16"},
      {"main_params_dtype", "torch.float32"},    {"main_grads_dtype", "torch.bfloat16"}};
  const std::string text = import_text(settings, Dialect::megatron_lm);
  for (const char* flag : {"--exp-avg-dtype fp8", "--exp-avg-sq-dtype fp16",
                           "--main-params-dtype fp32", "--main-grads-dtype bf16"}) {
    BOOST_TEST(text.find(flag) != std::string::npos, text);
  }
  // Nor is it written where a text of other hands has it.
  const auto run = import_run("torchrun pretrain_gpt.py --bf16 --exp-avg-dtype torch.float32",
                              Dialect::megatron_lm);
  const std::string written = export_run(run, Dialect::megatron_lm);
  BOOST_TEST(written.find("torch.") == std::string::npos, written);
}

BOOST_AUTO_TEST_CASE(a_command_of_another_run_is_not_used) {
  const Folder folder;
  folder.write("train.log", kRanks8 + golden_logs::megatron_steps(1, 9));
  folder.write("a.sh", command_with("--tensor-model-parallel-size 4 --global-batch-size 1024 "
                                    "--expert-model-parallel-size 4 --num-experts 8"));
  const RunDiagnosis diagnosis = folder.diagnosis();
  BOOST_TEST(!diagnosis.config.has_value());
  const std::string note =
      folder.path + "/a.sh is of another run than " + folder.path +
      "/train.log: it says ranks 16 where the log says 8, tp 4 where the log "
      "says 2, pp 1 where the log says 2, global batch 1024 where the log says "
      "64; the log counts, and " +
      folder.path + "/a.sh is not used";
  BOOST_TEST(std::ranges::count(diagnosis.notes, note) == 1, text_of(diagnosis.notes));
  const json run = to_json(diagnosis)["run"];
  BOOST_TEST(run["parallel"]["ep"].is_null());
  BOOST_TEST(run["model"].is_null());
  BOOST_TEST(run["configuration"].is_null());
  // The next that may be of this run is.
  folder.write("b.sh",
               "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 "
               "--num-attention-heads 4 --seq-length 128 --tensor-model-parallel-size 2 "
               "--pipeline-model-parallel-size 2 --global-batch-size 64 "
               "--micro-batch-size 1 --bf16\n");
  const RunDiagnosis both = folder.diagnosis();
  BOOST_TEST(both.config_source == folder.path + "/b.sh");
  BOOST_TEST(std::ranges::count(both.notes, note) == 1, text_of(both.notes));
}

BOOST_AUTO_TEST_CASE(only_what_both_say_contradicts) {
  const std::string log = kRanks8 + golden_logs::megatron_steps(1, 3);
  const std::string sizes =
      "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers 4 "
      "--hidden-size 64 --num-attention-heads 4 --seq-length 128 --micro-batch-size 1 ";
  const auto says = [&](const std::string& words) {
    return text_of(contradictions_of("torchrun pretrain_gpt.py " + sizes + words, log));
  };
  BOOST_TEST(says("") == "[]");
  BOOST_TEST(says("--expert-model-parallel-size 2 --num-experts 8") == "[]");
  BOOST_TEST(says("--global-batch-size 8") == R"(["global batch 8 where the log says 64"])");
  // The log has the batch of its last step.
  BOOST_TEST(says("--global-batch-size 128 --rampup-batch-size 16 16 1000") == "[]");
  const std::string titan =
      "[rank0]:[titan] 2026-03-04 05:06:01,089 - root - INFO - step:  1  loss:  9.5  memory: "
      "61.25GiB(77.43%)  tps: 5,000  tflops: 210\n";
  BOOST_TEST(text_of(contradictions_of("torchrun pretrain_gpt.py " + sizes, titan)) ==
             R"(["settings of Megatron-LM where the log is of torchtitan"])");
}

BOOST_AUTO_TEST_CASE(models_of_two_sizes_contradict) {
  const std::string log =
      "------------------------ arguments ------------------------\n"
      "  num_layers ...................................... 48\n"
      "  hidden_size ..................................... 64\n"
      "  num_attention_heads ............................. 4\n"
      "  seq_length ...................................... 128\n"
      "  micro_batch_size ................................ 2\n"
      "-------------------- end of arguments ---------------------\n" +
      golden_logs::megatron_steps(1, 3);
  BOOST_TEST(text_of(contradictions_of(command_with(""), log)) ==
             R"(["micro-batch 1 where the log says 2","layers 4 where the log says 48"])");
}

BOOST_AUTO_TEST_CASE(what_alone_was_said_anew_at_the_start_is_a_note) {
  const Folder folder;
  folder.write("train.log", kRanks8 + golden_logs::megatron_steps(1, 9));
  const std::string sizes = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 ";
  folder.write("run.sh", command_with(sizes + "--global-batch-size 64"));
  const RunDiagnosis ranks = folder.diagnosis();
  BOOST_TEST_REQUIRE(ranks.config.has_value());
  BOOST_TEST(ranks.config->world_size == 8);
  BOOST_TEST(ranks.config->knobs.dp == 2);
  const std::string script = folder.path + "/run.sh";
  const std::string note = script +
                           " says ranks 16 where the log says 8: the log counts, and the " +
                           "rest of " + script + " is used";
  BOOST_TEST(std::ranges::count(ranks.notes, note) == 1, text_of(ranks.notes));
  BOOST_TEST(to_json(ranks)["run"]["parallel"]["dp"] == 2);
  // 64 x 128 tokens in a second on 8 devices.
  BOOST_TEST(to_json(ranks)["run"]["tokens_per_s_per_gpu"] == 1024.0);
  folder.write("run.sh",
               "torchrun pretrain_gpt.py --bf16 --seq-length 128 --micro-batch-size 1 "
               "--num-layers 4 --hidden-size 64 --num-attention-heads 4 " +
                   sizes + "--global-batch-size 512\n");
  const RunDiagnosis batch = folder.diagnosis();
  BOOST_TEST_REQUIRE(batch.config.has_value());
  BOOST_TEST(batch.config->global_batch_size == 64);
  // A script that was changed is of another run.
  folder.write("run.sh", command_with("--tensor-model-parallel-size 4 --global-batch-size 64 "
                                      "--pipeline-model-parallel-size 2"));
  BOOST_TEST(folder.diagnosis().has_other_config);
}

// Its command line says settings of a file anew.
BOOST_AUTO_TEST_CASE(a_file_of_torchtitan_gives_way_to_its_command_line) {
  const Folder folder;
  const std::string prefix = "[rank0]:[titan] 2026-03-04 05:06:01,089 - root - INFO - ";
  folder.write("train.log",
               prefix +
                   "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=4, cp=1, "
                   "tp=2, ep=1\n" +
                   prefix +
                   "step:  1  loss:  9.5  memory: 61.25GiB(77.43%)  tps: 5,000  tflops: 210\n");
  const std::string training = "[training]\nlocal_batch_size = 2\nseq_len = 8192\n[parallelism]\n";
  folder.write("train.toml", training + "tensor_parallel_degree = 1\n");
  const RunDiagnosis diagnosis = folder.diagnosis();
  BOOST_TEST_REQUIRE(diagnosis.config.has_value());
  BOOST_TEST(diagnosis.config->knobs.tp == 2);
  BOOST_TEST(diagnosis.config->knobs.dp == 4);
  folder.write("train.toml",
               training + "tensor_parallel_degree = 1\ncontext_parallel_degree = 2\n");
  BOOST_TEST(folder.diagnosis().has_other_config);
}

namespace {

/// Eight sequences for each 100 ms; the batch grows with step 6. `batch_words`: of the first steps.
std::string growing_steps(const std::string& batch_words) {
  std::string text;
  for (int step = 1; step <= 9; ++step) {
    std::string line = golden_logs::megatron_step(step);
    const bool is_large = step > 5;
    const auto put = [&](const std::string& from, const std::string& to) {
      line.replace(line.find(from), from.size(), to);
    };
    put("(ms): 1000.0", is_large ? "(ms): 3200.0" : "(ms): 800.0");
    put("global batch size:    64 |",
        is_large && !batch_words.empty() ? "global batch size: 256 |" : batch_words);
    text += line;
  }
  return text;
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_step_counts_by_its_own_batch) {
  const std::string flags =
      "--tensor-model-parallel-size 2 --global-batch-size 256 --rampup-batch-size 64 192 320";
  const Folder folder;
  folder.write("run.sh", command_with(flags));
  folder.write("train.log", growing_steps("global batch size:    64 |"));
  const json run = to_json(folder.diagnosis())["run"];
  // 80 sequences of 128 tokens a second on 16 devices, at every step.
  BOOST_TEST(run["tokens_per_s_per_gpu"] == 640.0);
  BOOST_TEST(run["tokens_per_s_is_derived"] == true);
  // The log alone knows its ranks, and echoes the length.
  const std::string echo =
      "using world size: 16, data-parallel size: 8\n"
      "------------------------ arguments ------------------------\n"
      "  seq_length ...................................... 128\n"
      "-------------------- end of arguments ---------------------\n";
  const RunFacts alone = golden_logs::facts_of(echo + growing_steps("global batch size:    64 |"));
  BOOST_TEST(alone.tokens_per_s_per_gpu.value_or(0) == 640.0);
  // Nobody knows which step had which.
  folder.write("train.log", growing_steps(""));
  const json unknown = to_json(folder.diagnosis())["run"];
  BOOST_TEST(unknown["global_batch_size"] == 256);
  BOOST_TEST(unknown["tokens_per_s_per_gpu"].is_null());
}

BOOST_AUTO_TEST_CASE(ranks_by_default_are_not_told_as_those_of_the_run) {
  const std::string flags =
      " pretrain_gpt.py --bf16 --num-layers 4 --hidden-size 64 --num-attention-heads 4 "
      "--seq-length 128 --micro-batch-size 1 --tensor-model-parallel-size 2 --global-batch-size "
      "64\n";
  for (const std::string launcher : {"torchrun --nproc-per-node 8 --nnodes $SLURM_NNODES",
                                     "N=${N:-1}\ntorchrun --nproc-per-node 8 --nnodes $N"}) {
    const Folder folder;
    folder.write("train.log", golden_logs::megatron_steps(1, 9));
    folder.write("run.sh", launcher + flags);
    const RunDiagnosis diagnosis = folder.diagnosis();
    const json run = to_json(diagnosis)["run"];
    BOOST_TEST(run["world_size"].is_null());
    BOOST_TEST(run["parallel"]["dp"].is_null());
    BOOST_TEST(run["parallel"]["tp"] == 2);
    BOOST_TEST(run["tokens_per_s_per_gpu"].is_null());
    BOOST_TEST(text_of(diagnosis.notes).find("starts 8 ranks where nobody says otherwise") !=
                   std::string::npos,
               text_of(diagnosis.notes));
    // Unless the user says them.
    const json told = to_json(diagnose_run({folder.path}, {.num_devices = 32}))["run"];
    BOOST_TEST(told["world_size"] == 32);
    BOOST_TEST(told["parallel"]["dp"] == 16);
    BOOST_TEST(told["tokens_per_s_per_gpu"] == 256.0);
    // Those that do not fit say nothing.
    const RunDiagnosis unfit = diagnose_run({folder.path}, {.num_devices = 11});
    const json other = to_json(unfit)["run"];
    BOOST_TEST(other["world_size"].is_null());
    BOOST_TEST(other["parallel"]["dp"].is_null());
    BOOST_TEST(other["tokens_per_s_per_gpu"].is_null());
    BOOST_TEST(text_of(unfit.notes).find("--gpus says 11 ranks, which are no multiple of tp 2 x") !=
                   std::string::npos,
               text_of(unfit.notes));
  }
}

BOOST_AUTO_TEST_CASE(ranks_of_a_log_that_do_not_fit_a_command) {
  const Folder folder;
  folder.write("train.log", "using world size: 11, data-parallel size: 11\n" +
                                golden_logs::megatron_steps(1, 9));
  folder.write("run.sh",
               "torchrun --nproc-per-node 8 --nnodes ${NNODES:-1} pretrain_gpt.py --bf16 "
               "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 "
               "--micro-batch-size 1 --tensor-model-parallel-size 8 --global-batch-size 64\n");
  const RunDiagnosis diagnosis = folder.diagnosis();
  BOOST_TEST(to_json(diagnosis)["run"]["world_size"] == 11);
  BOOST_TEST(text_of(diagnosis.notes).find("the log or a trace says 11 ranks") != std::string::npos,
             text_of(diagnosis.notes));
}

BOOST_AUTO_TEST_CASE(traces_tell_the_layout_before_a_command) {
  const Folder folder;
  tests::EventText events;
  for (int i = 0; i < 40; ++i) {
    events.call(100 * i, 1, i + 1)
        .add(R"({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0,
            "tid": 7, "ts": )" +
             std::to_string(100 * i + 9) + R"(, "dur": 90, "args": {"stream": 7, "correlation": )" +
             std::to_string(i + 1) + R"(, "Collective name": "allreduce", "Group size": 4,
            "Process Group Name": "3", "In msg nelems": 4, "dtype": "BFloat16",
            "Process Group Description": "TENSOR_MODEL_PARALLEL_GROUP"}})");
  }
  folder.write("trace.json", events.json(R"(, "distributedInfo": {"rank": 0, "world_size": 16})"));
  folder.write("run.sh", command_with("--tensor-model-parallel-size 2 --global-batch-size 64"));
  const RunDiagnosis diagnosis = folder.diagnosis();
  const json run = to_json(diagnosis)["run"];
  BOOST_TEST(run["parallel"]["tp"] == 4);
  BOOST_TEST(run["parallel"]["etp"] == 4);
  BOOST_TEST(run["parallel"]["pp"] == 1);
  BOOST_TEST(run["parallel_by_traces"] == json::array({"tp"}));
  BOOST_TEST(text_of(diagnosis.notes)
                     .find("the configuration says tp 2, the traces have such "
                           "groups of 4 ranks") != std::string::npos,
             text_of(diagnosis.notes));
  // Of two runs nothing follows.
  BOOST_TEST(run["parallel"]["dp"].is_null());
  BOOST_TEST(run["tokens_per_s_per_gpu"].is_null());
}

BOOST_AUTO_TEST_CASE(secrets_are_not_told) {
  const Folder folder;
  folder.write("train.log", golden_logs::megatron_steps(1, 9));
  const auto write = [&](const std::string& key) {
    folder.write("run.sh", command_with("--wandb-api-key " + key + " --hf-token=" + key +
                                        " --tokenizer-type NullTokenizer --max-tokens 5 "
                                        "--moe-token-dispatcher-type alltoall --global-batch-size "
                                        "64 --eod-token word --db-password " +
                                        key));
  };
  write("hunter2");
  const RunDiagnosis first = folder.diagnosis();
  const std::string config = line_of(first, "config");
  for (const std::string& text : {to_json(first).dump(), run_text(first, std::nullopt), config,
                                  reports::render_diagnosis(diagnosis_page(first, "run"))}) {
    BOOST_TEST(text.find("hunter2") == std::string::npos, text);
  }
  for (const char* part :
       {"--wandb-api-key ***", "--hf-token ***", "--tokenizer-type NullTokenizer", "--max-tokens 5",
        "--moe-token-dispatcher-type alltoall", "--eod-token word", "--db-password ***"}) {
    BOOST_TEST(config.find(part) != std::string::npos, config);
  }
  // Nor in what differs.
  write("hunter3");
  const std::string differing =
      comparison_text(compare_runs(first, folder.diagnosis()), std::nullopt);
  BOOST_TEST(differing.find("hunter") == std::string::npos, differing);
}

BOOST_AUTO_TEST_CASE(names_of_secrets) {
  for (const char* name : {"--wandb-api-key", "AWS_ACCESS_KEY_ID", "HF_TOKEN", "--token",
                           "logger.wandb_api_key", "s3.secret", "DB_PASSWORD", "--auth-token"}) {
    BOOST_TEST(is_secret(name, "abc"), name);
    BOOST_TEST(!is_secret(name, "true"), name);
  }
  for (const char* name :
       {"--tokenizer-type", "--max-tokens", "--moe-token-dispatcher-type", "key_value_channels",
        "--kv-channels", "--pad-token", "num_experts_per_token", "--data-cache-path", "--keys"}) {
    BOOST_TEST(!is_secret(name, "abc"), name);
  }
  BOOST_TEST(!is_secret("--image-end-token", "7"));
  BOOST_TEST(!is_secret("--any-token", "7"));
  BOOST_TEST(without_secrets("A_TOKEN='x y'; run --api-key \"q\" --lr 1 --password=p --x") ==
             "A_TOKEN=***; run --api-key *** --lr 1 --password=*** --x");
}

BOOST_AUTO_TEST_CASE(secrets_in_lists_and_in_quoted_commands) {
  const std::pair<const char*, const char*> rows[] = {
      {R"(+ srun --export=ALL,WANDB_API_KEY=leak -e HF_TOKEN=leak bash -c "A=INFO HF_TOKEN=leak t")",
       R"(+ srun --export=ALL,WANDB_API_KEY=*** -e HF_TOKEN=*** bash -c "A=INFO HF_TOKEN=*** t")"},
      {"--env=WANDB_API_KEY=leak --lr=1", "--env=WANDB_API_KEY=*** --lr=1"},
      {"bash -c 'run --api-key leak --lr 1' x", "bash -c 'run --api-key *** --lr 1' x"},
      {R"(sh -c "A_TOKEN='leak leak' run; B_TOKEN=leak" x)",
       R"(sh -c "A_TOKEN=*** run; B_TOKEN=***" x)"},
      {R"(sh -c "A_TOKEN=\"leak leak\" run" x)", R"(sh -c "A_TOKEN=*** run" x)"},
      {R"(ssh n "sh -c \"A_TOKEN=leak run --password 'leak leak'\" x" y)",
       R"(ssh n "sh -c \"A_TOKEN=*** run --password ***\" x" y)"},
      {R"(A_TOKEN=leak\ leak"leak leak" run)", "A_TOKEN=*** run"},
      {R"(echo it's; A_TOKEN='leak leak' run)", "echo it's; A_TOKEN=*** run"},
      {R"(echo "x\\" A_TOKEN="leak leak" run)", R"(echo "x\\" A_TOKEN=*** run)"},
      {R"(sh -c "A_TOKEN=" x)", R"(sh -c "A_TOKEN=" x)"},
      {"run --api-key \\\n leak", "run --api-key \\\n ***"},
      {R"(run "A_TOKEN=leak leak)", R"(run "A_TOKEN=*** leak)"},
      {"run --api-key", "run --api-key"},
      {R"(run --env '{"HF_TOKEN": "leak, leak", "A": "x", "api_key":"leak"}' --lr 1)",
       R"(run --env '{"HF_TOKEN": "***", "A": "x", "api_key":"***"}' --lr 1)"},
      {R"(sh -c "run '{\"password\": \"leak\", \"lr\": 1}'" x)",
       R"(sh -c "run '{\"password\": \"***\", \"lr\": 1}'" x)"},
      {R"({"password": 12, "end_token": 7, "secret": leak})",
       R"({"password": ***, "end_token": 7, "secret": ***})"},
      {R"(run --ext '{'\''api_key'\'': '\''leak'\''}' x)",
       R"(run --ext '{'\''api_key'\'': '\''***'\''}' x)"},
      {R"({'api_key': "leak", 'a': 1})", R"({'api_key': "***", 'a': 1})"},
      {R"({"secrets": ["leak", {"a": "leak"}], "lr": 1})", R"({"secrets": ***, "lr": 1})"},
      {"x https://u:pa,ss=l;eak@example.org/x", "x https://***@example.org/x"},
      {"x https://hf_abcdefghijklmnopqrstuvwxyz@example.org/x", "x https://***@example.org/x"},
      {"x https://u:leak@example.org/x?token=leak", "x https://***@example.org/x?token=***"},
      {R"(['run', '--api-key', 'leak', '--lr', '1'])",
       R"(['run', '--api-key', '***', '--lr', '1'])"},
      {R"(["--api-key", "--lr", "1"] "a_token", "x")",
       R"(["--api-key", "--lr", "1"] "a_token", "x")"},
      {R"({"password": "leak)", R"({"password": "***)"},
      {R"({"password":)", R"({"password":)"},
      {"git clone https://somebody:leak@example.org/a:b@c x",
       "git clone https://***@example.org/a:b@c x"},
      {"curl http://somebody@example.org http://example.org:80/a@b",
       "curl http://somebody@example.org http://example.org:80/a@b"},
      {"A='x y' b=\"c;d\" --tokenizer-type=N,e=f \\",
       "A='x y' b=\"c;d\" --tokenizer-type=N,e=f \\"},
  };
  for (const auto& [command, told] : rows) BOOST_TEST(without_secrets(command) == told);
  // Settings hold such lists as well.
  spec::dialects::RunConfig config;
  config.stated.push_back({.key = "--env", .value = "A=1,HF_TOKEN=leak"});
  hide_secrets(config);
  BOOST_TEST(config.stated.front().value == "A=1,HF_TOKEN=***");
}

BOOST_AUTO_TEST_CASE(long_commands_are_searched_once) {
  // Each would take minutes if what was read was read again.
  for (const std::string part :
       {"a=", "\"", "\\", "\\\"", "'\"", "token=1,", "token=", "--token 1 ",
        "\" TOKEN=", "TOKEN=\"' ", "\\\" TOKEN=1", "--token \"", "--token\", ", "--token', '",
        "token\" ", "token\":", "a://:@", "token\": \""}) {
    std::string text;
    while (text.size() < 2'000'000) text += part;
    BOOST_TEST(without_secrets(text).size() > 0U);
  }
}

BOOST_AUTO_TEST_CASE(a_schedule_that_is_not_set_changes_no_batch) {
  const auto grows = [](const char* key, const char* value) {
    spec::dialects::RunConfig config;
    config.stated.push_back({.key = key, .value = value});
    return has_growing_batch(config, {});
  };
  for (const char* key : {"--rampup-batch-size", "train.rampup_batch_size"}) {
    for (const char* value : {"", "None", "null", "0", "[]"}) {
      BOOST_TEST(!grows(key, value), key << " " << value);
    }
    BOOST_TEST(grows(key, "64 192 320"));
  }
  BOOST_TEST(grows("--step-batch-size-schedule", "0:32 10:64"));
}

BOOST_AUTO_TEST_CASE(one_step_of_nan_is_one_step) {
  std::string text = golden_logs::megatron_steps(1, 3);
  std::string last = golden_logs::megatron_step(4);
  last.replace(last.find("5.500000E+00"), 12, "NAN");
  const Folder folder;
  folder.write("train.log", text + last);
  BOOST_TEST(line_of(folder.diagnosis(), "loss") == "nan at the end, 1 step of NaN");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
