// What plan --against and --export pass on of a run of today, and what they may not.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

using nlohmann::json;
using tests::Answer;
using tests::Cli;

namespace {

bool says(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Of 16 devices, four of which hold a slice.
constexpr const char* kRunOfToday =
    "torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --expert-model-parallel-size 8 "
    "--expert-tensor-parallel-size 1 --sequence-parallel --micro-batch-size 1 "
    "--global-batch-size 256 --seq-length 4096 --bf16 --use-distributed-optimizer "
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "
    "--moe-token-dispatcher-type alltoall --lr 3e-4";

/// A plan without tensor parallelism and stages, which is found at once.
std::vector<std::string> small_plan(const std::string& hardware,
                                    const std::vector<std::string>& more) {
  std::vector<std::string> words = {"plan",   "--model", "qwen3-30b-a3b", "--hardware", hardware,
                                    "--gpus", "16",      "--top",         "1",          "--fix",
                                    "tp=1",   "--fix",   "pp=1",          "--format",   "json"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// A plan whose exported text is read again.
struct Planned {
  const char* model;
  const char* hardware;
  const char* gpus;
  std::vector<std::string> fixed;
};
std::ostream& operator<<(std::ostream& out, const Planned& row) {
  return out << row.model << " on " << row.gpus << " x " << row.hardware;
}

const Planned kPlanned[] = {
    // Stages of one rank each: nothing is shared out.
    {"qwen3-30b-a3b", "h100-80g", "16", {"--fix", "pp=16"}},
    {"llama3-70b",
     "b200",
     "64",
     {"--fix", "pp=16", "--fix", "tp=2", "--fix", "precision=fp8-current-scaling"}},
    {"gpt-oss-120b", "h200", "64", {"--fix", "pp=4", "--fix", "tp=1"}},
    // Multi-token prediction, which torchtitan cannot be asked for.
    {"qwen3.5-35b-a3b", "h100-80g", "32", {"--fix", "pp=4", "--fix", "tp=1"}},
    // Stages that Megatron makes by itself, which need no words.
    {"gpt-175b", "a100-80g", "64", {"--fix", "pp=8", "--fix", "tp=4"}},
};

/// The text that a plan is exported as.
std::string exported_by(Cli& cli, const std::vector<std::string>& words) {
  const Answer answer = cli.run(words);
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  return json::parse(answer.out)["exported"].get<std::string>();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(exported_plans)

// A byte that is not UTF-8 is a mistake of the command, and no broken JSON.
BOOST_FIXTURE_TEST_CASE(a_text_that_is_not_utf8_is_refused, Cli) {
  const std::string command = std::string(kRunOfToday) + " --name \xFF";
  check_refused({"import", command}, 2, {"byte 0xFF is not UTF-8"});
  check_refused({"export", command, "--format", "primus"}, 2, {"byte 0xFF is not UTF-8"});
  check_refused({"estimate", "--run", command, "--model", "qwen3-30b-a3b", "--hardware", "h100-80g",
                 "--gpus", "16", "--format", "json"},
                2, {"byte 0xFF is not UTF-8"});
  check_refused(small_plan("h100-80g", {"--against", command}), 2, {"byte 0xFF is not UTF-8"});
}

BOOST_FIXTURE_TEST_CASE(names_of_settings_do_not_reach_the_terminal_raw, Cli) {
  const Answer answer = run({"estimate", "--run", std::string(kRunOfToday) + " --foo\x1B[31mred 1",
                             "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "16"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  BOOST_TEST(says(answer.out, "--foo?[31mred"), answer.out);
  BOOST_TEST(!says(answer.out, "\x1B"), answer.out);
}

// With the model beside it a written plan is read as what was planned, and as fast.
BOOST_DATA_TEST_CASE_F(Cli, a_written_plan_comes_back, boost::unit_test::data::make(kPlanned),
                       planned) {
  for (const spec::dialects::DialectRow& dialect :
       spec::NameTable<spec::dialects::Dialect>::kRows) {
    std::vector<std::string> machine = {"--model", planned.model, "--hardware", planned.hardware,
                                        "--gpus",  planned.gpus,  "--format",   "json"};
    std::vector<std::string> words = {"plan", "--top", "1", "--export", std::string(dialect.name)};
    words.insert(words.end(), planned.fixed.begin(), planned.fixed.end());
    words.insert(words.end(), machine.begin(), machine.end());
    const Answer answer = run(words);
    BOOST_TEST_REQUIRE(answer.code == 0, dialect.name << ": " << answer.err);
    const json document = json::parse(answer.out);
    const json& plan = document["plans"][0];
    const std::string path = folder.file("plan.txt");
    tests::write_text(path, document["exported"].get<std::string>());
    std::vector<std::string> again = {"estimate", "--run", path};
    again.insert(again.end(), machine.begin(), machine.end());
    const Answer back = run(again);
    BOOST_TEST_REQUIRE(back.code == 0, dialect.name << ": " << back.err);
    const json row = json::parse(back.out)["rows"][0];
    BOOST_TEST_CONTEXT(dialect.name << "\n" << document["exported"].get<std::string>()) {
      for (const auto& [knob, value] : plan["knobs"].items()) {
        // One rank has whole sequences: it is not written.
        if (knob == "sequence_parallel" && plan["knobs"]["tp"] == 1) continue;
        BOOST_TEST(row["knobs"][knob] == value, knob << " is " << row["knobs"][knob]);
      }
      BOOST_TEST(row["peak_allocated_bytes"] == plan["peak_allocated_bytes"]);
      BOOST_TEST(row["tflops_per_gpu"].get<double>() == plan["tflops_per_gpu"].get<double>(),
                 boost::test_tools::tolerance(1e-9));
    }
  }
}

BOOST_FIXTURE_TEST_CASE(a_plan_trains_what_its_framework_can_be_asked_for, Cli) {
  for (const auto& [dialect, is_without] :
       {std::pair{"torchtitan", true}, std::pair{"megatron-lm", false}}) {
    const Answer answer = run({"plan", "--model", "qwen3.5-35b-a3b", "--hardware", "h100-80g",
                               "--gpus", "32", "--top", "1", "--fix", "pp=1", "--fix", "tp=1",
                               "--export", dialect, "--format", "json"});
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    const std::string assumptions = json::parse(answer.out)["assumptions"].dump();
    BOOST_TEST(
        says(assumptions, "without multi-token prediction, which torchtitan cannot be asked") ==
            is_without,
        assumptions);
    BOOST_TEST(says(json::parse(answer.out)["exported"].get<std::string>(), "--mtp-num-layers 1") ==
               !is_without);
  }
}

BOOST_FIXTURE_TEST_CASE(import_and_export_take_the_layers_of_a_model, Cli) {
  const std::string text =
      "NGPU=16 ./run_train.sh --parallelism.pipeline_parallel_degree 16 "
      "--parallelism.data_parallel_shard_degree 1 "
      "--parallelism.pipeline_parallel_schedule Interleaved1F1B "
      "--parallelism.pipeline_parallel_layers_per_stage 1 "
      "--parallelism.pipeline_parallel_first_stage_less_layers 0 "
      "--parallelism.pipeline_parallel_last_stage_less_layers 0";
  const auto vpp_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"import", text, "--gpus", "16"};
    words.insert(words.end(), more.begin(), more.end());
    const Answer answer = run(words);
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out)["knobs"]["vpp"].get<int>();
  };
  BOOST_TEST(vpp_of({}) == 2);
  BOOST_TEST(vpp_of({"--model", "qwen3-30b-a3b"}) == 3);
  const Answer primus =
      run({"export", text, "--gpus", "16", "--model", "qwen3-30b-a3b", "--format", "primus"});
  BOOST_TEST_REQUIRE(primus.code == 0, primus.err);
  BOOST_TEST(says(primus.out, "num_virtual_stages_per_pipeline_rank: 3\n"), primus.out);
  check_refused({"import", text, "--gpus", "16", "--model", "mixtral-8x22b"}, 2,
                {"makes 56 stages of 56 layers, which 'parallelism.pipeline_parallel_degree' 16"});
}

BOOST_FIXTURE_TEST_CASE(what_the_old_layout_alone_bears_is_left_out, Cli) {
  const std::string command = std::string(kRunOfToday) +
                              " --account-for-loss-in-pipeline-split --manual-gc "
                              "--microbatch-group-size-per-virtual-pipeline-stage 4";
  const std::string text = exported_by(
      *this,
      small_plan("h100-80g", {"--fix", "ep=8", "--against", command, "--export", "megatron-lm"}));
  const std::string note =
      "# left out, as they follow the old layout: --account-for-loss-in-pipeline-split, "
      "--microbatch-group-size-per-virtual-pipeline-stage\n";
  BOOST_TEST(text.ends_with(note), text);
  BOOST_TEST(text.find("--account-for-loss") == text.rfind("--account-for-loss"), text);
  BOOST_TEST(says(text, "--manual-gc"), text);
  BOOST_TEST(says(text, "--lr 3e-4"), text);
}

// Domains of the plan and the machine, whatever the run of today was told.
BOOST_FIXTURE_TEST_CASE(hybridep_is_told_the_domain_of_the_plan, Cli) {
  const std::string command =
      std::string("NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=4 NVLINK_DOMAIN_SIZE=4 USE_MNNVL=1 ") +
      kRunOfToday;
  const std::vector<std::string> against = {"--fix", "ep=16", "--against", command};
  const auto words = [&](const char* hardware, const std::vector<std::string>& more) {
    std::vector<std::string> all = against;
    all.insert(all.end(), more.begin(), more.end());
    return small_plan(hardware, all);
  };
  const std::vector<std::string> hybrid = {"--fix", "dispatcher=hybridep", "--export",
                                           "megatron-lm"};
  const std::string node = exported_by(*this, words("h100-80g", hybrid));
  for (const char* word :
       {"NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=8", "NVLINK_DOMAIN_SIZE=8", "USE_MNNVL=0"}) {
    BOOST_TEST(says(node, word), node);
  }
  const std::string rack = exported_by(*this, words("gb200-nvl72", hybrid));
  for (const char* word :
       {"NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=16", "NVLINK_DOMAIN_SIZE=72", "USE_MNNVL=1"}) {
    BOOST_TEST(says(rack, word), rack);
  }
  // 128 of them lie on two domains, with 64 of 72 each.
  std::vector<std::string> two_racks = {"plan", "--model", "qwen3-30b-a3b", "--gpus", "128"};
  two_racks.insert(two_racks.end(), {"--hardware", "gb200-nvl72", "--gbs", "1024", "--top", "1"});
  two_racks.insert(two_racks.end(), {"--export", "megatron-lm", "--format", "json"});
  for (const char* knob : {"tp=1", "pp=1", "ep=128", "dispatcher=hybridep"}) {
    two_racks.insert(two_racks.end(), {"--fix", knob});
  }
  const std::string racks = exported_by(*this, two_racks);
  for (const char* word :
       {"NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN=64", "NVLINK_DOMAIN_SIZE=72"}) {
    BOOST_TEST(says(racks, word), racks);
  }
  const std::string titan = exported_by(*this, words("h100-80g", {"--export", "torchtitan"}));
  BOOST_TEST(!says(titan, "NVLINK_DOMAIN"), titan);
  BOOST_TEST(!says(titan, "USE_MNNVL"), titan);
}

// Megatron-Core's DeepEP takes no padded experts, Primus' own does.
BOOST_FIXTURE_TEST_CASE(padding_beside_deepep_is_of_primus_alone, Cli) {
  const auto words = [](const char* dialect) {
    return small_plan("h100-80g",
                      {"--fix", "dispatcher=deepep", "--fix", "ep=8", "--fix", "capacity_factor=1",
                       "--fix", "pad_to_capacity=true", "--export", dialect});
  };
  check_refused(
      words("megatron-lm"), 2,
      {"no configuration is legal", "deepep_without_padding: dispatcher deepep excludes"});
  const std::string primus = exported_by(*this, words("primus"));
  BOOST_TEST(says(primus, "moe_pad_expert_input_to_capacity"), primus);
}

// What a framework has no words for is refused where it is asked for, else left.
BOOST_FIXTURE_TEST_CASE(a_framework_is_told_what_it_has_words_for, Cli) {
  const std::pair<std::string, std::string> refused[] = {
      {"cross_entropy=chunked", "megatron-lm"}, {"exp_avg=bf16", "torchtitan"},
      {"precision=nvfp4", "torchtitan"},        {"dispatcher=hybridep", "primus"},
      {"first_stage_layers=2", "torchtitan"},
  };
  for (const auto& [knob, dialect] : refused) {
    check_refused(small_plan("h100-80g", {"--fix", knob, "--export", dialect}), 2,
                  {"--fix " + knob + ": " + dialect + " has no words for it"});
  }
  const std::string narrow = std::string(kRunOfToday) +
                             " --use-precision-aware-optimizer --exp-avg-dtype bf16 "
                             "--exp-avg-sq-dtype bf16";
  const Answer answer =
      run(small_plan("h100-80g", {"--against", narrow, "--export", "torchtitan"}));
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  const std::string assumptions = document["assumptions"].dump();
  BOOST_TEST(says(assumptions, "torchtitan has no words for "), assumptions);
  BOOST_TEST(says(assumptions, "exp_avg=bf16"), assumptions);
  BOOST_TEST(says(assumptions, "exp_avg_sq=bf16"), assumptions);
  BOOST_TEST(document["plans"][0]["knobs"]["exp_avg"] == "fp32");
  BOOST_TEST(document["plans"][0]["knobs"]["exp_avg_sq"] == "fp32");
  const auto exported = document["exported"].get<std::string>();
  BOOST_TEST(!says(exported, "cannot be told"), exported);
}

// Flags of Megatron-Core lead to none of torchtitan's runs.
BOOST_FIXTURE_TEST_CASE(there_are_no_steps_to_another_engine, Cli) {
  for (const auto& [dialect, is_other] :
       {std::pair{"torchtitan", true}, std::pair{"megatron-bridge", false}}) {
    const Answer answer =
        run(small_plan("h100-80g", {"--against", kRunOfToday, "--export", dialect}));
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    const json theirs = json::parse(answer.out)["against"];
    BOOST_TEST(theirs["path"].empty() == is_other, dialect);
    BOOST_TEST(says(theirs["notes"].dump(), "the plan is for another engine than yours") ==
               is_other);
    BOOST_TEST_REQUIRE(!theirs["changes"].empty());
    for (const json& change : theirs["changes"]) {
      BOOST_TEST((!is_other || change["flags"].empty()), change.dump());
    }
  }
}

BOOST_FIXTURE_TEST_CASE(ways_out_are_in_the_words_of_the_framework, Cli) {
  for (const auto& [dialect, has_words] :
       {std::pair{"megatron-lm", true}, std::pair{"torchtitan", false}}) {
    std::vector<std::string> line = {
        "plan",  "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "4",
        "--fix", "tp=1",    "--fix",         "pp=1",       "--export", dialect};
    // What torchtitan needs is known less well.
    const std::string text = run(line).out;
    BOOST_TEST(says(text, has_words ? "(--gpus 8): fits\n" : "(--gpus 8): may fit\n"), text);
    line.insert(line.end(), {"--format", "json"});
    const Answer answer = run(line);
    BOOST_TEST_REQUIRE(answer.code == 1, answer.err);
    const json list = json::parse(answer.out)["ways_out"];
    BOOST_TEST(list[0]["verdict"] == (has_words ? "fits" : "tight"), list.dump());
    const std::string ways = list.dump();
    BOOST_TEST(says(ways, "exp_avg=bf16") == has_words, ways);
    BOOST_TEST(says(ways, "main_grads=bf16") == has_words, ways);
    BOOST_TEST(says(ways, "optimizer_offload_ratio=0.7") == has_words, ways);
    BOOST_TEST(says(ways, "--gpus 8"), ways);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
