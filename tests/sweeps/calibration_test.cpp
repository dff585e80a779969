// What a calibration says beside its rates: factors by kind of run, and runs that were measured.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "kernels/base/error.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/measured_figures.h"
#include "sweeps/planning/named_files.h"
#include "sweeps/planning/rates_file.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

using nlohmann::json;
using tests::Answer;
using tests::Cli;

namespace {

double factor_of(const Calibration& calibration, spec::PrecisionRecipe precision) {
  return calibration.rates.case_factor[static_cast<size_t>(precision)];
}

/// The run of tests/golden/logs/megatron_lm.log as a command.
constexpr const char* kCommandOfLog =
    "pretrain_gpt.py --num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 "
    "--num-attention-heads 32 --group-query-attention --num-query-groups 4 --kv-channels 128 "
    "--qk-layernorm --normalization RMSNorm --swiglu --disable-bias-linear "
    "--untie-embeddings-and-output-weights --position-embedding-type rope --seq-length 4096 "
    "--max-position-embeddings 40960 --vocab-size 151936 --num-experts 128 "
    "--moe-ffn-hidden-size 768 --moe-router-topk 8 --moe-grouped-gemm --moe-permute-fusion "
    "--moe-token-dispatcher-type alltoall --micro-batch-size 2 --global-batch-size 256 "
    "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
    "--num-virtual-stages-per-pipeline-rank 2 --expert-model-parallel-size 2 "
    "--expert-tensor-parallel-size 1 --use-distributed-optimizer --overlap-grad-reduce "
    "--overlap-param-gather --recompute-granularity selective "
    "--recompute-modules moe_act layernorm --hidden-dropout 0 --attention-dropout 0 --bf16";

}  // namespace

BOOST_AUTO_TEST_SUITE(calibrations)

// A large vocabulary that ran on a large device, and a small one on a small: not both at once.
BOOST_AUTO_TEST_CASE(one_run_shows_what_fits) {
  const auto machine = machine_of("h100-80g", 8);
  const auto named = model_named("llama3-8b");
  spec::HardwareSpec hardware = *machine;
  spec::ModelSpec model = *named;
  tuner::planner::PlanRun run;
  run.model = &model;
  run.hardware = &hardware;
  std::vector<MeasuredFigure> figures;
  const auto add = [&](int64_t vocab_size, int64_t memory_bytes) {
    model.vocab_size = vocab_size;
    hardware.memory_bytes = memory_bytes;
    add_measured(run, 7000, figures);
  };
  const auto fits = [&](int64_t vocab_size, double capacity_bytes) {
    model.vocab_size = vocab_size;
    return shows_that_it_fits(figures.front(), run, capacity_bytes);
  };
  add(128000, 80);
  add(32000, 40);
  BOOST_TEST_REQUIRE(figures.size() == 1U);
  BOOST_TEST(fits(128000, 80));
  BOOST_TEST(!fits(128000, 40));
  add(128000, 60);
  BOOST_TEST(fits(128000, 60));
  BOOST_TEST(!fits(128001, 60));
  // Files of before say neither.
  figures.front().vocab_size = figures.front().memory_bytes = 0;
  add(32000, 40);
  BOOST_TEST(fits(32000, 40));
}

// The same choices in another order, or with other modules, are another run.
BOOST_AUTO_TEST_CASE(what_is_no_knob_makes_another_run) {
  const auto machine = machine_of("h100-80g", 8);
  const auto model = model_named("llama3-8b");
  tuner::planner::PlanRun run;
  run.model = model.get();
  run.hardware = machine.get();
  run.knobs.pp = 4;
  run.knobs.vpp = 2;
  run.knobs.dp = 2;
  run.knobs.fused_attention = false;
  run.global_batch_size = 64;
  std::set<std::string> runs = {run_identity(run)};
  const auto is_another = [&](auto&& change) {
    tuner::planner::PlanRun other = run;
    change(other);
    return runs.insert(run_identity(other)).second;
  };
  using Run = tuner::planner::PlanRun;
  BOOST_TEST(is_another([](Run& other) { other.has_usual_schedule = false; }));
  // ZBVZeroBubble and DualPipeV, of which one fills its stages.
  BOOST_TEST(is_another([](Run& other) { other.has_usual_schedule = other.has_rounds = false; }));
  BOOST_TEST(is_another([](Run& other) {
    other.has_usual_schedule = other.has_rounds = false;
    other.fills_stages = true;
  }));
  BOOST_TEST(is_another([](Run& other) { other.pass_sequences = 8; }));
  BOOST_TEST(is_another([](Run& other) { other.states_own_modules = true; }));
  // All of a step in one pass is what is priced.
  BOOST_TEST(!is_another([](Run& other) { other.pass_sequences = 32; }));
}

