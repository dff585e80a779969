// moetune diagnose as people type it: logs, traces and configurations of a run, in any mixture.
#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "sweeps/runs/diagnosed_run.h"
#include "tests/import/trace_texts.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

namespace data = boost::unit_test::data;
namespace fs = std::filesystem;
using nlohmann::json;
using tests::Answer;
using tests::Cli;

namespace {

std::string golden(const std::string& name) {
  return std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/" + name;
}

struct Diagnose : Cli {
  json document(std::vector<std::string> words) {
    words.insert(words.begin(), "diagnose");
    words.insert(words.end(), {"--format", "json"});
    const Answer answer = run(words);
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out);
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(diagnose)

BOOST_FIXTURE_TEST_CASE(a_log_alone_says_how_the_run_went, Diagnose) {
  const json run = document({golden("logs/megatron_lm.log")});
  BOOST_TEST(run["run"]["framework"] == "megatron-lm");
  BOOST_TEST(run["run"]["status"] == "ok");
  BOOST_TEST(run["run"]["step_time_s"].get<double>() > 0);
  BOOST_TEST(run["ranks"].empty());
  // 47010.25 MiB of rank 1 and 45000 MiB of rank 4.
  const Answer text = this->run({"diagnose", golden("logs/megatron_lm.log")});
  BOOST_TEST(tests::contains(text.out,
                             "memory   45.9 GiB at most, on rank 1 (read after step 10); 43.9 GiB "
                             "at least, on rank 4 (read after step 10)\n"),
             text.out);
  // Nothing is guessed of a wall that nobody has recorded.
  BOOST_TEST(run["wall"]["label"] == "unknown");
  BOOST_TEST(run["remedies"].empty());
}

// A configuration that lies beside the log says the sizes as one that the log echoes.
BOOST_FIXTURE_TEST_CASE(a_command_says_the_sizes_of_the_model, Diagnose) {
  const std::string command = folder.file("train.sh");
  tests::write_text(command,
                    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 4 --hidden-size 2048 "
                    "--num-attention-heads 16 --seq-length 4096 --micro-batch-size 1\n");
  const json run = document({golden("logs/oom.log"), "--run", command})["run"];
  BOOST_TEST(run["model"] == "4 layers, hidden size 2048, 16 heads");
  BOOST_TEST(run["model_sizes"]["num_hidden_layers"] == 4);
  const json nothing = document({golden("logs/oom.log")})["run"];
  BOOST_TEST(nothing["model"].is_null());
  BOOST_TEST(nothing["model_sizes"].is_null());
}

BOOST_FIXTURE_TEST_CASE(a_page_says_the_same, Diagnose) {
  const std::string log = golden("logs/oom.log");
  const std::string page = folder.file("run.html");
  const Answer text = run({"diagnose", log});
  const Answer answer = run({"diagnose", log, "--report", page});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  BOOST_TEST(answer.out == text.out);
  BOOST_TEST(answer.err.find("run.html (") != std::string::npos, answer.err);
  const std::string html = tests::read_text(page);
  for (const char* part : {"Diagnosis of oom.log", "What would free memory",
                           "data-copy=\"copy-remedy-1\"", "<dt>status</dt><dd>oom"}) {
    BOOST_TEST(html.find(part) != std::string::npos, part);
  }
  // Neither a file of the run nor any other that is no page is written over.
  for (const std::string& target : {log, std::string(MOETUNE_SOURCE_DIR) + "/README.md"}) {
    BOOST_TEST(run({"diagnose", log, "--report", target}).code == 2, target);
  }
}

BOOST_FIXTURE_TEST_CASE(a_run_without_memory_is_told_what_frees_some, Diagnose) {
  const json run = document({golden("logs/oom.log")});
  BOOST_TEST(run["run"]["status"] == "oom");
  BOOST_TEST(run["wall"]["label"] == "memory");
  BOOST_TEST(run["wall"]["sub_cause"] == "oom");
  BOOST_TEST(!run["remedies"].empty());
  for (const json& remedy : run["remedies"]) {
    BOOST_TEST(remedy["ceiling_ratio"].is_null());
    BOOST_TEST(remedy["for"] == "failure");
  }
  const Answer text = this->run({"diagnose", golden("logs/oom.log")});
  BOOST_TEST(text.out.find("what would free memory") != std::string::npos, text.out);
  // The allocator held 5 GiB, twice what was asked for; 1 GiB would not have been enough.
  BOOST_TEST(run["remedies"][0]["rule"] == "less_fragmentation");
  std::string log = tests::read_text(golden("logs/oom.log"));
  const std::string held = "5.00 GiB is reserved";
  BOOST_TEST_REQUIRE(log.find(held) != std::string::npos);
  log.replace(log.find(held), held.size(), "1.00 GiB is reserved");
  tests::write_text(folder.file("full.log"), log);
  const json full = document({folder.file("full.log")});
  BOOST_TEST_REQUIRE(!full["remedies"].empty());
  BOOST_TEST(full["remedies"][0]["rule"] != "less_fragmentation");
}

BOOST_FIXTURE_TEST_CASE(a_broken_rule_that_names_its_setting_is_told_as_a_flag, Diagnose) {
  const std::string log = folder.file("rule.log");
  tests::write_text(log,
                    "[rank0]: Traceback (most recent call last):\n"
                    "[rank0]:   File \"/opt/megatron/training/arguments.py\", line 4, in check\n"
                    "[rank0]: AssertionError: sequence parallelism is required when using expert "
                    "parallelism with tensor parallelism\n");
  const json run = document({log});
  BOOST_TEST(run["run"]["status"] == "failed");
  BOOST_TEST(run["wall"]["label"] == "unknown");
  BOOST_TEST_REQUIRE(run["remedies"].size() == 1U);
  BOOST_TEST(run["remedies"][0]["flags"] == json::array({"--sequence-parallel"}));
  BOOST_TEST(run["remedies"][0]["ceiling_ratio"].is_null());
  const Answer text = this->run({"diagnose", log});
  BOOST_TEST(text.out.find("what the rule asks for:\n  --sequence-parallel\n") != std::string::npos,
             text.out);
}

BOOST_FIXTURE_TEST_CASE(a_host_without_memory_is_not_a_device_without, Diagnose) {
  const json run = document({golden("logs/slurm_oom_kill.log")});
  BOOST_TEST(run["wall"]["sub_cause"] == "host memory");
  for (const json& remedy : run["remedies"]) {
    BOOST_TEST((remedy["rule"] == "fewer_loader_workers" || remedy["rule"] == "no_offload"));
  }
}

// A kill is most often the kernel's, though the log cannot tell.
BOOST_FIXTURE_TEST_CASE(a_killed_process_is_told_what_frees_memory_of_the_host, Diagnose) {
  const json run = document({golden("logs/sigkill.log")});
  BOOST_TEST(run["run"]["status"] == "crashed");
  BOOST_TEST(run["wall"]["label"] == "unknown");
  BOOST_TEST_REQUIRE(!run["remedies"].empty());
  for (const json& remedy : run["remedies"]) {
    BOOST_TEST((remedy["rule"] == "fewer_loader_workers" || remedy["rule"] == "no_offload"));
    BOOST_TEST(remedy["ceiling_ratio"].is_null());
  }
  const Answer text = this->run({"diagnose", golden("logs/sigkill.log")});
  BOOST_TEST(text.out.find("what would free memory of the host:\n") != std::string::npos, text.out);
}

// Otherwise remedies of other causes would look like the answer.
BOOST_FIXTURE_TEST_CASE(a_wall_without_a_remedy_is_told, Diagnose) {
  const std::string command =
      "torchrun pretrain_gpt.py --bf16 --num-layers 4 --hidden-size 64 --num-attention-heads 4 "
      "--seq-length 128 --micro-batch-size 1 --global-batch-size 256 --num-workers ";
  const std::string note =
      "against the wall itself, memory (host memory): none that moetune knows in Megatron-LM's "
      "words, beside what is in effect already";
  const auto says = [&](const char* workers) {
    const json run = document({golden("logs/slurm_oom_kill.log"), "--run", command + workers});
    const std::vector<std::string> notes = run["notes"];
    BOOST_TEST(run["remedies"].empty() == (std::string(workers) == "1"), run["remedies"].dump());
    return std::ranges::find(notes, note) != notes.end();
  };
  BOOST_TEST(says("1"));
  BOOST_TEST(!says("4"));
}

/// 60 us of work and 39 of communication in groups of four ranks, by turns.
std::string work_by_turns(const std::string& kernel, const std::string& collective,
                          const std::string& purpose) {
  tests::EventText events;
  for (int i = 0; i < 50; ++i) {
    events.call(i, 1, 2 * i + 1).kernel(10'000 + 100 * i, 60, 2 * i + 1);
    events.call(i + 0.5, 0.2, 2 * i + 2)
        .kernel(10'060 + 100 * i, 39, 2 * i + 2, kernel, 7,
                R"(, "Collective name": ")" + collective +
                    R"(", "In msg nelems": 100, "Out msg nelems": 100, "dtype": "Float",
                    "Process Group Name": "5", "Group size": 4,
                    "Process Group Description": ")" +
                    purpose + "\"");
  }
  return events.json(R"(, "distributedInfo": {"rank": 0, "world_size": 4})");
}

std::string notes_of(const json& run) { return run["notes"].dump(); }

// The groups in the traces tell how many stages there are.
BOOST_FIXTURE_TEST_CASE(a_pipeline_without_a_command_has_remedies, Diagnose) {
  const std::string trace = folder.file("trace.json");
  tests::write_text(trace, work_by_turns("ncclDevKernel_SendRecv(x)", "coalesced",
                                         "PIPELINE_MODEL_PARALLEL_GROUP"));
  const json run = document({trace});
  BOOST_TEST(run["wall"]["label"] == "pipeline", run["wall"].dump());
  bool has_fewer = false;
  for (const json& remedy : run["remedies"]) {
    has_fewer |= remedy["rule"] == "fewer_stages" &&
                 remedy["flags"] == json::array({"--pipeline-model-parallel-size 2"});
  }
  BOOST_TEST(has_fewer, run["remedies"].dump());
  BOOST_TEST(run["run"]["parallel"]["pp"] == 4);
  BOOST_TEST(run["run"]["parallel"]["tp"].is_null());
  BOOST_TEST(run["run"]["parallel_by_traces"] == json::array({"pp"}));
  BOOST_TEST(notes_of(run).find("the groups in the traces (pp 4)") != std::string::npos,
             notes_of(run));
  // A configuration of one stage is hardly that of the run; but what to change is told from it.
  const json other = document({trace, "--run",
                               "torchrun --nproc_per_node=4 pretrain_gpt.py --bf16 --num-layers 4 "
                               "--hidden-size 64 --num-attention-heads 4 --seq-length 128 "
                               "--micro-batch-size 1 --global-batch-size 4"});
  BOOST_TEST(other["run"]["parallel"]["pp"] == 4);
  BOOST_TEST(other["run"]["parallel_by_traces"] == json::array({"pp"}));
  BOOST_TEST(notes_of(other).find("the configuration says pp 1, the traces have such groups of 4 "
                                  "ranks") != std::string::npos,
             notes_of(other));
  BOOST_TEST(notes_of(other).find("pipeline: none that moetune knows") != std::string::npos,
             notes_of(other));
}

// Gradients are not what these ranks wait for.
BOOST_FIXTURE_TEST_CASE(communication_has_remedies_of_the_group_that_communicates, Diagnose) {
  const std::string trace = folder.file("trace.json");
  tests::write_text(trace, work_by_turns("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "allreduce",
                                         "TENSOR_MODEL_PARALLEL_GROUP"));
  const json run = document({trace, "--run",
                             "torchrun --nnodes=2 --nproc_per_node=4 pretrain_gpt.py --bf16 "
                             "--num-layers 4 --hidden-size 64 --num-attention-heads 4 "
                             "--seq-length 128 --micro-batch-size 1 --global-batch-size 4 "
                             "--sequence-parallel "
                             "--tensor-model-parallel-size 2"});
  BOOST_TEST(run["wall"]["label"] == "communication", run["wall"].dump());
  BOOST_TEST_REQUIRE(!run["remedies"].empty());
  for (const json& remedy : run["remedies"]) {
    BOOST_TEST(remedy["rule"] != "overlap_of_gradients");
  }
  BOOST_TEST(notes_of(run).find("the command is of a run of 8 ranks") != std::string::npos,
             notes_of(run));
  BOOST_TEST(notes_of(run).find("the configuration says tp 2, the traces have such groups of 4") !=
                 std::string::npos,
             notes_of(run));
}

// Nobody says whose run it is, but these are names of PyTorch's device meshes.
BOOST_FIXTURE_TEST_CASE(groups_of_meshes_have_remedies_in_torchtitans_words, Diagnose) {
  const std::string trace = folder.file("trace.json");
  tests::write_text(
      trace, work_by_turns("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "allreduce", "mesh_tp"));
  const json run = document({trace});
  BOOST_TEST(notes_of(run).find("torchtitan's defaults and the groups in the traces (tp 4)") !=
                 std::string::npos,
             notes_of(run));
  bool has_words = false;
  for (const json& remedy : run["remedies"]) {
    for (const std::string flag : remedy["flags"]) {
      has_words |= flag.starts_with("parallelism.");
      BOOST_TEST(flag.find("--") == std::string::npos, flag);
    }
  }
  BOOST_TEST(has_words, run["remedies"].dump());
}

/// Without pauses 40 us of a product and 50 of a kernel by element, by turns: 4,549 us in all.
std::string products_and_activations() {
  tests::EventText events;
  for (int i = 0; i < 50; ++i) {
    events.call(i, 0.4, 2 * i + 1).kernel(10'000 + 91 * i, 40, 2 * i + 1);
    events.call(i + 0.5, 0.2, 2 * i + 2)
        .kernel(10'040 + 91 * i, 50, 2 * i + 2,
                "void at::native::vectorized_elementwise_kernel<4>(x)");
  }
  return events.json();
}

const std::string kCommandWithExperts =
    "torchrun --nproc_per_node=4 pretrain_gpt.py --bf16 --num-layers 4 --hidden-size 64 "
    "--num-attention-heads 4 --seq-length 128 --micro-batch-size 1 --global-batch-size 4 "
    "--num-experts 8 --moe-router-topk 2";

// Of one label, and still each has its own: what it changes takes so long.
BOOST_FIXTURE_TEST_CASE(remedies_of_one_wall_have_ceilings_of_their_own, Diagnose) {
  const std::string trace = folder.file("trace.json");
  tests::write_text(trace, products_and_activations());
  const json run = document({trace, "--run", kCommandWithExperts});
  BOOST_TEST(run["wall"]["label"] == "compute", run["wall"].dump());
  const auto ceiling_of = [&](const char* rule) {
    for (const json& remedy : run["remedies"]) {
      if (remedy["rule"] == rule) return remedy["ceiling_ratio"].get<double>();
    }
    return 0.0;
  };
  // Products take 2,000 us, of which 8 bits save half. Kernels by element take 2,500.
  BOOST_TEST(ceiling_of("products_in_fp8") == 0.220, boost::test_tools::tolerance(0.02));
  BOOST_TEST(ceiling_of("fused_rows") == 0.550, boost::test_tools::tolerance(0.02));
  double last = 1;
  for (const json& remedy : run["remedies"]) {
    BOOST_TEST(remedy["for"] == "wall");
    if (!remedy["refused"].is_null()) break;
    BOOST_TEST(remedy["ceiling_ratio"].get<double>() <= last);
    last = remedy["ceiling_ratio"];
  }
}

// A flag that lets it start and one that makes it faster answer different questions.
BOOST_FIXTURE_TEST_CASE(remedies_of_a_failure_stand_beside_those_of_the_wall, Diagnose) {
  const std::string log = folder.file("rule.log");
  const std::string trace = folder.file("trace.json");
  const std::string page = folder.file("run.html");
  tests::write_text(log,
                    "[rank0]: Traceback (most recent call last):\n"
                    "[rank0]:   File \"/opt/megatron/training/arguments.py\", line 4, in check\n"
                    "[rank0]: AssertionError: sequence parallelism is required when using expert "
                    "parallelism with tensor parallelism\n");
  tests::write_text(trace, products_and_activations());
  const json run = document({log, trace, "--run", kCommandWithExperts});
  BOOST_TEST_REQUIRE(run["remedies"].size() >= 2U);
  BOOST_TEST(run["remedies"][0]["for"] == "failure");
  for (size_t i = 1; i < run["remedies"].size(); ++i) {
    BOOST_TEST(run["remedies"][i]["for"] == "wall");
    BOOST_TEST(run["remedies"][i]["ceiling_ratio"].is_number());
  }
  const Answer text =
      this->run({"diagnose", log, trace, "--run", kCommandWithExperts, "--report", page});
  BOOST_TEST_REQUIRE(text.code == 0, text.err);
  const size_t asked =
      text.out.find("to make it run, what the rule asks for:\n  --sequence-parallel\n");
  const size_t faster = text.out.find("to make it faster; ");
  BOOST_TEST(asked != std::string::npos, text.out);
  BOOST_TEST(faster != std::string::npos, text.out);
  BOOST_TEST(asked < faster);
  BOOST_TEST(text.out.find("products_in_fp8", faster) != std::string::npos, text.out);
  const std::string html = tests::read_text(page);
  const size_t failure = html.find("<section id=\"failure\"");
  const size_t remedies = html.find("<section id=\"remedies\"");
  BOOST_TEST(failure < remedies);
  BOOST_TEST(remedies != std::string::npos);
  BOOST_TEST(html.find("What the rule asks for") != std::string::npos);
}

/// A trace of one kernel; `collective`: what the file says of it, empty: nothing.
profiler::ImportedTrace trace_of(const std::string& kernel, const std::string& collective) {
  profiler::ImportedTrace trace;
  profiler::ImportedOp op;
  op.end_ns = 1000;
  op.name = trace.names.intern(kernel);
  if (!collective.empty()) {
    profiler::CommCall comm;
    comm.collective = trace.names.intern(collective);
    op.comm = 0;
    trace.comms.push_back(comm);
  }
  trace.ops.add(op);
  trace.finish();
  return trace;
}

BOOST_AUTO_TEST_CASE(exchanges_of_rows_are_seen_in_traces) {
  const std::string send = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";
  const std::string reduce =
      "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
  const auto may = [](const std::string& kernel, const std::string& collective = "") {
    return may_exchange_rows(trace_of(kernel, collective));
  };
  BOOST_TEST(may(send, "all_to_allv"));
  BOOST_TEST(may("void deep_ep::intranode::dispatch<8, 768>(int4*)"));
  BOOST_TEST(may("void hybrid_ep::combine_kernel<1>(int)"));
  BOOST_TEST(may("void mori::moe::EpDispatchIntraNodeKernel<float>(x)"));
  BOOST_TEST(!may("void userbuffers_fp16_sum_inplace_gpu_mc_ag<4>(int)"));
  BOOST_TEST(may("mcclKernel_Generic", "all_to_all"));
  BOOST_TEST(!may(send, "send"));
  BOOST_TEST(!may(reduce, "allreduce"));
  BOOST_TEST(!may(reduce));
  BOOST_TEST(!may("gemm"));
  // What the file does not tell apart may be one.
  BOOST_TEST(may(send));
  BOOST_TEST(may("(unnamed kernel)"));
  // A message alone speaks for no experts.
  const auto is_sure = [](const std::string& kernel, const std::string& collective = "") {
    return exchanges_rows(trace_of(kernel, collective));
  };
  BOOST_TEST(is_sure(send, "all_to_allv"));
  BOOST_TEST(is_sure("void deep_ep::intranode::dispatch<8, 768>(int4*)"));
  BOOST_TEST(!is_sure(send));
  BOOST_TEST(!is_sure(send, "coalesced"));
}

/// Fifty kernels of 100 us, each of a product that an H100 does in about 52.
std::string small_products() {
  std::string events;
  const auto add = [&](const char* before, int time_us, const std::string& behind) {
    events += (events.empty() ? "" : ",") + std::string(before) + std::to_string(time_us) + behind;
  };
  for (int i = 0; i < 50; ++i) {
    const std::string id = std::to_string(i + 1);
    add(R"({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": )", 20 * i,
        R"(, "dur": 10, "args": {"External id": )" + id +
            R"(, "Input Dims": [[4096, 4096], [4096, 1024]], "Input type": ["c10::BFloat16",
            "c10::BFloat16"]}})");
    add(R"({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
        "ts": )",
        20 * i + 2,
        R"(, "dur": 5, "args": {"External id": )" + id + R"(, "correlation": )" + id + "}}");
    add(R"({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": )",
        20'000 + 101 * i,
        R"(, "dur": 100, "args": {"External id": )" + id + R"(, "correlation": )" + id +
            R"(, "stream": 7, "device": 0}})");
  }
  return R"({"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": [)" +
         events + "]}";
}

