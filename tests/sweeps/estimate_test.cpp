// What an estimate says beside its figures: verdict, grade, order of groups; and runs that no
// estimate is for.
#include "sweeps/planning/estimate.h"

#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "kernels/base/error.h"
#include "sweeps/planning/accuracy.h"
#include "sweeps/planning/machines.h"
#include "sweeps/planning/named_files.h"
#include "sweeps/planning/row_files.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

namespace data = boost::unit_test::data;
using nlohmann::json;
using tests::Answer;
using tests::Cli;

BOOST_AUTO_TEST_SUITE(estimates)

namespace {

/// A dense model of 8B on so many devices of a kind.
struct SmallRun {
  std::shared_ptr<const spec::ModelSpec> model = model_named("llama3-8b");
  std::shared_ptr<const spec::HardwareSpec> hardware;
  tuner::planner::PlanRun run;

  SmallRun(const std::string& machine, int64_t num_devices)
      : hardware(machine_of(machine, num_devices)) {
    run.model = model.get();
    run.hardware = hardware.get();
    run.knobs.dp = static_cast<int32_t>(num_devices);
    run.global_batch_size = 64;
    run.seq_length = 4096;
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_above_the_memory_does_not_fit) {
  int num_above = 0;
  for (const PublishedRow& row :
       load_rows(std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/published/rows.json")) {
    EstimateContext context;
    context.leaner = row.leaner;
    const RunEstimate estimate = estimate_run(row.run, default_calibration(), context);
    const bool is_above = tuner::planner::device_bytes(estimate.memory.peak_bytes()) >
                          static_cast<double>(row.hardware->memory_bytes);
    num_above += is_above ? 1 : 0;
    BOOST_TEST(is_above == (estimate.verdict != Verdict::fits), row.id);
    if (row.ran) BOOST_TEST((estimate.verdict != Verdict::oom), row.id);
  }
  BOOST_TEST(num_above > 0);
}

// The same run with more and less memory: what is predicted, and what it cannot be below. Without
// any recomputation nine tenths of the peak are the run's own, with it and FSDP far less.
BOOST_AUTO_TEST_CASE(between_fits_and_impossible_is_tight) {
  SmallRun small("h100-80g", 8);
  const double peak = estimate_run(small.run, default_calibration(), {}).memory.peak_bytes();
  spec::HardwareSpec hardware = *small.hardware;
  small.run.hardware = &hardware;
  std::vector<tuner::planner::PlanRun> leaner(2, small.run);
  leaner[0].knobs.recompute = {spec::PlanRecompute::full};
  leaner[1].knobs.recompute = {spec::PlanRecompute::full};
  leaner[1].knobs.fsdp = spec::Fsdp::megatron;
  const auto verdict_with = [&](double bytes, bool is_open) {
    hardware.memory_bytes = static_cast<int64_t>(bytes);
    EstimateContext context;
    if (is_open) context.leaner = leaner;
    return estimate_run(small.run, default_calibration(), context).verdict;
  };
  const double needed = tuner::planner::device_bytes(peak);
  BOOST_TEST((verdict_with(1.001 * needed, false) == Verdict::fits));
  BOOST_TEST((verdict_with(0.999 * needed, false) == Verdict::tight));
  BOOST_TEST((verdict_with(0.92 * peak, false) == Verdict::tight));
  BOOST_TEST((verdict_with(0.90 * peak, false) == Verdict::oom));
  // What the run does not state may be chosen so that it fits, but not so that anything does.
  BOOST_TEST((verdict_with(0.999 * needed, true) == Verdict::tight));
  double least = peak;
  for (const tuner::planner::PlanRun& run : leaner) {
    least = std::min(least, tuner::planner::predict_memory(run).peak_bytes());
  }
  BOOST_TEST(least < 0.5 * peak);
  BOOST_TEST((verdict_with(0.5 * peak, true) == Verdict::tight));
  BOOST_TEST((verdict_with(0.91 * least, true) == Verdict::tight));
  BOOST_TEST((verdict_with(0.90 * least, true) == Verdict::oom));
}

// Neither rates nor intervals exceed the data sheet: 989.4 TFLOP/s in 16 bits, twice that in FP8.
BOOST_AUTO_TEST_CASE(no_rates_make_a_device_faster_than_its_peak) {
  Calibration calibration = default_calibration();
  calibration.rates.drift_dense = 10;
  EstimateContext context;
  context.months = 2;
  const auto within = boost::test_tools::tolerance(1e-6);
  SmallRun small("h100-80g", 8);
  for (const auto& [precision, peak] : {std::pair{spec::PrecisionRecipe::bf16, 989.4},
                                        {spec::PrecisionRecipe::fp8_current, 1978.9}}) {
    small.run.knobs.precision = precision;
    const RunEstimate estimate = estimate_run(small.run, calibration, context);
    BOOST_TEST(estimate.tflops.value == peak, within);
    BOOST_TEST(estimate.tflops.high == peak, within);
    BOOST_TEST(estimate.tflops.low < peak);
    // A source that counts more FLOPs gets no more either.
    context.gflop_per_token = 1e6;
    BOOST_TEST(estimate_run(small.run, calibration, context).tflops.high == peak, within);
    context.gflop_per_token = 0;
  }
}

BOOST_AUTO_TEST_CASE(dates_beyond_the_fitted_ones_change_nothing) {
  const SmallRun small("h100-80g", 8);
  const auto seconds_at = [&](double months) {
    EstimateContext context;
    context.months = months;
    return estimate_run(small.run, default_calibration(), context).step_seconds.value;
  };
  BOOST_TEST(seconds_at(883) == seconds_at(2));     // 2100-01, 2026-08
  BOOST_TEST(seconds_at(-132) == seconds_at(-49));  // 2015-06, 2022-05
  BOOST_TEST(seconds_at(1) > seconds_at(2));
  BOOST_TEST(seconds_at(-48) < seconds_at(-49));
}

BOOST_AUTO_TEST_CASE(only_what_runs_were_seen_of_is_calibrated) {
  const auto estimate = [](const std::string& machine, spec::PrecisionRecipe precision) {
    SmallRun small(machine, 8);
    small.run.knobs.precision = precision;
    return estimate_run(small.run, default_calibration(), {});
  };
  const RunEstimate seen = estimate("h100-80g", spec::PrecisionRecipe::bf16);
  BOOST_TEST(seen.grade == "calibrated");
  for (const char* machine : {"h200", "mi300x"}) {
    const RunEstimate unseen = estimate(machine, spec::PrecisionRecipe::bf16);
    BOOST_TEST(unseen.grade == "analytic", machine);
    BOOST_TEST(unseen.step_seconds.high / unseen.step_seconds.value >
                   seen.step_seconds.high / seen.step_seconds.value,
               machine);
  }
  BOOST_TEST(estimate("gb200-nvl72", spec::PrecisionRecipe::mxfp8).grade == "calibrated");
  BOOST_TEST(estimate("a100-80g", spec::PrecisionRecipe::bf16).grade == "analytic");  // FP16 was
}

// No run of torchtitan was fitted: neither grade nor verdict is that of a run of Megatron-Core.
BOOST_AUTO_TEST_CASE(runs_of_torchtitan_are_analytic) {
  const auto within = boost::test_tools::tolerance(1e-9);
  SmallRun small("h100-80g", 8);
  small.run.knobs.fsdp = spec::Fsdp::torch;
  small.run.knobs.recompute = {spec::PlanRecompute::full};
  small.run.knobs.cross_entropy = spec::CrossEntropy::unfused;
  const auto estimate = [&] { return estimate_run(small.run, default_calibration(), {}); };
  const RunEstimate of_megatron = estimate();
  BOOST_TEST(of_megatron.grade == "calibrated");
  BOOST_TEST(of_megatron.num_runs.value() > 0);
  small.run.is_of_megatron = false;
  const RunEstimate titan = estimate();
  BOOST_TEST(titan.grade == "analytic");
  BOOST_TEST(titan.num_runs.value() == 0);
  // But for the host's calls, which were counted of Megatron-Core alone.
  BOOST_TEST(titan.step_seconds.value == of_megatron.step_seconds.value,
             boost::test_tools::tolerance(0.02));
  BOOST_TEST(titan.step_seconds.high == titan.step_seconds.value * std::exp(0.85), within);
  BOOST_TEST(titan.step_seconds.low < of_megatron.step_seconds.low);
  BOOST_TEST(titan.allocated_bytes.low == 0.85 * titan.allocated_bytes.value, within);
  BOOST_TEST(titan.allocated_bytes.high == 1.25 * titan.allocated_bytes.value, within);
  // A compiled loss takes less, unless the release does not compile it: the upper end stays.
  small.run.knobs.cross_entropy = spec::CrossEntropy::native;
  const RunEstimate compiled = estimate();
  BOOST_TEST(compiled.allocated_bytes.value < titan.allocated_bytes.value);
  BOOST_TEST(compiled.allocated_bytes.high == titan.allocated_bytes.high, within);
  // It fits if the upper end does.
  small.run.knobs.cross_entropy = spec::CrossEntropy::unfused;
  spec::HardwareSpec hardware = *small.hardware;
  small.run.hardware = &hardware;
  const double peak = titan.memory.peak_bytes();
  const auto verdict_with = [&](double bytes) {
    hardware.memory_bytes = static_cast<int64_t>(bytes);
    return estimate().verdict;
  };
  const double needed = tuner::planner::device_bytes(1.25 * peak);
  BOOST_TEST((verdict_with(1.001 * needed) == Verdict::fits));
  BOOST_TEST((verdict_with(0.999 * needed) == Verdict::tight));
  BOOST_TEST((verdict_with(0.73 * peak) == Verdict::tight));
  BOOST_TEST((verdict_with(0.72 * peak) == Verdict::oom));
  BOOST_TEST(rates_text(default_calibration(), hardware, spec::PrecisionRecipe::bf16, false)
                 .find(", none of them of torchtitan: ") != std::string::npos);
  // Of what was measured on one's own cluster the figures are kept apart.
  small.run.hardware = small.hardware.get();
  Calibration own = default_calibration();
  const auto grade_of = [&](bool is_of_megatron) {
    small.run.is_of_megatron = is_of_megatron;
    return estimate_run(small.run, own, {}).grade;
  };
  small.run.is_of_megatron = true;
  add_measured(small.run, 7000, own.measured);
  BOOST_TEST(grade_of(true) == "measured");
  BOOST_TEST(grade_of(false) == "analytic");
  add_measured(small.run, 6000, own.measured);
  BOOST_TEST(grade_of(false) == "measured");
  BOOST_TEST(rates_text(own, hardware, spec::PrecisionRecipe::bf16, false)
                 .find(", none of them of torchtitan but your own: ") != std::string::npos);
}

// A run that was measured fits as it is, not with more logits or on a smaller device; and with
// another order of forwards and backwards it is another run.
BOOST_AUTO_TEST_CASE(what_ran_fits_where_it_ran) {
  SmallRun small("h100-80g", 8);
  spec::HardwareSpec hardware = *small.hardware;
  small.run.hardware = &hardware;
  spec::ModelSpec model = *small.model;
  small.run.model = &model;
  small.run.knobs.pp = 2;
  small.run.knobs.dp = 4;
  Calibration own = default_calibration();
  const auto estimate = [&] { return estimate_run(small.run, own, {}); };
  hardware.memory_bytes = std::llround(0.9 * estimate().memory.peak_bytes());
  BOOST_TEST((estimate().verdict != Verdict::fits));
  add_measured(small.run, 7000, own.measured);
  BOOST_TEST_REQUIRE(own.measured.size() == 1U);
  const json document = to_json(own.measured);
  own.measured = figures_from_json(document, spec::Source("measured"));
  BOOST_TEST(to_json(own.measured) == document);
  BOOST_TEST((estimate().verdict == Verdict::fits));
  model.vocab_size += 1;
  BOOST_TEST(estimate().grade == "measured");
  BOOST_TEST((estimate().verdict != Verdict::fits));
  model.vocab_size -= 2;
  BOOST_TEST((estimate().verdict == Verdict::fits));
  hardware.memory_bytes -= 1;
  BOOST_TEST(estimate().grade == "measured");
  BOOST_TEST((estimate().verdict != Verdict::fits));
  small.run.holds_all_micro_batches = true;
  BOOST_TEST(estimate().grade != "measured");
  small.run.holds_all_micro_batches = false;
  small.run.knobs.vpp = 2;
  add_measured(small.run, 7000, own.measured);
  BOOST_TEST(estimate().grade == "measured");
  small.run.has_rounds = false;
  BOOST_TEST(estimate().grade != "measured");
}

// The load that fits is one with which the verdict is "fits", whoever's engine it is.
BOOST_AUTO_TEST_CASE(loads_fit_by_the_verdict) {
  const auto model = model_named("qwen3-30b-a3b");
  for (const bool is_of_megatron : {true, false}) {
    BOOST_TEST_CONTEXT("Megatron-Core: " << is_of_megatron) {
      SmallRun small("h200", 8);
      small.run.model = model.get();
      small.run.is_of_megatron = is_of_megatron;
      small.run.knobs.fsdp = is_of_megatron ? spec::Fsdp::none : spec::Fsdp::torch;
      small.run.knobs.ep = 8;
      spec::HardwareSpec hardware = *small.hardware;
      small.run.hardware = &hardware;
      const auto estimate_at = [&](double load) {
        small.run.load = load;
        return estimate_run(small.run, default_calibration(), {});
      };
      const RunEstimate balanced = estimate_at(1);
      const double peak = balanced.memory.peak_bytes();
      const double high = is_of_megatron ? peak : balanced.allocated_bytes.high;
      const double needed = tuner::planner::device_bytes(high);
      hardware.memory_bytes = std::llround(1.05 * needed);
      const double most = estimate_at(1).load_that_fits;
      BOOST_TEST_REQUIRE(most > 1);
      BOOST_TEST_REQUIRE(most < kMostLoad);
      BOOST_TEST((estimate_at(most).verdict == Verdict::fits));
      BOOST_TEST((estimate_at(most + 0.02).verdict != Verdict::fits));
      hardware.memory_bytes = std::llround(0.999 * needed);
      BOOST_TEST((estimate_at(1).verdict == Verdict::tight));
      BOOST_TEST(estimate_at(1).load_that_fits == 0);
    }
  }
}

BOOST_FIXTURE_TEST_CASE(an_estimate_says_that_no_run_of_torchtitan_is_behind_it, Cli) {
  const std::string config =
      "[training]\nlocal_batch_size = 1\nseq_len = 8192\n[activation_checkpoint]\n"
      "mode = \"full\"\n[compile]\nenable = true\ncomponents = [\"model\", \"loss\"]\n";
  const Answer answer = run({"estimate", "--run", config, "--dialect", "torchtitan", "--model",
                             "llama3-8b", "--hardware", "h100-80g", "--gpus", "8"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  for (const char* words : {"(analytic)", ", none of them of torchtitan", "taken as compiled"}) {
    BOOST_TEST(answer.out.find(words) != std::string::npos, answer.out);
  }
}

// Beside how many runs were fitted stands how many were on such devices in such a precision.
BOOST_AUTO_TEST_CASE(runs_behind_the_rates_are_counted) {
  using spec::PrecisionRecipe;
  Calibration fitted = default_calibration();
  fitted.basis = "6 measured runs";
  fitted.cases = {{{"h100-80g", "bf16", "natural", "2026-H1"}, 2},
                  {{"h100-80g", "bf16", "dense", "2026-H1"}, 3},
                  {{"h100-80g", "mxfp8", "natural", "2026-H1"}, 1}};
  BOOST_TEST_REQUIRE(!fitted.fitted.empty());
  const auto hopper = machine_of("h100-80g", 16);
  const auto other = machine_of("mi300x", 8);
  BOOST_TEST(num_runs_behind(fitted, *hopper, PrecisionRecipe::bf16).value() == 5);
  BOOST_TEST(num_runs_behind(fitted, *other, PrecisionRecipe::bf16).value() == 0);
  BOOST_TEST(rates_text(fitted, *hopper, PrecisionRecipe::bf16) ==
             "6 measured runs, of them on " + hopper->name + " in bf16: 5");
  BOOST_TEST(rates_text(fitted, *other, PrecisionRecipe::bf16) ==
             "6 measured runs, of them on " + other->name + " in bf16: 0");
  // A probe tells no cases; nothing fitted is no run.
  fitted.cases.reset();
  BOOST_TEST(!num_runs_behind(fitted, *other, PrecisionRecipe::bf16).has_value());
  BOOST_TEST(rates_text(fitted, *other, PrecisionRecipe::bf16) == "6 measured runs");
  fitted.fitted.clear();
  BOOST_TEST(num_runs_behind(fitted, *hopper, PrecisionRecipe::bf16).value() == 0);
}

BOOST_FIXTURE_TEST_CASE(plan_and_estimate_say_that_no_run_was_on_such_devices, Cli) {
  for (const auto& [machine, has_runs] :
       {std::pair{"mi300x", false}, {"h200", false}, {"a100-80g", false}, {"h100-80g", true}}) {
    const std::vector<std::string> words = {"--model", "llama3-8b", "--hardware",
                                            machine,   "--gpus",    "8"};
    std::vector<std::string> estimate = {"estimate", "--run",
                                         "pretrain_gpt.py --bf16 --tensor-model-parallel-size 2"};
    std::vector<std::string> plan = {"plan", "--top", "1"};
    for (std::vector<std::string>* line : {&estimate, &plan}) {
      line->insert(line->end(), words.begin(), words.end());
      const Answer answer = run(*line);
      BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
      BOOST_TEST(answer.out.find(" measured runs, of them on ") != std::string::npos, answer.out);
      BOOST_TEST((answer.out.find(" in bf16: 0\n") == std::string::npos) == has_runs, answer.out);
    }
  }
}

BOOST_AUTO_TEST_CASE(groups_of_like_rows_are_named) {
  const json order = estimate_rows(
      load_rows(std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/published/rows.json"),
      default_calibration())["summary"]["order"];
  BOOST_TEST_REQUIRE(order["groups"].size() == order["num_groups"].get<size_t>());
  BOOST_TEST_REQUIRE(!order["groups"].empty());
  int num_pairs = 0;
  for (const json& group : order["groups"]) {
    BOOST_TEST(group["rows"].size() >= 2U);
    BOOST_TEST(std::abs(group["tau"].get<double>()) <= 1);
    num_pairs += group["num_pairs"].get<int>();
  }
  BOOST_TEST(num_pairs == order["num_right"].get<int>() + order["num_wrong"].get<int>() +
                              order["num_tied"].get<int>());
}

// Of three like runs two are 1 % apart and predicted the other way round; the third has longer
// sequences.
BOOST_AUTO_TEST_CASE(order_is_told_with_and_without_noise) {
  Accuracy accuracy;
  const auto add = [&](int64_t seq_length, double published, double predicted) {
    PublishedRow row;
    row.id = "like-" + std::to_string(seq_length);
    row.group = "like";
    row.is_for_throughput = true;
    row.run.seq_length = seq_length;
    row.run.global_batch_size = static_cast<int64_t>(published);  // tells configurations apart
    row.tokens_per_s = published;
    RunEstimate estimate;
    estimate.tokens_per_s.value = predicted;
    accuracy.add(row, estimate);
  };
  add(4096, 100, 100);
  add(4096, 101, 90);
  add(8192, 50, 40);
  const auto within = boost::test_tools::tolerance(1e-9);
  const json first = accuracy.summary();
  BOOST_TEST(first["order"]["num_groups"] == 0);
  BOOST_TEST(first["order"]["tau"].is_null());
  const json& all = first["order_of_all_pairs"];
  BOOST_TEST(all["num_right"] == 2);
  BOOST_TEST(all["num_wrong"] == 1);
  BOOST_TEST(all["tau"].get<double>() == 1.0 / 3, within);
  BOOST_TEST(all["groups"][0]["num_pairs"] == 3);
  BOOST_TEST(all["tau_mean_of_groups"].get<double>() == 1.0 / 3, within);
  // 3 % apart, and right.
  add(8192, 51.5, 41);
  const json second = accuracy.summary();
  BOOST_TEST(second["order"]["num_right"] == 1);
  BOOST_TEST(second["order"]["tau"].get<double>() == 1, within);
  BOOST_TEST(second["order_of_all_pairs"]["num_right"] == 5);
  BOOST_TEST(second["order_of_all_pairs"]["tau"].get<double>() == 4.0 / 6, within);
  BOOST_TEST(second["order_of_all_pairs"]["tau_b"].get<double>() == 4.0 / 6, within);
  // Faster than three of them, as predicted, and predicted as fast as the fourth: 8 right, 1 wrong.
  add(2048, 60, 41);
  const json third = accuracy.summary()["order_of_all_pairs"];
  BOOST_TEST(third["num_tied"] == 1);
  BOOST_TEST(third["tau"].get<double>() == 7.0 / 10, within);
  BOOST_TEST(third["tau_b"].get<double>() == 7 / std::sqrt(10.0 * 9), within);
}

struct Refused {
  const char* arguments;  ///< of the command, behind the script
  const char* gpus;
  const char* helps;
};
std::ostream& operator<<(std::ostream& out, const Refused& row) { return out << row.arguments; }

const Refused kRefused[] = {
    // Layouts of other layers, and in another order.
    {"pretrain_gpt.py --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "
     "'Et*40|t*40L'",
     "8", "has 80 layers, the model 48"},
    {"pretrain_gpt.py --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "
     "'Et*5000|t*4000L'",
     "8", "has 9000 layers, the model 48"},
    {"pretrain_gpt.py --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "
     "'Et*4|t*4L'",
     "8", "has 8 layers, the model 48"},
    {"pretrain_gpt.py --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "
     "'t*24|Et*24'",
     "8", "does not begin with the only embedding"},
    // More tokens than anything has.
    {"pretrain_gpt.py --tensor-model-parallel-size 1 --seq-length 1000000000", "8", "--seq-length"},
    {"pretrain_gpt.py --tensor-model-parallel-size 1 --seq-length 100000000 --micro-batch-size 4",
     "8", "a micro-batch of 4 sequences is 400000000 tokens, expected at most 268435456"},
    // What contradicts the other options.
    {"torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py --tensor-model-parallel-size 1", "64",
     "the run starts 16 ranks, but 64 devices are asked for"},
    {"pretrain_gpt.py --tensor-model-parallel-size 1 --num-layers 12 --hidden-size 512", "8",
     "--num-layers is 12, but the model of --model has 48"},
    {"pretrain_gpt.py --tensor-model-parallel-size 1 --moe-router-topk 500", "8",
     "--moe-router-topk is 500, but the model of --model has 8"},
    {"pretrain_gpt.py --tensor-model-parallel-size 1 --num-experts 64", "8",
     "--num-experts is 64, but the model of --model has 128"},
    {"run_recipe.py model.tensor_model_parallel_size=1 model.moe_ffn_hidden_size=1024", "8",
     "model.moe_ffn_hidden_size is 1024, but the model of --model has 768"},
    // What contradicts itself.
    {"pretrain_gpt.py --tensor-model-parallel-size 1 --overlap-grad-reduce --overlap-param-gather",
     "8", "'--overlap-param-gather' needs '--use-distributed-optimizer' or"},
    {"pretrain_gpt.py --tensor-model-parallel-size 1 --recompute-granularity full", "8",
     "'--recompute-granularity' full needs '--recompute-method' and '--recompute-num-layers'"},
    {"pretrain_gpt.py --expert-model-parallel-size 8 --moe-token-dispatcher-type flex "
     "--moe-flex-dispatcher-backend deepep --moe-expert-capacity-factor 1 "
     "--moe-pad-expert-input-to-capacity",
     "8", "'--moe-pad-expert-input-to-capacity' contradicts '--moe-flex-dispatcher-backend'"},
    {"pretrain_gpt.py --tensor-model-parallel-size 1 --use-distributed-optimizer --exp-avg-dtype "
     "bf16",
     "8", "'--exp-avg-dtype' is bf16, which needs '--use-precision-aware-optimizer'"},
};

BOOST_DATA_TEST_CASE_F(Cli, a_run_that_cannot_be_is_refused, data::make(kRefused), refused) {
  const Answer answer = run({"estimate", "--run", refused.arguments, "--model", "qwen3-30b-a3b",
                             "--hardware", "h100-80g", "--gpus", refused.gpus});
  BOOST_TEST(answer.code == 2);
  BOOST_TEST(answer.err.find(refused.helps) != std::string::npos, answer.err);
}

// Without a word of it experts are sliced like all else: a model without experts has none to slice.
BOOST_FIXTURE_TEST_CASE(a_dense_model_is_sliced, Cli) {
  const std::string command =
      "torchrun pretrain_gpt.py --bf16 --micro-batch-size 1 --global-batch-size 128 "
      "--seq-length 4096 --use-distributed-optimizer --tensor-model-parallel-size 4 "
      "--sequence-parallel";
  const std::vector<std::string> machine = {"--model", "llama3-8b", "--hardware", "h100-80g",
                                            "--gpus",  "16",        "--format",   "json"};
  const auto answer_of = [&](std::vector<std::string> words) {
    words.insert(words.end(), machine.begin(), machine.end());
    const Answer answer = run(words);
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out);
  };
  const json knobs = answer_of({"estimate", "--run", command})["rows"][0]["knobs"];
  BOOST_TEST(knobs["tp"] == 4);
  BOOST_TEST(knobs["etp"] == 1);
  const json plan = answer_of({"plan", "--against", command});
  for (const json& change : plan["against"]["changes"]) BOOST_TEST(change["knob"] != "etp");
  // There is nothing to route.
  BOOST_TEST(plan["assumptions"].dump().find("experts") == std::string::npos,
             plan["assumptions"].dump());
  const Answer text = run({"estimate", "--run", command, "--model", "llama3-8b", "--hardware",
                           "h100-80g", "--gpus", "16"});
  BOOST_TEST(text.out.find("imbalance") == std::string::npos, text.out);
  BOOST_TEST(text.out.find("; wall ") != std::string::npos, text.out);
}

// Llama 3 70B in four stages: GPipe keeps all 32 micro-batches where 1F1B keeps four.
BOOST_FIXTURE_TEST_CASE(a_stated_schedule_is_priced_or_named, Cli) {
  const auto row_of = [&](const char* schedule) {
    const std::string file = folder.file("run.toml");
    tests::write_text(
        file, std::string("[training]\nlocal_batch_size = 32\nseq_len = 8192\n[parallelism]\n"
                          "data_parallel_shard_degree = 2\ntensor_parallel_degree = 8\n"
                          "pipeline_parallel_degree = 4\npipeline_parallel_schedule = \"") +
                  schedule + "\"\n[activation_checkpoint]\nmode = \"none\"\n");
    const Answer answer = run({"estimate", "--run", file, "--model", "llama3-70b", "--hardware",
                               "h100-80g", "--gpus", "64", "--format", "json"});
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out)["rows"][0];
  };
  const json usual = row_of("1F1B");
  const json held = row_of("GPipe");
  BOOST_TEST(usual["notes"].dump().find("schedule") == std::string::npos, usual["notes"].dump());
  BOOST_TEST(held["notes"].dump().find("'GPipe': taken as 1F1B, but") != std::string::npos,
             held["notes"].dump());
  const auto bytes = [](const json& row) {
    return row["memory_parts_bytes"]["activations"].get<double>();
  };
  BOOST_TEST(bytes(held) > 7.9 * bytes(usual));
  BOOST_TEST(usual["verdict"] == "fits");
  BOOST_TEST(held["verdict"] == "oom");
}

// Rounds of virtual stages are Megatron-Core's own.
BOOST_FIXTURE_TEST_CASE(torchtitan_is_not_held_to_rounds_of_stages, Cli) {
  for (const char* batch : {"12", "4"}) {
    const std::string file = folder.file("run.toml");
    tests::write_text(file, std::string("[training]\nseq_len = 4096\nlocal_batch_size = ") + batch +
                                "\n[parallelism]\npipeline_parallel_degree = 8\n"
                                "expert_parallel_degree = 8\n"
                                "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
                                "[activation_checkpoint]\nmode = \"full\"\n");
    const Answer answer = run({"estimate", "--run", file, "--model", "qwen3-30b-a3b", "--hardware",
                               "h100-80g", "--gpus", "64"});
    BOOST_TEST(answer.code == 0, answer.err);
  }
}

// Nor does every schedule of torch have rounds: 11 micro-batches make two that are uneven.
BOOST_FIXTURE_TEST_CASE(schedules_without_rounds_take_any_micro_batches, Cli) {
  for (const auto& [schedule, is_legal] : {std::pair{"LoopedBFS", true},
                                           {"ZBVZeroBubble", true},
                                           {"DualPipeV", true},
                                           {"InterleavedZeroBubble", false},
                                           {"Interleaved1F1B", false}}) {
    const std::string text =
        std::string(
            "[training]\nseq_len = 4096\nlocal_batch_size = 11\n[parallelism]\n"
            "pipeline_parallel_degree = 4\npipeline_parallel_schedule = \"") +
        schedule + "\"\n";
    const Answer answer = run({"estimate", "--run", text, "--dialect", "torchtitan", "--model",
                               "llama3-8b", "--hardware", "h100-80g", "--gpus", "8"});
    BOOST_TEST((answer.code == 0) == is_legal, schedule + answer.err);
    if (!is_legal) {
      BOOST_TEST(answer.err.find("vpp_divides_micro_batches") != std::string::npos, answer.err);
    }
  }
}

// Three micro-batches for eight stages.
BOOST_FIXTURE_TEST_CASE(a_schedule_may_need_a_micro_batch_for_each_stage, Cli) {
  for (const auto& [schedule, is_legal] :
       {std::pair{"LoopedBFS", true}, {"ZBVZeroBubble", true}, {"DualPipeV", false}}) {
    const std::string text = std::string(
                                 "[training]\nseq_len = 4096\nlocal_batch_size = 3\n[parallelism]\n"
                                 "pipeline_parallel_degree = 4\npipeline_parallel_schedule = \"") +
                             schedule + "\"\n";
    const Answer answer = run({"estimate", "--run", text, "--dialect", "torchtitan", "--model",
                               "llama3-8b", "--hardware", "h100-80g", "--gpus", "8"});
    BOOST_TEST((answer.code == 0) == is_legal, schedule + answer.err);
    BOOST_TEST((answer.err.find("schedule_fills_stages") == std::string::npos) == is_legal);
  }
}

/// With all sizes of Qwen3 30B, on 8 x 2 ranks.
constexpr const char* kWholeCommand =
    "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 48 --hidden-size 2048 "
    "--ffn-hidden-size 6144 --num-attention-heads 32 --group-query-attention --num-query-groups 4 "
    "--kv-channels 128 --num-experts 128 --moe-ffn-hidden-size 768 --moe-router-topk 8 --swiglu "
    "--vocab-size 151936 --normalization RMSNorm --bf16 --seq-length 4096 --micro-batch-size 1 "
    "--global-batch-size 256 --moe-grouped-gemm --use-distributed-optimizer "
    "--expert-model-parallel-size 16 --untie-embeddings-and-output-weights "
    "--position-embedding-type rope --moe-token-dispatcher-type alltoall";

// Megatron-Core's own modules keep what Transformer Engine's unfused attention does. Without a
// grouped product they have four workspaces fewer.
BOOST_FIXTURE_TEST_CASE(own_modules_keep_scores, Cli) {
  const auto peak_with = [&](const std::string& more) {
    const Answer answer =
        run({"estimate", "--run", std::string(kWholeCommand) + " --disable-bias-linear " + more,
             "--hardware", "h100-80g", "--format", "json"});
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out)["rows"][0]["peak_allocated_bytes"].get<double>();
  };
  const double local = peak_with("--transformer-impl local");
  BOOST_TEST(local > 1.05 * peak_with(""));
  BOOST_TEST(local == peak_with("--attention-backend unfused") - 4 * (32 << 20));
  BOOST_TEST(local == peak_with("--attention-backend flash --transformer-impl local"));
  BOOST_TEST(peak_with("--transformer-impl transformer_engine") == peak_with(""));
}

BOOST_FIXTURE_TEST_CASE(biases_beside_experts_are_refused_by_their_flag, Cli) {
  check_refused({"estimate", "--run", kWholeCommand, "--hardware", "h100-80g"}, 2,
                {"experts", "add '--disable-bias-linear'", "--model"});
  const Answer answer =
      run({"estimate", "--run", std::string(kWholeCommand) + " --disable-bias-linear", "--hardware",
           "h100-80g"});
  BOOST_TEST(answer.code == 0, answer.err);
}

BOOST_AUTO_TEST_CASE(loads_are_told_as_far_as_they_are_looked_at) {
  BOOST_TEST(load_text(0) == "-");
  BOOST_TEST(load_text(1.374) == "1.37");
  BOOST_TEST(load_text(kMostLoad) == "16 and more");
}

BOOST_FIXTURE_TEST_CASE(what_never_fits_has_no_imbalance, Cli) {
  const auto text_of = [&](const char* gpus, const char* more) {
    const Answer answer =
        run({"estimate", "--run",
             std::string("pretrain_gpt.py --bf16 --micro-batch-size 1 --use-distributed-optimizer "
                         "--seq-length 4096 ") +
                 more,
             "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", gpus});
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return answer.out;
  };
  const std::string never = text_of("1", "");
  BOOST_TEST(never.find("oom; does not fit even with balanced routing; wall") != std::string::npos,
             never);
  const std::string always = text_of("64",
                                     "--expert-model-parallel-size 8 --recompute-granularity full "
                                     "--recompute-method uniform --recompute-num-layers 1");
  BOOST_TEST(always.find("fits; fits up to an imbalance of 16 and more; wall") != std::string::npos,
             always);
}

// Without --gpus a run has the ranks that it says.
BOOST_FIXTURE_TEST_CASE(a_run_has_its_own_ranks, Cli) {
  const std::string command = std::string(kWholeCommand) + " --disable-bias-linear";
  const auto row_of = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"estimate", "--run",    command, "--hardware",
                                      "h100-80g", "--format", "json"};
    words.insert(words.end(), more.begin(), more.end());
    const Answer answer = run(words);
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out)["rows"][0];
  };
  const json row = row_of({});
  BOOST_TEST(row["knobs"]["dp"] == 16);
  BOOST_TEST(row == row_of({"--gpus", "16"}));
  const std::vector<std::string> plan = {
      "plan",  "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--top", "1",
      "--fix", "tp=1",    "--fix",         "pp=1",       "--format", "json",  "--against"};
  const auto with = [&](const char* run_of_today) {
    std::vector<std::string> words = plan;
    words.emplace_back(run_of_today);
    return words;
  };
  const Answer answer = run(with(command.c_str()));
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  const json document = json::parse(answer.out);
  BOOST_TEST(document["against"]["knobs"]["dp"] == 16);
  const json& first = document["plans"][0]["knobs"];
  BOOST_TEST(first["dp"].get<int>() * first["cp"].get<int>() == 16);
  // Where it says none.
  constexpr const char* kWithoutRanks =
      "pretrain_gpt.py --bf16 --expert-model-parallel-size 16 --micro-batch-size 1";
  check_refused(
      {"estimate", "--run", kWithoutRanks, "--model", "qwen3-30b-a3b", "--hardware", "h100-80g"}, 2,
      {"does not say how many ranks it has, and needs 16 at least: --gpus tells"});
  check_refused(with(kWithoutRanks), 2, {"--against needs --gpus"});
}