BOOST_AUTO_TEST_CASE(factors_are_keyed_by_device_precision_routing_and_half_year) {
  using spec::PrecisionRecipe;
  const auto hopper = machine_of("h100-80g", 8);
  Calibration calibration;
  calibration.cases = {{{"h100-80g", "bf16", "natural", "2026-H1"}, 2, 0.1, 1.2, 1.1, 1.3},
                       {{"h100-80g", "bf16", "forced_balance", "2025-H2"}, 2, 0.1, 0.9, 0.8, 1},
                       {{"h100-80g", "bf16", "dense", "2026-H1"}, 2, 0.1, 0.7, 0.6, 0.8},
                       {{"gb200-nvl72", "mxfp8", "natural", "2026-H1"}, 2, 0.1, 1.5, 1.4, 1.6}};
  constexpr double kJanuary2026 = -5;
  constexpr double kDecember2025 = -6;
  const auto factor = [&](std::string_view routing, double months) {
    return factor_of(calibration.for_case(*hopper, routing, months), PrecisionRecipe::bf16);
  };
  BOOST_TEST(factor("natural", 0) == 1.2);
  BOOST_TEST(factor("natural", kJanuary2026) == 1.2);
  BOOST_TEST(factor("forced_balance", kDecember2025) == 0.9);
  BOOST_TEST(factor("dense", 0) == 0.7);
  // Several that were routed in another way count by their runs: (2 ln 1.2 + 6 ln 0.6) / 8.
  Calibration others = calibration;
  others.cases->push_back({{"h100-80g", "bf16", "unknown", "2026-H1"}, 6, 0.1, 0.6, 0.5, 0.7});
  BOOST_TEST(factor_of(others.for_case(*hopper, "forced_balance"), PrecisionRecipe::bf16) ==
                 std::exp((2 * std::log(1.2) + 6 * std::log(0.6)) / 8),
             boost::test_tools::tolerance(1e-9));
  // Runs that were routed in another way say more than none; those without experts say nothing.
  BOOST_TEST(factor("forced_balance", 0) == 1.2);
  BOOST_TEST(factor("dense", kDecember2025) == 1);
  BOOST_TEST(factor("natural", 1) == 1);  // 2026-07
  // Another precision, another device.
  const Calibration natural = calibration.for_case(*hopper, "natural");
  BOOST_TEST(factor_of(natural, PrecisionRecipe::mxfp8) == 1);
  const auto rack = machine_of("gb200-nvl72", 8);
  const Calibration of_rack = calibration.for_case(*rack, "natural");
  BOOST_TEST(factor_of(of_rack, PrecisionRecipe::mxfp8) == 1.5);
  BOOST_TEST(factor_of(of_rack, PrecisionRecipe::bf16) == 1);
  // What was asked before is forgotten.
  BOOST_TEST(factor_of(natural.for_case(*rack, "natural"), PrecisionRecipe::bf16) == 1);
}

BOOST_AUTO_TEST_CASE(shipped_factors_are_read_back) {
  const Calibration& shipped = default_calibration();
  BOOST_TEST_REQUIRE(shipped.cases.has_value());
  const json document = to_json(*shipped.cases);
  BOOST_TEST(to_json(cases_from_json(document, spec::Source("cases"))) == document);
  for (const CalibrationCase& one : *shipped.cases) {
    // They stand on several models each and correct little.
    BOOST_TEST(std::abs(std::log(one.time_factor)) < 0.05, one.key.hardware);
    BOOST_TEST(one.low < 1, one.key.hardware);
  }
}

BOOST_FIXTURE_TEST_CASE(hostile_cases_are_refused, Cli) {
  const json good = {
      {"hardware", "h100-80g"}, {"precision", "bf16"}, {"routing", "natural"}, {"date", "2026-H1"},
      {"num_runs", 1},          {"time_factor", 1.1},  {"low", 1.0},           {"high", 1.2}};
  BOOST_TEST(cases_from_json(json::array({good}), spec::Source("cases")).size() == 1U);
  const std::pair<const char*, json> wrong[] = {
      {"time_factor", 0},   {"time_factor", -1}, {"time_factor", 1e300},
      {"time_factor", "1"}, {"low", 1.15},       {"high", 1.05},
      {"num_runs", 0},      {"num_runs", 1e18},  {"hardware", 7},
      {"date", nullptr},    {"other", 1}};
  for (const auto& [key, value] : wrong) {
    json bad = good;
    bad[key] = value;
    BOOST_CHECK_THROW(cases_from_json(json::array({bad}), spec::Source("cases")), base::UsageError);
  }
  const json figure = {{"run", "0123"},
                       {"num_runs", 1},
                       {"tokens_per_s_per_gpu", 100.0},
                       {"low", 95.0},
                       {"high", 105.0}};
  BOOST_TEST(figures_from_json(json::array({figure}), spec::Source("measured")).size() == 1U);
  for (const auto& [key, value] : {std::pair<const char*, json>{"low", 101},
                                   {"high", 99},
                                   {"tokens_per_s_per_gpu", 0},
                                   {"tokens_per_s_per_gpu", 1e300},
                                   {"run", 5}}) {
    json bad = figure;
    bad[key] = value;
    BOOST_CHECK_THROW(figures_from_json(json::array({bad}), spec::Source("measured")),
                      base::UsageError);
  }
}