// The log tells that 61.5 of 79.1 GiB are in use: work is small because memory holds it down.
BOOST_FIXTURE_TEST_CASE(a_micro_batch_that_memory_caps_is_memorys_doing, Diagnose) {
  tests::write_text(folder.file("trace.json"), small_products());
  const json alone = document({folder.file("trace.json")});
  BOOST_TEST(alone["wall"]["label"] == "compute");
  BOOST_TEST(alone["wall"]["sub_cause"] == "occupancy", alone["wall"].dump());
  const json run = document({folder.file("trace.json"), golden("logs/torchtitan.log")});
  BOOST_TEST(run["wall"]["label"] == "memory");
  BOOST_TEST(run["wall"]["sub_cause"] == "capped micro-batch", run["wall"].dump());
  BOOST_TEST(run["wall"]["share_ratio"].get<double>() > 0.4);
  BOOST_TEST_REQUIRE(!run["remedies"].empty());
  BOOST_TEST(run["remedies"][0]["rule"].get<std::string>().starts_with("room_by_"),
             run["remedies"].dump());
  // By itself the larger micro-batch would not fit.
  for (const json& remedy : run["remedies"]) BOOST_TEST(remedy["rule"] != "larger_products");
  const std::string says = run["wall"]["summary"];
  BOOST_TEST(says.find("61.5 GiB of 79.1 GiB") != std::string::npos, says);
  // With memory to spare it is the choice of who started it.
  std::string log = tests::read_text(golden("logs/torchtitan.log"));
  const std::string capacity = "79.10GiB memory";
  log.replace(log.find(capacity), capacity.size(), "179.10GiB memory");
  tests::write_text(folder.file("roomy.log"), log);
  const json roomy = document({folder.file("trace.json"), folder.file("roomy.log")});
  BOOST_TEST(roomy["wall"]["label"] == "compute");
}

