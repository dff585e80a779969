// What the log of a run of somebody else's engine makes of a trial: the gate of losses, and times
// and tokens that come from the log before they come from the settings.
#include "sweeps/adapters/engine_result.h"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <functional>

#include "sweeps/adapters/echo_check.h"
#include "tests/runs/golden_logs.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(engine_results)

namespace {

using spec::dialects::Dialect;

constexpr int kSteps = 6;

/// Six lines of torchtitan, without the loss where `has_loss` says so.
std::string titan_log(const std::function<bool(int)>& has_loss, const std::string& more = "") {
  std::string text = more;
  for (int step = 1; step <= kSteps; ++step) {
    text += fmt::format("[rank0]:[titan] 2026-03-04 05:06:{:02},089 - root - INFO - step: {:2}",
                        step, step);
    if (has_loss(step)) text += fmt::format("  loss: {:8.5f}", 10.0 - step);
    text += "  grad_norm:  1.2500  memory: 61.25GiB(77.43%)  tps: 5,000  tflops: 210.50\n";
  }
  return text;
}

bool always(int /*step*/) { return true; }

struct TrialOfTitan {
  TrialOfTitan() {
    run.dialect = Dialect::torchtitan;
    run.world_size = 8;
    run.config.seq_length = 2048;  // as torchtitan has it where nobody says it
    run.config.global_batch_size = 8;
    request.spec.training.global_batch_size = 8;
    request.spec.num_warmup_steps = 1;
    request.spec.num_steps = 4;
    for (int step = 1; step <= kSteps; ++step) {
      request.spec.reference_loss.push_back(10.0 - step);
    }
  }
  [[nodiscard]] store::TrialResult result(const std::string& log) const {
    EngineLeavings left;
    left.facts = golden_logs::facts_of(log);
    return engine_result(run, request, left);
  }
  UserRun run;
  tuner::TrialRequest request;
};

/// A run of Megatron-LM by its flags, and what its log may echo.
constexpr const char* kFlags =
    "--bf16 --micro-batch-size 1 --global-batch-size 64 --seq-length 4096 --num-experts 8";
UserRun run_of(const std::string& command, Dialect dialect = Dialect::megatron_lm) {
  UserRun run;
  run.dialect = dialect;
  run.world_size = 8;
  run.sweep.engine.run = command;
  run.config = spec::dialects::import_run(command, dialect, {.world_size = 8});
  return run;
}

RunFacts dumped(const std::vector<std::pair<std::string, std::string>>& settings) {
  std::string text = "------------------------ arguments ------------------------\n";
  for (const auto& [name, value] : settings) {
    text += fmt::format("  {} {} {}\n", name, std::string(48 - name.size(), '.'), value);
  }
  text += "-------------------- end of arguments ---------------------\n";
  return golden_logs::facts_of(text + golden_logs::megatron_steps(1, kSteps));
}

std::string notes_of(const store::TrialResult& result) {
  std::string notes;
  for (const store::NamedText& text : result.texts) notes += text.value + "\n";
  return notes;
}

}  // namespace

BOOST_AUTO_TEST_CASE(losses_that_only_the_baseline_shows_are_wrong) {
  const TrialOfTitan trial;
  BOOST_TEST(trial.result(titan_log(always)).status == "ok");
  // A line that another process has cut.
  BOOST_TEST(trial.result(titan_log([](int step) { return step != 4; })).status == "ok");
  const store::TrialResult diverged = trial.result(titan_log([](int step) { return step < 4; }));
  BOOST_TEST(diverged.status == "wrong");
  BOOST_TEST(diverged.reason.find("show no loss") != std::string::npos, diverged.reason);
  BOOST_TEST(trial.result(titan_log([](int) { return false; })).status == "wrong");
}