BOOST_FIXTURE_TEST_CASE(what_was_measured_stands_in_the_place_of_a_prediction, Cli) {
  const std::string original =
      tests::read_text(std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/logs/megatron_lm.log");
  const auto log_of = [&](const char* name, const char* ms) {
    const std::string log = folder.file(name);
    const std::regex time("elapsed time per iteration \\(ms\\): [0-9.]+");
    tests::write_text(
        log,
        std::regex_replace(original, time, std::string("elapsed time per iteration (ms): ") + ms));
    return log;
  };
  const std::string file = folder.file("mine.json");
  const Answer made = run({"calibrate", "--log", log_of("a.log", "16000.0"), "--log",
                           log_of("b.log", "20000.0"), "--hardware", "h100-80g", "--out", file});
  BOOST_TEST_REQUIRE(made.code == 0, made.err);
  const json measured = json::parse(tests::read_text(file))["measured"];
  BOOST_TEST_REQUIRE(measured.size() == 1U);
  BOOST_TEST(measured[0]["num_runs"] == 2);
  const auto estimate = [&](std::string command, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {
        "estimate",      "--run", std::move(command), "--hardware", "h100-80g", "--gpus", "8",
        "--calibration", file,    "--format",         "json"};
    words.insert(words.end(), more.begin(), more.end());
    const Answer answer = run(words);
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out)["rows"][0];
  };
  const json row = estimate(kCommandOfLog);
  BOOST_TEST(row["grade"] == "measured");
  // 256 sequences of 4096 tokens on 8 devices in 16 and in 20 s: the mean of both speeds.
  const double tokens = 256.0 * 4096 / 8 * (1.0 / 16 + 1.0 / 20) / 2;
  const auto close = boost::test_tools::tolerance(1e-6);
  BOOST_TEST(row["tokens_per_s_per_gpu"].get<double>() == tokens, close);
  BOOST_TEST(row["tokens_per_s_per_gpu_low"].get<double>() == 256.0 * 4096 / 8 / 20 / 1.05, close);
  BOOST_TEST(row["tokens_per_s_per_gpu_high"].get<double>() == 256.0 * 4096 / 8 / 16 * 1.05, close);
  double parts = 0;
  for (const auto& [part, ns] : row["step_parts_ns"].items()) parts += ns.get<double>();
  BOOST_TEST(parts == row["step_time_ns"].get<double>(), close);
  // Another batch, another choice, another load: nobody measured that.
  for (const auto& [from, to] : {std::pair{"--global-batch-size 256", "--global-batch-size 512"},
                                 {"moe_act layernorm", "moe_act"},
                                 {"--moe-router-topk 8", "--moe-router-topk 4"},
                                 {"--moe-permute-fusion", ""},
                                 {"--bf16", "--bf16 --optimizer muon"}}) {
    const std::string other = std::regex_replace(kCommandOfLog, std::regex(from), to);
    BOOST_TEST(estimate(other)["grade"] == "calibrated", to);
  }
  BOOST_TEST(estimate(kCommandOfLog, {"--imbalance", "1.5"})["grade"] == "calibrated");
  // The same devices by another name; a model's file, whose vocabulary is not padded.
  const Answer against =
      run({"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "8", "--against",
           kCommandOfLog, "--calibration", file, "--top", "1", "--format", "json"});
  BOOST_TEST_REQUIRE(against.code == 0, against.err);
  BOOST_TEST(json::parse(against.out)["against"]["grade"] == "measured");
  // It ran, whatever is predicted of its memory.
  BOOST_TEST(row["verdict"] == "fits");
  // What no knob stands for changes nothing that was measured.
  BOOST_TEST(estimate(std::string(kCommandOfLog) + " --manual-gc")["grade"] == "measured");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