/// Fifty times 30 us of forward within backward, and 69 of backward.
std::string recomputing(const std::string& checkpoint) {
  tests::EventText events;
  const auto add_gradient = [&](double start, double duration, const std::string& function) {
    events.add(R"({"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1, "name": )"
               R"("autograd::engine::evaluate_function: )" +
               function + R"(", "ts": )" + std::to_string(start) + R"(, "dur": )" +
               std::to_string(duration) + "}");
  };
  for (int i = 0; i < 50; ++i) {
    add_gradient(20 * i, 19, checkpoint);
    events.call(20 * i + 1, 1, 2 * i + 1).kernel(10'000 + 100 * i, 30, 2 * i + 1, "forward");
    add_gradient(20 * i + 5, 10, "MmBackward0");
    events.call(20 * i + 6, 1, 2 * i + 2).kernel(10'030 + 100 * i, 69, 2 * i + 2, "backward");
  }
  return events.json();
}

// The log tells that 61.5 of 79.1 GiB are in use; without it, nobody says that memory is short.
BOOST_FIXTURE_TEST_CASE(recomputation_is_told_by_traces_and_memory_by_a_log, Diagnose) {
  const std::string trace = folder.file("trace.json");
  tests::write_text(trace, recomputing("CheckpointFunctionBackward"));
  const auto has_remedy = [](const json& run, const char* rule) {
    return std::ranges::any_of(run["remedies"],
                               [&](const json& remedy) { return remedy["rule"] == rule; });
  };
  const std::string command =
      "torchrun pretrain_gpt.py --bf16 --num-layers 4 --hidden-size 64 --num-attention-heads 4 "
      "--seq-length 128 --micro-batch-size 1 --global-batch-size 16 --recompute-granularity full "
      "--recompute-method uniform --recompute-num-layers 1";
  const json run = document({trace, golden("logs/torchtitan.log")});
  BOOST_TEST(run["wall"]["label"] == "memory", run["wall"].dump());
  BOOST_TEST(run["wall"]["sub_cause"] == "recompute", run["wall"].dump());
  BOOST_TEST(std::abs(run["wall"]["share_ratio"].get<double>() - 0.3) < 0.01);
  BOOST_TEST(has_remedy(run, "no_recomputation"), run["remedies"].dump());
  const json alone = document({trace});
  BOOST_TEST(alone["wall"]["label"] == "compute", alone["wall"].dump());
  BOOST_TEST(has_remedy(alone, "no_recomputation"), alone["remedies"].dump());
  BOOST_TEST(!has_remedy(alone, "narrow_moments"), alone["remedies"].dump());
  // What a configuration says the traces may not show.
  const std::string note = "computed a second time, which the traces do not show";
  BOOST_TEST(notes_of(run).find(note) == std::string::npos, notes_of(run));
  tests::write_text(trace, recomputing("CompiledFunctionBackward"));
  const json compiled = document({trace, "--run", command});
  BOOST_TEST(compiled["wall"]["label"] == "compute", compiled["wall"].dump());
  BOOST_TEST(!has_remedy(compiled, "no_recomputation"), compiled["remedies"].dump());
  BOOST_TEST(notes_of(compiled).find(note) != std::string::npos, notes_of(compiled));
}

// The host marks a step each `host_us` and launches 1,000 us of work in it.
BOOST_FIXTURE_TEST_CASE(a_step_takes_as_long_as_the_device_needs_for_it, Diagnose) {
  const auto step_time_us = [&](double host_us) {
    tests::EventText events;
    for (int i = 0; i < 4; ++i) {
      const double start = host_us * i;
      events.range(start, host_us - 1, "ProfilerStep#" + std::to_string(i + 5));
      for (int half = 0; half < 2; ++half) {
        const int id = 2 * i + half + 1;
        events.call(start + 10 * half, 5, id).kernel(100 + 1000 * i + 500 * half, 500, id);
      }
    }
    tests::write_text(folder.file("steps.json"), events.json());
    return 1e6 * document({folder.file("steps.json")})["run"]["step_time_s"].get<double>();
  };
  BOOST_CHECK_CLOSE(step_time_us(50), 1000.0, 1e-6);    // it never waits
  BOOST_CHECK_CLOSE(step_time_us(1000), 1000.0, 1e-6);  // it keeps pace
  BOOST_CHECK_CLOSE(step_time_us(950), 950.0, 1e-6);    // it is ahead by some work in a queue
}

BOOST_FIXTURE_TEST_CASE(a_folder_is_sorted_by_content, Diagnose) {
  const std::string run_folder = folder.file("run");
  fs::create_directories(run_folder + "/deep");
  fs::copy_file(golden("logs/torchtitan.log"), run_folder + "/anything");
  fs::copy_file(golden("traces/cuda_event_sync.json.gz"), run_folder + "/deep/trace");
  tests::write_text(run_folder + "/notes.md", "# nothing of a run\n");
  const json run = document({run_folder});
  BOOST_TEST(run["run"]["framework"] == "torchtitan");
  BOOST_TEST_REQUIRE(run["ranks"].size() == 1U);
  BOOST_TEST(run["ranks"][0]["file"].get<std::string>().ends_with("deep/trace"));
  BOOST_TEST(!run["ranks"][0]["windows"].empty());
  BOOST_TEST(run["wall"]["label"] == "unknown");
}

// What lies in a folder and cannot be used is told; the rest is read.
BOOST_FIXTURE_TEST_CASE(a_bad_file_in_a_folder_is_left_out, Diagnose) {
  const std::string run_folder = folder.file("run");
  fs::create_directories(run_folder);
  fs::copy_file(golden("logs/torchtitan.log"), run_folder + "/log");
  const std::string trace = tests::read_text(golden("traces/cuda_event_sync.json.gz"));
  tests::write_text(run_folder + "/cut.json.gz", trace.substr(0, trace.size() / 2));
  const json run = document({run_folder});
  BOOST_TEST(run["run"]["status"] == "ok");
  BOOST_TEST(run["ranks"].empty());
  BOOST_TEST(run["notes"].dump().find("cut.json.gz") != std::string::npos, run["notes"].dump());
  // Named by itself it is a mistake.
  check_refused({"diagnose", run_folder + "/cut.json.gz"}, 2, {"cut.json.gz"});
}

// Every key of the contract is there, whatever the run has left.
const std::vector<std::vector<std::string>> kMixtures = {
    {golden("logs/oom.log")},
    {golden("traces/cuda_event_sync.json.gz")},
    {"run.sh"},
    {golden("logs/oom.log"), golden("traces/cuda_event_sync.json.gz")},
    {golden("logs/nemo.log"), "run.sh"}};

BOOST_DATA_TEST_CASE_F(Diagnose, every_key_is_there, data::xrange(kMixtures.size()), index) {
  tests::write_text(folder.file("run.sh"),
                    "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 4 "
                    "--hidden-size 64 --num-attention-heads 4 --seq-length 128 "
                    "--micro-batch-size 1 --global-batch-size 256\n");
  std::vector<std::string> words = kMixtures[index];
  for (std::string& word : words) {
    if (word == "run.sh") word = folder.file(word);
  }
  const json run = document(words);
  for (const char* key :
       {"framework", "status", "reason", "num_steps", "world_size", "parallel", "step_time_s",
        "tokens_per_s_per_gpu", "tflops_per_gpu", "peak_memory_bytes", "loss"}) {
    BOOST_TEST(run["run"].contains(key), key);
  }
  for (const char* size : {"tp", "pp", "cp", "ep", "etp", "vpp", "dp"}) {
    BOOST_TEST(run["run"]["parallel"].contains(size), size);
  }
  for (const char* key :
       {"label", "sub_cause", "rank", "share_ratio", "unknown_ratio", "evidence"}) {
    BOOST_TEST(run["wall"].contains(key), key);
  }
  const bool has_oom = words.front() == golden("logs/oom.log");
  BOOST_TEST((run["wall"]["label"] == "memory") == has_oom);
}

BOOST_AUTO_TEST_CASE(every_key_is_still_printed) {
  std::vector<json> documents;
  for (const char* name :
       {"logs/megatron_lm.log", "logs/primus.log", "logs/oom.log", "logs/nccl_timeout.log",
        "traces/cuda_event_sync.json.gz", "traces/cuda_event_sync_multi_stream.json.gz"}) {
    documents.push_back(to_json(diagnose_run({golden(name)}, {})));
    tests::check_documented("diagnose", documents.back().dump());
  }
  tests::check_printed("diagnose", documents);
}

BOOST_FIXTURE_TEST_CASE(two_runs_are_set_side_by_side, Diagnose) {
  // The same run, with every step a tenth slower.
  const std::string log = tests::read_text(golden("logs/megatron_lm.log"));
  std::string slower = log;
  const std::string key = "elapsed time per iteration (ms): ";
  for (size_t at = slower.find(key); at != std::string::npos; at = slower.find(key, at + 1)) {
    const size_t from = at + key.size();
    const size_t end = slower.find_first_not_of("0123456789.", from);
    const double ms = std::stod(slower.substr(from, end - from));
    slower.replace(from, end - from, std::to_string(1.1 * ms));
  }
  tests::write_text(folder.file("slower.log"), slower);
  const Answer answer = run(
      {"compare", golden("logs/megatron_lm.log"), folder.file("slower.log"), "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json figures = json::parse(answer.out)["figures"];
  const json& figure = figures[0];
  BOOST_TEST(figure["name"] == "step_time_s");
  BOOST_TEST(figure["change_ratio"].get<double>() == 0.1, boost::test_tools::tolerance(0.01));
  BOOST_TEST(figure["is_beyond_noise"] == true);
  // A rate has the interval of the time that it comes from: steps took from 810 to 815 ms.
  const json& rate = figures[1];
  BOOST_TEST(rate["name"] == "tokens_per_s_per_gpu");
  BOOST_TEST(rate["change_ratio"].get<double>() == -1 / 11.0, boost::test_tools::tolerance(0.01));
  BOOST_TEST(rate["is_beyond_noise"] == true);
  BOOST_TEST(rate["before"]["num_values"] == 4);
  BOOST_TEST(
      rate["before"]["high"].get<double>() / rate["before"]["low"].get<double>() == 815.0 / 810.0,
      boost::test_tools::tolerance(1e-9));
  // This one the log says itself, unchanged.
  BOOST_TEST(figures[2]["name"] == "tflops_per_gpu");
  BOOST_TEST(figures[2]["is_beyond_noise"] == false);
  const Answer same = run({"compare", golden("logs/megatron_lm.log"),
                           golden("logs/megatron_lm.log"), "--format", "json"});
  const json compared = json::parse(same.out);
  for (const json& one : compared["figures"]) {
    BOOST_TEST(one["is_beyond_noise"] != true);
  }
}

/// A command of Megatron-LM with some flags more.
std::string command_with(const std::string& flags) {
  return "torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 "
         "--seq-length 128 --global-batch-size 256 " +
         flags + "\n";
}

BOOST_FIXTURE_TEST_CASE(a_page_of_two_runs_has_a_diff_of_flags, Diagnose) {
  const auto run_folder = [&](const char* name, const std::string& flags) {
    std::string path = folder.file(name);
    fs::create_directories(path);
    fs::copy_file(golden("logs/nemo.log"), path + "/log");
    tests::write_text(path + "/run.sh", command_with(flags));
    return path;
  };
  const std::string before =
      run_folder("before",
                 "--micro-batch-size 1 --lr 1e-4 --recompute-granularity full "
                 "--recompute-method uniform --recompute-num-layers 1");
  const std::string after =
      run_folder("after", "--micro-batch-size 2 --lr 2e-4 --overlap-grad-reduce");
  const std::string page = folder.file("two.html");
  const Answer text = run({"compare", before, after});
  BOOST_TEST_REQUIRE(text.code == 0, text.err);
  const std::vector<std::string> lines = {"- --micro-batch-size 1\n",
                                          "+ --micro-batch-size 2\n",
                                          "+ --overlap-grad-reduce\n",
                                          "- --recompute-granularity full\n",
                                          "- --lr 1e-4\n",
                                          "+ --lr 2e-4\n"};
  for (const std::string& line : lines) {
    BOOST_TEST(text.out.find(line) != std::string::npos, line << " in " << text.out);
  }
  BOOST_TEST(text.out.find("--hidden-size") == std::string::npos, text.out);
  const Answer answer = run({"compare", before, after, "--report", page});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  BOOST_TEST(answer.out == text.out);
  BOOST_TEST(answer.err.find("two.html (") != std::string::npos, answer.err);
  const std::string html = tests::read_text(page);
  for (const std::string& line : lines) BOOST_TEST(html.find(line) != std::string::npos, line);
  for (const char* part : {"before and after", "A step takes as long as before",
                           "data-copy=\"copy-diff\"", "<section id=\"figures\""}) {
    BOOST_TEST(html.find(part) != std::string::npos, part);
  }
  // Written once more in its place; no file of a run, and no other that is no page, is.
  BOOST_TEST(run({"compare", before, after, "--report", page}).code == 0);
  const std::string log = before + "/log";
  const std::string was = tests::read_text(log);
  for (const std::string& target : {log, before, folder.file("none/two.html")}) {
    check_refused({"compare", log, after + "/log", "--report", target}, 2, {target});
  }
  check_refused({"compare", log, after + "/log", "--report", after + "/log"}, 2,
                {"is what this command reads"});
  BOOST_TEST((tests::read_text(log) == was));
}

// What a run without memory says beside one that fits is its settings.
BOOST_FIXTURE_TEST_CASE(a_run_that_failed_is_compared_by_its_settings, Diagnose) {
  const auto command = [&](const char* name, const std::string& flags) {
    std::string path = folder.file(name);
    tests::write_text(path, command_with(flags));
    return path;
  };
  const std::string fails = command("fails.sh", "--micro-batch-size 4");
  const std::string fits = command("fits.sh", "--micro-batch-size 1");
  const Answer answer = run({"compare", fails, fits});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  BOOST_TEST(answer.out.starts_with("settings that differ, from the first to the second:\n"
                                    "- --micro-batch-size 4\n+ --micro-batch-size 1\n"),
             answer.out);
  check_refused({"compare", fits, fits}, 2, {"share no figure"});
}

struct Wrong {
  std::vector<std::string> words;
  const char* helps;
};
std::ostream& operator<<(std::ostream& out, const Wrong& row) { return out << row.helps; }

const Wrong kWrong[] = {{{"diagnose"}, "a folder or file"},
                        {{"diagnose", "nowhere"}, "nowhere"},
                        {{"compare", "nowhere"}, "the second run"},
                        {{"compare", "nowhere", "nowhere"}, "nowhere"},
                        {{"diagnose", "trial.json", "--gpus", "0"}, "--gpus"},
                        {{"diagnose", "corpus"}, "no log, trace or configuration"},
                        {{"diagnose", "corpus", "--model", "qwen3-30b-a3c"}, "qwen3-30b-a3b"},
                        {{"diagnose", "corpus", "--run", "ls -l"}, "Megatron-LM"}};

BOOST_DATA_TEST_CASE_F(Diagnose, a_mistake_is_one_message, data::make(kWrong), row) {
  const fs::path before = fs::current_path();
  fs::current_path(folder.file("."));
  const Answer answer = run(row.words);
  fs::current_path(before);
  BOOST_TEST(answer.code == 2, answer.err);
  BOOST_TEST(answer.err.find(row.helps) != std::string::npos, answer.err);
  BOOST_TEST(answer.out.empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