// Other commands do without these: they run on the machine.
BOOST_FIXTURE_TEST_CASE(a_machine_without_figures_is_refused, Cli) {
  const std::string file = folder.file("machine.json");
  for (const char* key : {"memory_bytes", "peak_flops_per_s", "memory_bytes_per_s"}) {
    json machine = spec::to_json(*machine_of("h100-80g", 8));
    machine.erase(key);
    tests::write_text(file, machine.dump());
    const std::string named = std::string("'") + key + "'";
    check_refused({"plan", "--model", "llama3-8b", "--hardware", file, "--gpus", "8"}, 2,
                  {"machine.json", named});
    check_refused({"estimate", "--run", "pretrain_gpt.py --tensor-model-parallel-size 1", "--model",
                   "llama3-8b", "--hardware", file, "--gpus", "8"},
                  2, {"machine.json", named});
  }
}

// 56 devices: with a power of two of sequences replicas could not be a multiple of 7.
BOOST_FIXTURE_TEST_CASE(the_usual_batch_is_one_that_replicas_share, Cli) {
  const Answer answer = run({"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus",
                             "56", "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  bool has_sevens = false;
  const json document = json::parse(answer.out);
  for (const json& plan : document["plans"]) {
    has_sevens = has_sevens || plan["knobs"]["dp"].get<int>() % 7 == 0;
  }
  BOOST_TEST(has_sevens);
}

BOOST_FIXTURE_TEST_CASE(a_value_that_is_not_searched_is_told, Cli) {
  // It breaks no rule: 3 sequences each of 8 replicas divide 48.
  check_refused({"plan", "--model", "qwen3-30b-a3b", "--hardware", "h100-80g", "--gpus", "8",
                 "--gbs", "48", "--fix", "micro_batch_size=3"},
                2, {"none that is searched has micro_batch_size=3"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
