// moetune tell as a person types it, with a log that is not what it should be. The engine is
// tests/fakes/pretrain_gpt.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "profiler/store/store.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {

namespace {

using nlohmann::json;

const std::string kToldEngine =
    std::string(MOETUNE_SOURCE_DIR) + "/tests/fakes/pretrain_gpt/pretrain_gpt";
const std::string kToldCommand = kToldEngine +
                                 " --bf16 --micro-batch-size 1 --global-batch-size 64 --seq-length "
                                 "4096 --train-iters 500 ";

/// A sweep of trials of eleven steps, and the logs that people bring.
struct Tell : tests::Cli {
  explicit Tell(const std::string& dialect = "megatron-lm", const std::string& axis = "tp") {
    const std::string steps = dialect == "command" ? "--exit-interval {steps} " : "";
    json settings = {{"dialect", dialect}, {"run", kToldCommand + steps + "{flags}"}, {"gpus", 8}};
    tests::write_text(
        sweep,
        json{{"name", "told"}, {"engine", settings}, {"space", {{axis, {2}}}}, {"num_steps", 8}}
            .dump());
  }
  /// Writes the log of the command with `flags`, through a filter of the shell.
  std::string made(const std::string& name, const std::string& flags,
                   const std::string& filter = "cat") const {
    const std::string path = folder.file(name);
    const std::string command =
        fmt::format("({}{}) 2>&1 | {} > {}", kToldCommand, flags, filter, path);
    BOOST_TEST(std::system(command.c_str()) == 0);
    return path;
  }
  [[nodiscard]] std::vector<std::string> told(const std::string& log) const {
    return {"tell", sweep, log, "--db", db};
  }
  [[nodiscard]] size_t num_trials() const {
    return store::Store::open_read_only(db).list_trials().size();
  }
  std::string sweep = folder.file("told.json");
};

struct TellOfCommand : Tell {
  TellOfCommand() : Tell("command", "--micro-batch-size") {}
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(tell, Tell)

// Nobody has seen how the command ended: the log says it, or whoever brings it.
BOOST_AUTO_TEST_CASE(a_log_without_its_end_is_not_taken) {
  check_refused(told(made("cut.log", "--exit-interval 11", "sed '$d'")), 2,
                {"cut.log: the log stops after step 11 of 500, without an end or a failure",
                 "nothing was stored", "--exit-code 0 where it ended well"});
  check_refused(told(made("long.log", "--exit-interval 20")), 2,
                {"this run made 20 steps, the command makes 11"});
  check_refused(told(made("short.log", "--exit-interval 5")), 2,
                {"--exit-interval: asked 11, the log has 5"});
  BOOST_TEST(num_trials() == 0U);
  const std::string titan = std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/logs/torchtitan.log";
  check_refused(told(titan), 2, {"this log is of torchtitan, the sweep's engine is megatron-lm"});
  BOOST_TEST(num_trials() == 0U);
  // The exit code is an end. Memory that was not logged is not told.
  std::vector<std::string> words =
      told(made("open.log", "--exit-interval 11", "grep -v 'memory (MB)' | sed '$d'"));
  words.insert(words.end(), {"--exit-code", "0"});
  const tests::Answer answer = run(words);
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
  BOOST_TEST(tests::contains(answer.out,
                             "best in short trials: trial 1, 680 ms per step, 386k tokens/s\n"),
             answer.out);
  BOOST_TEST(num_trials() == 1U);
}

// A run that a queue has ended says nothing of its settings: the trial waits for another one.
BOOST_AUTO_TEST_CASE(a_run_that_was_stopped_from_outside_is_no_trial) {
  check_refused(told(made("one.log", "--exit-interval 11 --planted-preemption")), 15,
                {"stopped from outside", "PREEMPTION"});
  BOOST_TEST(num_trials() == 0U);
  BOOST_TEST(tests::contains(run({"watch", db}).out, "sweep 1 told: waiting for tell\n"));
  const tests::Answer answer = run(told(made("two.log", "--exit-interval 11")));
  BOOST_TEST(answer.code == 0, answer.err);
  BOOST_TEST(num_trials() == 1U);
}

BOOST_AUTO_TEST_CASE(a_sweep_that_has_failed_takes_no_log) {
  const tests::Answer failed = run({"tell", sweep, "--exit-code", "1", "--db", db});
  BOOST_TEST(failed.code == 12, failed.err);
  check_refused(told(made("one.log", "--exit-interval 11")), 2,
                {"the sweep has failed and waits for no trial; nothing was stored"});
}

// The wall is in the traces: whoever forgets them has no other chance.
BOOST_AUTO_TEST_CASE(traces_are_asked_for_where_the_run_makes_them) {
  int num_told = 0;
  std::string phase;
  while (phase != "profile" && ++num_told < 10) {
    const json next =
        json::parse(run({"sweep", sweep, "--db", db, "--dry-run", "--format", "json"}).out)["next"];
    BOOST_TEST_REQUIRE(next.is_object());
    phase = next["phase"];
    const std::string shown = run({"sweep", sweep, "--db", db, "--dry-run"}).out;
    BOOST_TEST(shown.ends_with(" LOG... TRACE...\n") == (phase == "profile"), shown);
    const std::string log = folder.file(fmt::format("{}.log", num_told));
    BOOST_TEST(std::system((next["command"].get<std::string>() + " > " + log).c_str()) == 0);
    BOOST_TEST(run(told(log)).code == 0);
  }
  BOOST_TEST(phase == "profile");
  check_refused(told(folder.file(".")), 2, {"already used"});
}

// Its words may mean something else than the framework's: a note, no refusal.
BOOST_FIXTURE_TEST_CASE(what_the_log_of_any_command_has_otherwise_is_noted, TellOfCommand) {
  BOOST_TEST(run(told(made("one.log", "--exit-interval 11"))).code == 0);
  const tests::Answer answer = run(told(made("two.log", "--exit-interval 11")));
  BOOST_TEST(answer.code == 0, answer.err);
  BOOST_TEST(
      tests::contains(run({"show", db, "2"}).out, "--micro-batch-size: asked 2, the log has 1"));
  BOOST_TEST(!tests::contains(run({"show", db, "1"}).out, "the log has"));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
