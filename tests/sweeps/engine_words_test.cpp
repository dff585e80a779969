// Trials of somebody else's engine in its own words: what is asked of the user names settings as
// the user's framework spells them.
#include "sweeps/adapters/engine_words.h"

#include <boost/test/unit_test.hpp>
#include <memory>

#include "sweeps/adapters/engine_space.h"
#include "sweeps/adapters/trial_settings.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
BOOST_AUTO_TEST_SUITE(words_of_engines)

namespace {

using spec::dialects::Dialect;

/// A run whose command says neither its global batch nor how many ranks it has.
UserRun run_without_batch(Dialect dialect, const std::string& command) {
  UserRun run;
  run.dialect = dialect;
  run.config = spec::dialects::import_run(command, dialect);
  run.sweep.engine.run = command + " {flags}";
  run.sweep.space["micro_batch_size"] = {"1", "2"};
  return run;
}

std::string unsaid_batch(const UserRun& run) {
  spec::dialects::RunConfig config = run.config;
  config.knobs.micro_batch_size *= 2;
  return unsayable(run, config, settings_of(run));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_batch_that_is_not_said_is_asked_for_in_the_words_of_the_framework) {
  UserRun of_megatron = run_without_batch(
      Dialect::megatron_lm, "pretrain_gpt.py --tensor-model-parallel-size 1 --micro-batch-size 2");
  of_megatron.config.global_batch_size = 0;
  const std::string megatron = unsaid_batch(of_megatron);
  BOOST_TEST(tests::contains(megatron, "global_batch_unsaid: "), megatron);
  BOOST_TEST(tests::contains(megatron, "add --global-batch-size to it"), megatron);

  UserRun of_titan = run_without_batch(Dialect::torchtitan,
                                       "python train.py --training.local_batch_size 2 "
                                       "--training.seq_len 4096");
  of_titan.config.global_batch_size = 0;
  const std::string titan = unsaid_batch(of_titan);
  BOOST_TEST(tests::contains(titan, "add --training.global_batch_size to it"), titan);
}

BOOST_AUTO_TEST_CASE(what_ends_a_run_is_named_as_its_framework_does) {
  BOOST_TEST(total_steps_setting(Dialect::megatron_lm) == "--train-iters");
  BOOST_TEST(total_steps_setting(Dialect::megatron_bridge) == "train.train_iters");
  BOOST_TEST(total_steps_setting(Dialect::primus) == "train_iters");
  // A trial sets it itself.
  BOOST_TEST(total_steps_setting(Dialect::torchtitan).empty());
  BOOST_TEST(trial_steps_setting(Dialect::torchtitan) == "training.steps");
}

// The user's engine may be of another release than the one whose rules are known.
BOOST_AUTO_TEST_CASE(a_sweep_says_whose_rules_it_keeps) {
  const UserRun run = run_without_batch(
      Dialect::megatron_lm, "pretrain_gpt.py --tensor-model-parallel-size 1 --micro-batch-size 2");
  const std::string said = EngineSpace(std::make_shared<const UserRun>(run)).remark();
  const spec::dialects::DialectRow& row = spec::dialects::dialect_row(Dialect::megatron_lm);
  BOOST_TEST(tests::contains(said, fmt::format("are those of {} {}.", row.title, row.release)),
             said);
  // Nobody knows the words of other commands, nor their rules.
  BOOST_TEST(EngineSpace(std::make_shared<const UserRun>()).remark().empty());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
