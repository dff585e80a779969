// Sweeps over the user's own command: what its text leaves open, which ranks are profiled, and what
// is told of runs whose length or routing is not what a reader would think.
#include <boost/test/unit_test.hpp>
#include <set>

#include "profiler/store/store.h"
#include "sweeps/adapters/engine_words.h"
#include "sweeps/adapters/shell_text.h"
#include "sweeps/adapters/trial_settings.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(user_runs, tests::Cli)

namespace {

using nlohmann::json;

const std::string kFake =
    std::string(MOETUNE_SOURCE_DIR) + "/tests/fakes/pretrain_gpt/pretrain_gpt";
const std::string kBase =
    " --bf16 --tensor-model-parallel-size 1 --micro-batch-size 2 --global-batch-size 64 "
    "--seq-length 4096 --use-distributed-optimizer --train-iters 500 --lr 2e-5";

void write_user_sweep(const tests::Cli& cli, const json& space, const json& engine) {
  json document = {
      {"name", "mine"},       {"engine", {{"dialect", "megatron-lm"}, {"gpus", 8}}},
      {"space", space},       {"num_steps", 8},
      {"validate_steps", 12}, {"budget", {{"max_trials", 20}, {"trial_timeout_s", 20}}}};
  document["engine"].update(engine);
  tests::write_text(cli.folder.file("sweep.json"), document.dump(2));
}

std::string swept(tests::Cli& cli) {
  const tests::Answer answer = cli.run({"sweep", cli.folder.file("sweep.json"), "--db", cli.db});
  BOOST_TEST_REQUIRE(answer.code == 0, answer.err << answer.out);
  return answer.out + answer.err;
}

}  // namespace

// A dense model has no experts that are split as attention is, also where the tokenizer decides
// the vocabulary.
BOOST_AUTO_TEST_CASE(a_dense_command_without_a_vocabulary_tries_tensor_parallelism) {
  const std::string sizes =
      " --num-layers 2 --hidden-size 64 --num-attention-heads 4 --swiglu --normalization RMSNorm "
      "--disable-bias-linear";
  for (const std::string vocabulary :
       {" --tokenizer-type HuggingFaceTokenizer --tokenizer-model llama", " --vocab-size 1000"}) {
    write_user_sweep(*this, {{"tp", {1, 2}}},
                     {{"config", "pretrain_gpt.py" + kBase + sizes + vocabulary},
                      {"run", kFake + kBase + " {flags}"},
                      {"profile", "none"}});
    swept(*this);
    bool has_tried = false;
    for (const store::TrialRow& trial : store::Store::open_read_only(db).list_trials()) {
      BOOST_TEST(trial.status == "ok", vocabulary << ": " << trial.reason);
      const auto tp = std::ranges::find(trial.knobs, "tp", &store::NamedText::name);
      has_tried |= tp != trial.knobs.end() && tp->value == "2";
    }
    BOOST_TEST(has_tried, vocabulary);
    std::filesystem::remove(db);
  }
}

BOOST_AUTO_TEST_CASE(all_ranks_are_profiled_up_to_a_number) {
  BOOST_TEST(profiled_ranks(0) == std::vector<int64_t>{0}, boost::test_tools::per_element());
  BOOST_TEST(profiled_ranks(3) == (std::vector<int64_t>{0, 1, 2}),
             boost::test_tools::per_element());
  BOOST_TEST(profiled_ranks(64).size() == 64u);
  for (const int64_t world : {65, 72, 128, 4096, 16384}) {
    const std::vector<int64_t> ranks = profiled_ranks(world);
    BOOST_TEST(std::set(ranks.begin(), ranks.end()).size() == 64u, world);
    BOOST_TEST(std::ranges::is_sorted(ranks), world);
    BOOST_TEST(ranks[7] == 7, world);
    BOOST_TEST(ranks.back() < world, world);
    // Each stage of a pipeline has one.
    BOOST_TEST(ranks.back() >= world - world / 32, world);
  }
  for (const auto& [dialect, key, value] :
       {std::tuple{spec::dialects::Dialect::megatron_lm, "--profile-ranks", "0 1"},
        std::tuple{spec::dialects::Dialect::megatron_bridge, "profiling.profile_ranks", "[0,1]"},
        std::tuple{spec::dialects::Dialect::primus, "profile_ranks", "[0,1]"}}) {
    const auto settings =
        trial_settings(dialect, {.num_steps = 6, .first_traced = 4, .out = "", .world_size = 2});
    const auto at = std::ranges::find(settings, key, &spec::dialects::UnknownSetting::key);
    BOOST_TEST_REQUIRE((at != settings.end()), key);
    BOOST_TEST(at->value == value);
  }
}