BOOST_AUTO_TEST_CASE(losses_are_compared_by_lines) {
  // A line every ten steps, as the baseline had: what is stored of it has no gaps.
  TrialOfTitan trial;
  trial.request.spec.reference_loss = {9.0, 8.0, 7.0, 6.0, 5.0};
  std::string log;
  for (const auto& [step, loss] : {std::pair(1, 9.0), {10, 8.0}, {20, 7.0}, {30, 6.0}, {40, 3.0}}) {
    log += fmt::format(
        "[titan] 2026-03-04 05:06:{:02},089 - root - INFO - step: {:2}  loss: {:.5f}"
        "  tps: 5,000\n",
        step, step, loss);
  }
  // (9 + 8 + 7 + 6 + 3) / 5 = 6.6 for 7.
  trial.run.sweep.engine.loss_band_ratio = 0.05;
  const store::TrialResult off = trial.result(log);
  BOOST_TEST(off.status == "wrong");
  BOOST_TEST(off.reason.find("loss 6.6000 in the mean of 5") != std::string::npos, off.reason);
  trial.run.sweep.engine.loss_band_ratio = 0.07;
  BOOST_TEST(trial.result(log).status == "ok");
}

BOOST_AUTO_TEST_CASE(a_log_counts_more_than_the_settings) {
  const TrialOfTitan trial;
  // 8 * 2048 tokens by 5000 of 8 devices.
  const store::TrialResult by_settings = trial.result(titan_log(always));
  BOOST_TEST(by_settings.step_ns.value_or(0) == 409'600'000);
  // 8 * 8192 tokens.
  const store::TrialResult by_log = trial.result(titan_log(
      always,
      "[titan] 2026-03-04 05:06:00,089 - root - INFO - Trainer is initialized with local batch "
      "size 1, global batch size 8, gradient accumulation steps 1, sequence length 8192, total "
      "steps 6 (warmup 2)\n"));
  BOOST_TEST(by_log.step_ns.value_or(0) == 1'638'400'000);
  BOOST_TEST(by_log.tokens_per_s.value_or(0) == 40'000.0, boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(what_the_log_has_otherwise_than_the_command_is_told) {
  TrialOfTitan trial;
  trial.run.dialect = Dialect::megatron_lm;
  trial.run.config.knobs.tp = 4;
  trial.request.spec.reference_loss.clear();
  const auto notes = [&](int tp) {
    std::string text;
    for (const auto& [name, line] :
         trial
             .result(fmt::format("------------------------ arguments ------------------------\n"
                                 "  world_size ...................................... 8\n"
                                 "  micro_batch_size ................................ 1\n"
                                 "  seq_length ...................................... 2048\n"
                                 "  tensor_model_parallel_size ...................... {}\n"
                                 "-------------------- end of arguments ---------------------\n",
                                 tp) +
                     golden_logs::megatron_steps(1, kSteps))
             .texts) {
      text += line + "\n";
    }
    return text;
  };
  BOOST_TEST(notes(2).find("tp: the command says 4, the log has 2") != std::string::npos, notes(2));
  BOOST_TEST(notes(4).find("the log has") == std::string::npos, notes(4));
}

BOOST_AUTO_TEST_CASE(a_run_of_other_sizes_is_another_run) {
  TrialOfTitan trial;
  trial.request.spec.reference_loss.clear();
  trial.run = run_of("torchrun pretrain_gpt.py " + std::string(kFlags));
  EngineLeavings left;
  const auto result_of = [&](const RunFacts& facts) {
    left.facts = facts;
    return engine_result(trial.run, trial.request, left);
  };
  // What the command does not state is another release's affair, but for sizes that are 1.
  const RunFacts same = dumped({{"micro_batch_size", "1"},
                                {"global_batch_size", "64"},
                                {"seq_length", "4096"},
                                {"num_experts", "8"},
                                {"num_layers", "32"},
                                {"pipeline_model_parallel_size", "1"},
                                {"virtual_pipeline_model_parallel_size", "None"},
                                {"expert_tensor_parallel_size", "1"},
                                {"recompute_granularity", "None"}});
  BOOST_TEST(result_of(same).status == "ok", result_of(same).reason);
  const RunFacts other = dumped({{"micro_batch_size", "1"},
                                 {"global_batch_size", "256"},
                                 {"seq_length", "4096"},
                                 {"num_experts", "64"},
                                 {"num_layers", "32"},
                                 {"pipeline_model_parallel_size", "2"},
                                 {"virtual_pipeline_model_parallel_size", "2"},
                                 {"expert_model_parallel_size", "4"},
                                 {"recompute_granularity", "full"}});
  const std::string wrong =
      "--pipeline-model-parallel-size: asked 1 (not said), the log has 2; "
      "--num-virtual-stages-per-pipeline-rank: asked 1 (not said), the log has 2; "
      "--expert-model-parallel-size: asked 1 (not said), the log has 4; "
      "--global-batch-size: asked 64, the log has 256; --num-experts: asked 8, the log has 64";
  BOOST_TEST(size_mismatch(trial.run, other) == wrong);
  const store::TrialResult refused = result_of(other);
  BOOST_TEST(refused.status == "failed");
  BOOST_TEST(refused.reason ==
             "the run's own configuration is another than the one asked for: " + wrong);
  BOOST_TEST(notes_of(refused).find(
                 "--recompute-granularity: the command does not say it, the log has full") !=
             std::string::npos);
  // An axis is compared by the trial's value, not by that of the command.
  trial.run.sweep.space = {{"pp", {"1", "2"}}, {"ep", {"4"}}};
  BOOST_TEST(size_mismatch(trial.run, other) ==
             "--global-batch-size: asked 64, the log has 256; --num-experts: asked 8, the log has "
             "64");
}

// Also where it failed, and where it echoes no configuration.
BOOST_AUTO_TEST_CASE(lines_of_a_log_say_sizes_as_well) {
  const std::string flags =
      "torchrun pretrain_gpt.py --bf16 --micro-batch-size 1 --seq-length 4096 ";
  const RunFacts facts = golden_logs::facts_of(
      "using world size: 8, data-parallel size: 4, context-parallel size: 1, "
      "tensor-model-parallel size: 2, pipeline-model-parallel size: 1\n" +
      golden_logs::megatron_steps(1, kSteps) +
      "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n");
  BOOST_TEST((facts.status == ForeignStatus::oom));
  UserRun run = run_of(flags + "--global-batch-size 128 --train-iters 500");
  BOOST_TEST(size_mismatch(run, facts) ==
             "--tensor-model-parallel-size: asked 1 (not said), the log has 2; "
             "--global-batch-size: asked 128, the log has 64; --train-iters: asked 500, the log "
             "has 100");
  BOOST_TEST(size_mismatch(run_of(flags + "--tensor-model-parallel-size 2 --global-batch-size 64 "
                                          "--train-iters 100"),
                           facts) == "");
  // Of a batch that grows no line has the one at its end.
  BOOST_TEST(size_mismatch(run_of(flags + "--tensor-model-parallel-size 2 --global-batch-size 128 "
                                          "--rampup-batch-size 64 64 1000"),
                           facts) == "");
  // Axes, by the trial's value.
  TrialOfTitan trial;
  run.sweep.space = {{"tp", {"1", "2", "4"}}, {"micro_batch_size", {"1", "2"}}};
  trial.request.settings = {{"tp", "4"}, {"micro_batch_size", "2"}};
  BOOST_TEST(echo_mismatch(run, trial.request, facts) == "tp: asked 4, the log has 2");
  trial.request.settings = {{"tp", "2"}, {"micro_batch_size", "2"}};
  BOOST_TEST(echo_mismatch(run, trial.request, facts) == "");
}

BOOST_AUTO_TEST_CASE(a_run_of_another_length_is_another_run) {
  TrialOfTitan trial;
  trial.run = run_of("torchrun pretrain_gpt.py " + std::string(kFlags));
  const RunFacts facts = dumped({{"exit_interval", "50"}});
  trial.request.spec.num_steps = 40;  // and one of warm-up
  BOOST_TEST(echo_mismatch(trial.run, trial.request, facts) ==
             "--exit-interval: asked 41, the log has 50");
  trial.request.spec.num_steps = 49;
  BOOST_TEST(echo_mismatch(trial.run, trial.request, facts) == "");
  trial.request.spec.num_steps = 5;  // it has made six
  BOOST_TEST(echo_mismatch(trial.run, trial.request, facts) == "");
}

BOOST_AUTO_TEST_CASE(sizes_that_may_be_stated_elsewhere_are_only_noted) {
  const RunFacts facts =
      dumped({{"global_batch_size", "64"}, {"pipeline_model_parallel_size", "2"}});
  TrialOfTitan trial;
  trial.request.spec.reference_loss.clear();
  for (const std::string command : {"bash train.sh ", "torchrun pretrain_gpt.py $MORE ",
                                    "torchrun pretrain_gpt.py --yaml-cfg more.yaml ",
                                    "torchrun pretrain_gpt.py --data-path $MORE "}) {
    trial.run = run_of(command + kFlags);
    BOOST_TEST(size_mismatch(trial.run, facts) == "");
    EngineLeavings left;
    left.facts = facts;
    const store::TrialResult result = engine_result(trial.run, trial.request, left);
    BOOST_TEST(result.status == "ok", result.reason);
    BOOST_TEST(notes_of(result).find("--pipeline-model-parallel-size: the command does not say it, "
                                     "the log has 2") != std::string::npos,
               notes_of(result));
  }
  // Recipes have sizes of their own; what is stated beside one counts.
  const UserRun bridge = run_of(
      "torchrun run.py --recipe llama3_8b train.micro_batch_size=1 train.global_batch_size=64",
      Dialect::megatron_bridge);
  const std::string ruler(70, '=');
  const RunFacts summary = golden_logs::facts_of(
      fmt::format("{0}\nConfiguration Summary (Non-Default Values vs Megatron Core)\n{0}\n\n"
                  "[model] Non-default values (vs Mcore TransformerConfig):\n"
                  "  pipeline_model_parallel_size: 2  (Mcore default: 1)\n\n"
                  "Other Configuration Values:\n\n"
                  "[train]:\n  global_batch_size: 128\n  micro_batch_size: 1\n\n{0}\n",
                  ruler) +
      golden_logs::megatron_steps(1, kSteps));
  BOOST_TEST(size_mismatch(bridge, summary) ==
             "train.global_batch_size: asked 64, the log has 128");
}

BOOST_AUTO_TEST_CASE(a_run_that_ends_by_its_own_setting_says_which) {
  TrialOfTitan trial;
  trial.request.spec.reference_loss.clear();
  trial.run = run_of("torchrun pretrain_gpt.py " + std::string(kFlags));
  EngineLeavings left;
  left.facts = golden_logs::facts_of(golden_logs::megatron_steps(1, kSteps));  // of 100
  trial.request.spec.num_steps = 50;
  BOOST_TEST(engine_result(trial.run, trial.request, left).reason == "ended after 6 of 51 steps");
  trial.request.spec.num_steps = 200;
  BOOST_TEST(engine_result(trial.run, trial.request, left).reason ==
             "ended after 6 of 201 steps: --train-iters is 100, raise it");
}

BOOST_AUTO_TEST_CASE(tokens_that_nobody_has_told_are_not_counted) {
  TrialOfTitan trial;
  trial.run.dialect.reset();
  trial.run.config = {};
  trial.run.world_size = 0;
  trial.request.spec.training.seq_length = 1;
  trial.request.spec.reference_loss.clear();
  const std::string steps = golden_logs::megatron_steps(1, kSteps);
  const store::TrialResult unknown = trial.result(steps);
  BOOST_TEST(unknown.status == "ok");
  BOOST_TEST(unknown.step_ns.value_or(0) == 1'000'000'000);
  BOOST_TEST(!unknown.tokens_per_s.has_value());
  // 64 sequences a step stand on its lines, their length in the command that the shell shows.
  const store::TrialResult known = trial.result(
      "+ torchrun --nproc_per_node=8 pretrain_gpt.py --seq-length 4096 --micro-batch-size 2\n" +
      steps);
  BOOST_TEST(known.tokens_per_s.value_or(0) == 64.0 * 4096, boost::test_tools::tolerance(1e-9));
  // Without the ranks a rate of each gives no time.
  BOOST_TEST(trial.result(titan_log(always)).status == "failed");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
