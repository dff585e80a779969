// What is printed of a sweep over somebody else's engine: why the next command is run, settings in
// its words, and only what its logs tell. The engine is tests/fakes/pretrain_gpt.
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <map>

#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;

/// A sweep of two values of each of two knobs.
struct EngineOutput : tests::Cli {
  EngineOutput() {
    const std::string program =
        std::string(MOETUNE_SOURCE_DIR) + "/tests/fakes/pretrain_gpt/pretrain_gpt";
    const json settings = {
        {"dialect", "megatron-lm"},
        {"run", program + " --bf16 --tensor-model-parallel-size 1 --micro-batch-size "
                          "1 --global-batch-size 64 --seq-length 4096 --train-iters "
                          "500 {flags}"},
        {"gpus", 8}};
    tests::write_text(sweep, json{{"name", "fake"},
                                  {"engine", settings},
                                  {"space",
                                   {{"micro_batch_size", {1, 2}},
                                    {"overlap_grad_reduce", {false, true}},
                                    {"NCCL_ALGO", {"Ring"}}}},
                                  {"num_steps", 8},
                                  {"validate_steps", 12},
                                  {"min_gain_ratio", 0.005}}
                                 .dump());
  }
  json dry_run() {
    const tests::Answer answer = run({"sweep", sweep, "--db", db, "--dry-run", "--format", "json"});
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
    return json::parse(answer.out);
  }
  std::string sweep = folder.file("sweep.json");
};

BOOST_FIXTURE_TEST_SUITE(engine_output, EngineOutput)

BOOST_AUTO_TEST_CASE(each_next_command_says_why_it_is_run) {
  std::map<std::string, std::string> why;  // by title
  for (int i = 0; i < 40; ++i) {
    const json told = dry_run();
    if (told["next"].is_null()) {
      BOOST_TEST(told["status"] == "done");
      break;
    }
    BOOST_TEST(told["status"] == "waiting");
    if (i < 2) {
      const std::string text = run({"sweep", sweep, "--db", db, "--dry-run"}).out;
      BOOST_TEST(text.starts_with("sweep waiting for a trial: 0 trials run, "), text);
      BOOST_TEST(tests::contains(run({"watch", db}).out, "sweep 1 fake: waiting for tell\n"));
      BOOST_TEST(run({"report", db, "--out", folder.file("a.html")}).code == 0);
      BOOST_TEST(tests::contains(tests::read_text(folder.file("a.html")),
                                 "This sweep is <strong>waiting for tell</strong>"));
    }
    const json& next = told["next"];
    why[next["title"]] = next["why"];
    std::filesystem::remove_all(db + ".runs");
    const std::string log = folder.file("told.log");
    BOOST_TEST(std::system((next["command"].get<std::string>() + " > " + log).c_str()) == 0);
    std::vector<std::string> words = {"tell", sweep, log, "--db", db};
    if (std::filesystem::exists(db + ".runs")) words.push_back(db + ".runs");
    BOOST_TEST_REQUIRE(run(words).code == 0);
  }
  const std::map<std::string, std::string> expected = {
      {"the run as it is",
       "The command as it is comes first: all others are compared with its time and losses."},
      {"micro_batch_size 1 -> 2",
       "The space allows this layout or batch size: these come before other settings."},
      {"micro_batch_size 1 -> 2, again",
       "'micro_batch_size 1 -> 2' looks faster than the best so far: it is run again, as that may "
       "be noise."},
      {"the run as it is, again",
       "'micro_batch_size 1 -> 2' looks faster than the best so far: the best so far is run again, "
       "as that may be noise."},
      {"a look into the best so far",
       "A trace of the best so far shows its wall, and so what to change next. Its time is not "
       "compared."},
      {"overlap_grad_reduce false -> true",
       "The wall is communication. Gradients are reduced while the backward pass goes on. At most "
       "74.6 % of the step would be gained."},
      {"NCCL_ALGO as it is -> Ring", "The space allows it, no rule recommends it."},
      {"validation over 12 steps",
       "Nothing else is tried: a long run shows whether speed and losses of the best hold."},
  };
  for (const auto& [title, sentence] : expected) BOOST_TEST(why[title] == sentence, title);
  // Nobody but the user has the command of a run that was told.
  const std::string shown = run({"show", db, "best"}).out;
  BOOST_TEST(tests::contains(shown,
                             "\nSettings that differ from your command\n  --micro-batch-size 2\n"
                             "  --overlap-grad-reduce\n"));
  BOOST_TEST(!tests::contains(shown, "\nCommand"));
}

BOOST_AUTO_TEST_CASE(show_and_the_report_have_the_users_words) {
  const tests::Answer swept = run({"sweep", sweep, "--db", db, "--quiet", "--format", "json",
                                   "--report", folder.file("a.html")});
  BOOST_TEST_REQUIRE(swept.code == 0, swept.err);
  const json settings = json::parse(swept.out)["engine_settings"];
  const tests::Answer answer = run({"show", db, "best"});
  BOOST_TEST(tests::contains(answer.out,
                             "\nSettings that differ from your command\n  --micro-batch-size 2\n"
                             "  --overlap-grad-reduce\n"));
  BOOST_TEST(
      tests::contains(answer.out, "\nCommand, in " +
                                      std::filesystem::path(sweep).parent_path().string() + "\n  "),
      answer.out);
  // In the place of the user's own value, and behind all of them.
  BOOST_TEST(tests::contains(answer.out, "--micro-batch-size 2 --global-batch-size 64 "));
  BOOST_TEST(tests::contains(answer.out, "--overlap-grad-reduce --exit-interval "), answer.out);
  BOOST_TEST(!tests::contains(answer.out, "  command: "));
  BOOST_TEST(!tests::contains(answer.out, " 0 B"), answer.out);
  BOOST_TEST(tests::contains(run({"show", db, "1"}).out,
                             "\nSettings that differ from your command\n  none\n"));
  const json shown = json::parse(run({"show", db, "best", "--format", "json"}).out);
  BOOST_TEST(shown["engine_settings"] == settings);
  for (const json& memory : shown["memory"]) {
    BOOST_TEST(memory["bytes"].is_null() == (memory["group"] != "total"), memory.dump());
  }
  const std::string page = tests::read_text(folder.file("a.html"));
  BOOST_TEST(tests::contains(page, "<pre id=\"copy-flags\" tabindex=\"0\">--micro-batch-size 2\n"));
  BOOST_TEST(tests::contains(page, "% of the step, +"));
  BOOST_TEST(!tests::contains(page, "moetune trial "));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune::sweeps