// The stand-in writes the trace of one rank of eight.
BOOST_AUTO_TEST_CASE(ranks_without_a_trace_are_told_beside_the_wall) {
  write_user_sweep(*this, {{"micro_batch_size", {2}}}, {{"run", kFake + kBase + " {flags}"}});
  const std::string told = swept(*this);
  const std::string doubt = "7 of the run's 8 ranks have no trace: waiting for one of them counts";
  BOOST_TEST(tests::contains(told, doubt), told);
  // Of the stand-in's trace, which is shorter than its log's steps.
  BOOST_TEST(tests::contains(told, " The traced step took 161 ms, 0.3 times as long"), told);
  const tests::Answer shown = run({"show", db, "2"});
  BOOST_TEST(tests::contains(shown.out, "--profile-ranks 0 1 2 3 4 5 6 7"), shown.out);
  BOOST_TEST(tests::contains(shown.out, "the wall is communication"), shown.out);
  BOOST_TEST(tests::contains(shown.out, doubt), shown.out);
  BOOST_TEST(run({"report", db, "--out", folder.file("report.html")}).code == 0);
  const std::string page = tests::read_text(folder.file("report.html"));
  BOOST_TEST(tests::contains(page, "ranks have no trace"));
  // Nobody runs one rank alone first.
  BOOST_TEST(!tests::contains(page, "reference run is left out"));
}

// Where the user's own value is a plain word of the same command, else behind it.
BOOST_AUTO_TEST_CASE(a_value_takes_the_place_of_the_users_own) {
  const auto command_of = [&](const std::string& command) {
    UserRun of_user;
    of_user.dialect = spec::dialects::Dialect::megatron_lm;
    of_user.config = spec::dialects::import_run(without_placeholders(command), *of_user.dialect,
                                                {.world_size = 8});
    of_user.world_size = 8;
    of_user.sweep.engine.run = command;
    of_user.sweep.space = {{"micro_batch_size", {"2"}}, {"--lr", {"1e-4"}}};
    tuner::TrialRequest request;
    for (const auto& setting : settings_of(of_user)) request.settings.push_back(setting);
    for (auto& [name, value] : request.settings) {
      if (name == "micro_batch_size") value = "2";
      if (name == "--lr") value = "1e-4";
    }
    request.spec.num_warmup_steps = 3;
    request.num_steps = 8;
    return engine_command(of_user, request, "out").text;
  };
  const std::string end = " --exit-interval 11 --log-interval 1";
  const std::string base = "pretrain_gpt.py --global-batch-size 64";
  BOOST_TEST(command_of(base + " --micro-batch-size 1 --lr 2e-5 {flags}") ==
             base + " --micro-batch-size 2 --lr 1e-4" + end);
  BOOST_TEST(command_of(base + " --micro-batch-size=1 --bf16 {flags} > x 2>&1") ==
             base + " --micro-batch-size=2 --bf16 --lr 1e-4" + end + " > x 2>&1");
  // What stands in front of quotes is left alone.
  BOOST_TEST(command_of(base + " --micro-batch-size 1 --data-path 'a b' {flags}") ==
             base + " --micro-batch-size 1 --data-path 'a b' --micro-batch-size 2 --lr 1e-4" + end);
}

BOOST_AUTO_TEST_CASE(forced_balancing_is_told_wherever_figures_are) {
  const std::string sentence =
      "experts were forced to be balanced: no figure here holds for real routing";
  write_user_sweep(
      *this, {{"micro_batch_size", {2}}},
      {{"run", kFake + kBase + " --moe-router-force-load-balancing {flags}"}, {"profile", "none"}});
  BOOST_TEST(tests::contains(run({"sweep", folder.file("sweep.json"), "--db", db, "--quiet"}).out,
                             sentence));
  BOOST_TEST(tests::contains(run({"ls", db}).out, sentence));
  BOOST_TEST(tests::contains(run({"watch", db}).out, sentence));
  BOOST_TEST(run({"report", db, "--out", folder.file("report.html")}).code == 0);
  BOOST_TEST(tests::contains(tests::read_text(folder.file("report.html")), "trials · " + sentence));
}

BOOST_AUTO_TEST_CASE(a_command_of_its_own_length_is_not_called_longer) {
  write_user_sweep(*this, {{"--micro-batch-size", {"2", "1"}}},
                   {{"dialect", "command"}, {"run", kFake + " --train-iters 11 {flags}"}});
  const std::string told = swept(*this);
  BOOST_TEST(tests::contains(told, "validation over the steps of the command"), told);
  BOOST_TEST(!tests::contains(told, "validation over 12 steps"), told);
  BOOST_TEST(tests::contains(told, "11 steps: loss"), told);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
