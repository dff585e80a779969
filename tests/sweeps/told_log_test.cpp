// Which logs moetune tell takes as those of the command that was named: by their framework, their
// steps and their end, as there is no exit code.
#include "sweeps/adapters/told_log.h"

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "sweeps/adapters/engine_result.h"
#include "sweeps/runs/echoed_config.h"
#include "tests/runs/golden_logs.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(told_logs)

namespace {

using spec::dialects::Dialect;

const std::string kEnd = "[exiting program at iteration 6] datetime: 2026-03-04 05:07:00\n";
const std::string kNoMemory =
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n";

struct Told {
  explicit Told(std::optional<Dialect> dialect, int64_t num_steps = 6) {
    run.dialect = dialect;
    run.sweep.engine.run = "./train.sh";  // which may say any size
    request.spec.num_warmup_steps = 1;
    request.spec.num_steps = num_steps - 1;
  }
  /// Why it is refused; empty: it is taken.
  [[nodiscard]] std::string refusal(const RunFacts& facts,
                                    std::optional<int> exit_code = {}) const {
    try {
      check_told_run(run, facts, "LOG");
      check_told_trial(run, request, facts, "LOG", exit_code);
    } catch (const base::UsageError& error) {
      return error.what();
    }
    return {};
  }
  [[nodiscard]] std::string refusal(const std::string& log,
                                    std::optional<int> exit_code = {}) const {
    return refusal(golden_logs::facts_of(log), exit_code);
  }
  UserRun run;
  tuner::TrialRequest request;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Lines of Megatron-LM, each with DeepSpeed's about the same step behind it.
std::string megatron_on_deepspeed(int num_steps) {
  std::string text;
  for (int step = 1; step <= num_steps; ++step) {
    text += golden_logs::megatron_step(step);
    text += fmt::format(
        "[2026-03-04 05:06:{:02},089] [INFO] [logging.py:128:log_dist] [Rank 0] step={}, "
        "skipped=0, "
        "lr=[2e-05], mom=[(0.9, 0.95)]\n",
        step, step);
  }
  return text;
}

}  // namespace

// Whatever a framework prints, its own engine's sweep takes: as long as the log shows an end.
BOOST_AUTO_TEST_CASE(golden_logs_are_taken_by_the_engine_that_printed_them) {
  int num_taken = 0;
  for (const std::string& name : golden_logs::all_names()) {
    if (name.find('/') != std::string::npos) continue;  // of one rank, a part of its run
    const RunFacts facts = golden_logs::facts_of(golden_logs::text_of(name));
    const auto dialect = dialect_of(facts.framework);
    const int64_t made = steps_made(facts);
    const Told own(dialect, std::max<int64_t>(made, 2));
    const std::string refusal = own.refusal(facts);
    BOOST_TEST(
        has(refusal, "without an end") == (dialect && facts.status == ForeignStatus::truncated),
        name << ": " << refusal);
    if (facts.status == ForeignStatus::truncated) continue;
    BOOST_TEST(refusal == "", name << ": " << refusal);
    num_taken += refusal.empty() ? 1 : 0;
    // Of a failure there may be fewer steps than asked for, of a good end not.
    const std::string of_longer = Told(dialect, made + 20).refusal(facts);
    BOOST_TEST(of_longer.empty() == (facts.status != ForeignStatus::ok || !dialect),
               name << ": " << of_longer);
  }
  BOOST_TEST(num_taken > 40);
}

BOOST_AUTO_TEST_CASE(a_log_of_another_framework_is_another_run) {
  const auto golden = [](const char* name) { return golden_logs::text_of(name); };
  BOOST_TEST(has(Told(Dialect::megatron_lm, 40).refusal(golden("deepspeed.log")),
                 "LOG: this log is of deepspeed, the sweep's engine is megatron-lm; nothing was "
                 "stored"));
  // Also one that failed, whatever the command ended with.
  const std::string failed =
      "[rank0]:[titan] 2026-03-04 05:06:00,089 - root - INFO - Building device mesh with "
      "parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1, ep=1, etp=1\n" +
      kNoMemory;
  BOOST_TEST(has(Told(Dialect::megatron_lm).refusal(failed, 1), "this log is of torchtitan"));
  BOOST_TEST(Told(Dialect::torchtitan).refusal(failed, 1) == "");
  BOOST_TEST(has(Told(Dialect::megatron_lm, 5).refusal(golden("primus.log")), "is of primus"));
  BOOST_TEST(has(Told(Dialect::megatron_bridge).refusal(golden("nemo.log")), "is of nemo"));
  // Primus and Megatron-Bridge start others, whose lines may be all that is left of the log.
  const std::string megatron = golden_logs::megatron_steps(1, 6) + kEnd;
  BOOST_TEST(Told(Dialect::primus).refusal(megatron) == "");
  BOOST_TEST(Told(Dialect::megatron_bridge).refusal(megatron) == "");
  BOOST_TEST(has(Told(Dialect::torchtitan).refusal(megatron), "is of megatron-lm"));
  BOOST_TEST(Told(Dialect::primus, 40).refusal(golden("torchtitan.log")) == "");
  // Megatron-LM above DeepSpeed is Megatron-LM.
  BOOST_TEST(Told(Dialect::megatron_lm).refusal(megatron_on_deepspeed(6) + kEnd) == "");
  BOOST_TEST(has(Told(Dialect::megatron_lm).refusal(megatron_on_deepspeed(6)), "without an end"));
  // A command of nobody's dialect may print what it wants.
  BOOST_TEST(Told({}, 5).refusal(golden("primus.log")) == "");
}

BOOST_AUTO_TEST_CASE(a_log_without_an_end_needs_the_exit_code) {
  const Told told(Dialect::megatron_lm);
  const std::string steps = golden_logs::megatron_steps(1, 6);
  const std::string refusal = told.refusal(steps);
  BOOST_TEST(has(refusal,
                 "LOG: the log stops after step 6 of 100, without an end or a failure; nothing was "
                 "stored"),
             refusal);
  BOOST_TEST(has(refusal, "--exit-code 0 where it ended well"), refusal);
  BOOST_TEST(told.refusal(steps + kEnd) == "");
  BOOST_TEST(told.refusal(steps, 0) == "");
  BOOST_TEST(told.refusal(steps, 137) == "");
  BOOST_TEST(told.refusal(steps + kNoMemory) == "");
  // As many steps as the run makes of itself are an end.
  BOOST_TEST(Told(Dialect::megatron_lm, 100).refusal(golden_logs::megatron_steps(1, 100)) == "");
  // Before the first step, too.
  BOOST_TEST(
      has(told.refusal("using world size: 8, data-parallel size: 8, context-parallel size: "
                       "1, tensor-model-parallel size: 1, pipeline-model-parallel size: 1\n"),
          "stops before the first step"));
  // DeepSpeed marks no end: the steps of a trial are one.
  const std::string deepspeed = golden_logs::text_of("deepspeed.log");
  BOOST_TEST(Told({}, 40).refusal(deepspeed) == "");
  BOOST_TEST(has(Told({}, 50).refusal(deepspeed), "the log stops after step 40"));
  BOOST_TEST(Told({}, 50).refusal(deepspeed, 0) == "");
}

BOOST_AUTO_TEST_CASE(a_log_of_another_number_of_steps_is_another_run) {
  const std::string ended = golden_logs::megatron_steps(1, 6) + kEnd;
  const std::string failed = golden_logs::megatron_steps(1, 6) + kNoMemory;
  for (const std::optional<int> code : {std::optional<int>(), std::optional<int>(0)}) {
    BOOST_TEST(has(Told(Dialect::megatron_lm, 5).refusal(ended, code),
                   "this run made 6 steps, the command makes 5; nothing was stored"));
    BOOST_TEST(has(Told(Dialect::megatron_lm, 8).refusal(ended, code),
                   "this run ended after 6 of 8 steps; nothing was stored"));
  }
  BOOST_TEST(has(Told(Dialect::megatron_lm, 200).refusal(ended),
                 "ended after 6 of 200 steps: --train-iters is 100, raise it"));
  // One that failed stopped somewhere, but not behind the end.
  BOOST_TEST(Told(Dialect::megatron_lm, 8).refusal(failed) == "");
  BOOST_TEST(Told(Dialect::megatron_lm, 8).refusal(ended, 1) == "");
  BOOST_TEST(has(Told(Dialect::megatron_lm, 5).refusal(failed), "this run made 6 steps"));
  // Who was not told how many steps to make makes its own number.
  BOOST_TEST(Told({}, 5).refusal(ended) == "");
  Told asked({}, 5);
  asked.run.sweep.engine.run = "./train.sh --steps {steps}";
  BOOST_TEST(has(asked.refusal(ended), "this run made 6 steps, the command makes 5"));
}

// A worker fails, and all start again from a checkpoint: the run has come to its end.
BOOST_AUTO_TEST_CASE(a_run_that_started_again_has_made_the_steps_before) {
  const std::string failed = golden_logs::megatron_steps(1, 4) + "[rank3]: RuntimeError: broken\n";
  const Told told(Dialect::megatron_lm);
  BOOST_TEST(told.refusal(failed + golden_logs::megatron_steps(3, 6) + kEnd) == "");
  BOOST_TEST(has(told.refusal(failed + golden_logs::megatron_steps(3, 5) + kEnd),
                 "this run ended after 5 of 6 steps"));
  BOOST_TEST(has(told.refusal(golden_logs::megatron_steps(3, 6) + kEnd),
                 "this run ended after 4 of 6 steps"));
}

// The last line of those that stand every so many steps says nothing of the steps behind it.
BOOST_AUTO_TEST_CASE(steps_between_lines_may_have_been_made) {
  std::string log;
  for (const int step : {10, 20, 30, 40}) log += golden_logs::megatron_step(step);
  const Told told({}, 45);
  UserRun run = told.run;
  run.sweep.engine.run = "./train.sh --steps {steps}";
  const RunFacts facts = golden_logs::facts_of(log);
  BOOST_TEST(early_end(run, told.request, facts) == "");
  BOOST_TEST(early_end(run, Told({}, 50).request, facts) == "ended after 40 of 50 steps");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
