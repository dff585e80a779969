// Sweeps over somebody else's engine, with a stand-in that takes the settings of Megatron-LM,
// Megatron-Bridge, torchtitan or Primus and prints their logs: tests/fakes/pretrain_gpt.
#include <boost/test/unit_test.hpp>

#include "profiler/store/store.h"
#include "sweeps/adapters/shell_text.h"
#include "tests/sweeps/cli_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(engine_sweep, tests::Cli)

namespace {

using nlohmann::json;

const std::string kFake =
    std::string(MOETUNE_SOURCE_DIR) + "/tests/fakes/pretrain_gpt/pretrain_gpt";
const std::string kBase =
    " --bf16 --tensor-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 64 "
    "--seq-length 4096 --use-distributed-optimizer --train-iters 500 --lr 2e-5";

/// A sweep file; `change` gets its document.
void write_engine_sweep(const tests::Cli& cli, const json& space,
                        const std::function<void(json&)>& change = {}) {
  json document = {
      {"name", "fake"},
      {"engine", {{"dialect", "megatron-lm"}, {"run", kFake + kBase + " {flags}"}, {"gpus", 8}}},
      {"space", space},
      {"num_steps", 8},
      {"validate_steps", 12},
      {"min_gain_ratio", 0.005},
      {"budget", {{"max_trials", 40}, {"trial_timeout_s", 20}}}};
  if (change) change(document);
  tests::write_text(cli.folder.file("sweep.json"), document.dump(2));
}

json swept(tests::Cli& cli, int code = 0) {
  const tests::Answer answer = cli.run(
      {"sweep", cli.folder.file("sweep.json"), "--db", cli.db, "--quiet", "--format", "json"});
  BOOST_TEST_REQUIRE(answer.code == code, answer.err << answer.out);
  return json::parse(answer.out);
}

bool has_text(const json& list, const std::string& text) {
  return std::ranges::any_of(list, [&](const json& item) { return item == text; });
}

/// The stored trial whose title contains the words.
store::TrialRow trial_titled(const std::string& db, const std::string& words) {
  const store::Store store = store::Store::open_read_only(db);
  for (const store::TrialRow& trial : store.list_trials()) {
    for (const store::NamedText& text : store.read_texts(trial.id)) {
      if (text.name == "title" && text.value.find(words) != std::string::npos) return trial;
    }
  }
  BOOST_REQUIRE_MESSAGE(false, "no trial is called " << words);
  return {};
}

const json kSpace = {{"micro_batch_size", {1, 2, 4}},
                     {"tp", {1, 2}},
                     {"overlap_grad_reduce", {false, true}},
                     {"CUDA_DEVICE_MAX_CONNECTIONS", {"1"}}};

}  // namespace

// The last batch of 15 has a loss of 7.5, the last three 7.6 in the mean.
BOOST_AUTO_TEST_CASE(the_mean_of_the_last_losses_decides_and_not_the_last_batch) {
  for (const auto& [max_loss, is_validated] : {std::pair{7.65, true}, std::pair{7.55, false}}) {
    tests::Cli cli;
    write_engine_sweep(cli, {{"micro_batch_size", {1, 2}}},
                       [&](json& document) { document["validate_max_loss"] = max_loss; });
    const json result = swept(cli, is_validated ? 0 : 16);
    BOOST_TEST(result["validated"] == is_validated, result.dump());
  }
}

BOOST_AUTO_TEST_CASE(a_whole_sweep_finds_what_is_planted) {
  write_engine_sweep(*this, kSpace);
  const json result = swept(*this);
  BOOST_TEST(result["status"] == "done");
  BOOST_TEST(result["validated"] == true);
  BOOST_TEST(has_text(result["engine_settings"], "--micro-batch-size 2"));
  BOOST_TEST(has_text(result["engine_settings"], "--overlap-grad-reduce"));
  BOOST_TEST(has_text(result["engine_settings"], "CUDA_DEVICE_MAX_CONNECTIONS=1"));
  BOOST_TEST(result["num_by_status"]["oom"] == 2);
  // 680 ms before; 400 + 160 / 2 - 5 after.
  BOOST_TEST(result["best"]["step_ns"].get<double>() == 475e6, boost::test_tools::tolerance(0.01));
  BOOST_TEST(result["speedup"].get<double>() == 680.0 / 475.0, boost::test_tools::tolerance(0.02));
  BOOST_TEST(result["best"]["tokens_per_s"].get<double>() == 64 * 4096 / 0.475,
             boost::test_tools::tolerance(0.01));

  // The wall of the first look is what the trace shows, and its remedy is what was kept.
  const store::Store store = store::Store::open_read_only(db);
  bool has_wall = false;
  bool has_remedy = false;
  for (const store::DecisionRow& decision : store.read_decisions(1)) {
    has_wall |= decision.kind == store::DecisionKind::wall && decision.wall == "communication";
    has_remedy |=
        decision.kind == store::DecisionKind::kept && decision.remedy == "overlap_of_gradients";
  }
  BOOST_TEST(has_wall);
  BOOST_TEST(has_remedy);
  const store::TrialRow oom = trial_titled(db, "micro_batch_size 1 -> 4");
  BOOST_TEST(oom.status == "oom");
  BOOST_TEST(oom.reason.find("2.5") != std::string::npos, oom.reason);

  // Nothing is run twice, and what reads databases reads this one.
  const json again = swept(*this);
  BOOST_TEST(again["num_run"] == 0);
  BOOST_TEST(again["best"]["id"] == result["best"]["id"]);
  const tests::Answer listed = run({"ls", db});
  BOOST_TEST(listed.code == 0);
  BOOST_TEST(listed.out.find("first fit: trial 1: your command as it is\n") != std::string::npos,
             listed.out);
  BOOST_TEST(listed.out.find("micro-batch 2") != std::string::npos, listed.out);
  // Knobs that only our own engine has.
  BOOST_TEST(listed.out.find("norm") == std::string::npos, listed.out);
  const tests::Answer shown = run({"show", db, "best"});
  BOOST_TEST(shown.code == 0);
  BOOST_TEST(shown.out.find("--micro-batch-size 2") != std::string::npos, shown.out);
  BOOST_TEST(run({"report", db, "--out", folder.file("report.html")}).code == 0);
  const std::string report = tests::read_text(folder.file("report.html"));
  BOOST_TEST(report.size() > 10'000u);
  BOOST_TEST(tests::contains(report, "measured by runs of megatron-lm"));
  BOOST_TEST(tests::contains(report, "launched from "));

  // One step of what the profiler has seen is stored as those of our own engine are.
  const int64_t looked_at = trial_titled(db, "a look into the best").id;
  const std::vector<profiler::StepTrace> traces = store.read_trace(looked_at);
  BOOST_TEST_REQUIRE(traces.size() == 1u);
  BOOST_TEST(traces[0].records.size() >= 80u);
  BOOST_TEST(traces[0].records[0].name == "sm90_gemm_bf16");
  BOOST_TEST(tests::contains(report, "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"));
  BOOST_TEST(!tests::contains(report, "No trace of"));
  // The arrows that the replay has inferred: all but the first wait for what ended as they began.
  BOOST_TEST(std::ranges::count(traces[0].records, profiler::kNoRecord,
                                &profiler::TraceRecord::producer_id) == 1);
  const std::string exported = folder.file("look.json");
  BOOST_TEST(run({"trace", db, std::to_string(looked_at), "--out", exported}).code == 0);
  BOOST_TEST(tests::contains(tests::read_text(exported), "sm90_gemm_bf16"));
}

// Each in its own words: settings, configuration, steps, memory, traces and the losses that are not
// numbers.
BOOST_AUTO_TEST_CASE(other_dialects_are_swept_and_diagnosed) {
  struct Row {
    const char* dialect;
    const char* run;     ///< behind the program
    const char* config;  ///< empty: the command has it all
    std::string plant;   ///< how settings begin that plant a failure
    std::vector<std::string> settings;
    double step_ns;
  };
  const std::vector<Row> rows = {
      {"megatron-bridge",
       "train.micro_batch_size=1 train.global_batch_size=64 model.seq_length=4096 "
       "comm_overlap.overlap_grad_reduce=false {flags}",
       "",
       "planted.",
       {"train.micro_batch_size=2", "comm_overlap.overlap_grad_reduce=true"},
       480e6},
      // Its word for the overlap of gradients there is not.
      {"torchtitan",
       "--training.local_batch_size 1 --training.global_batch_size 64 --training.seq_len 4096 "
       "{flags}",
       "",
       "planted.",
       {"--training.local_batch_size 2"},
       600e6},
      {"primus",
       "{config}",
       "modules:\n  pre_trainer:\n    framework: megatron\n    overrides:\n"
       "      micro_batch_size: 1\n      global_batch_size: 64\n      seq_length: 4096\n"
       "      overlap_grad_reduce: false\n",
       "planted_",
       {"micro_batch_size: 2", "overlap_grad_reduce: true"},
       480e6},
  };
  for (const Row& row : rows) {
    BOOST_TEST_CONTEXT(row.dialect) {
      const std::string dialect = row.dialect;
      db = folder.file(dialect + ".db");
      json space = {{"micro_batch_size", {1, 2, 4}}};
      for (const char* failure : {"nan", "ignore", "timeout"}) {
        space[row.plant + failure] = json::array({"true"});
      }
      if (dialect != "torchtitan") space["overlap_grad_reduce"] = {false, true};
      write_engine_sweep(*this, space, [&](json& document) {
        json& words = document["engine"];
        words["dialect"] = dialect;
        words["run"] = "FAKE_DIALECT=" + dialect + " " + kFake + " " + row.run;
        if (*row.config != '\0') words["config"] = row.config;
      });
      const json result = swept(*this);
      BOOST_TEST(result["status"] == "done");
      BOOST_TEST(result["engine_settings"] == json(row.settings), result.dump());
      BOOST_TEST(result["num_by_status"]["wrong"] == 1);
      BOOST_TEST(result["num_by_status"].contains("oom"));
      BOOST_TEST(result["num_by_status"]["failed"] == 1);
      BOOST_TEST(result["num_by_status"]["hung"] == 1);
      BOOST_TEST(result["best"]["step_ns"].get<double>() == row.step_ns,
                 boost::test_tools::tolerance(0.01));
      BOOST_TEST(result["best"]["tokens_per_s"].get<double>() == 64 * 4096 / (row.step_ns / 1e9),
                 boost::test_tools::tolerance(0.01));
      for (const auto& [failure, status, words] :
           {std::tuple("nan", "wrong", "not a number since step 4"),
            {"ignore", "failed", "asked 2, the log has 1"},
            {"timeout", "hung", "rank 5 did not come"}}) {
        const store::TrialRow trial = trial_titled(db, row.plant + failure);
        BOOST_TEST(trial.status == status);
        BOOST_TEST(trial.reason.find(words) != std::string::npos, trial.reason);
      }

      // The configuration was echoed, and what the look has left tells the same to diagnose.
      const store::TrialRow look = trial_titled(db, "a look into the best");
      BOOST_TEST(look.wall == "communication");
      BOOST_TEST(look.peak_bytes.value_or(0) > int64_t{20} << 30);
      for (const store::NamedText& text : store::Store::open_read_only(db).read_texts(look.id)) {
        BOOST_TEST(text.value.find("was not checked") == std::string::npos, text.value);
        BOOST_TEST(text.value.find("the command says") == std::string::npos, text.value);
      }
      const std::string left = db + ".runs/" + look.spec_hash.substr(0, 8) + "-0";
      const tests::Answer answer = run({"diagnose", left, "--format", "json"});
      BOOST_TEST_REQUIRE(answer.code == 0, answer.err);
      const json told = json::parse(answer.out);
      BOOST_TEST(told["run"]["framework"] == dialect);
      BOOST_TEST(told["run"]["status"] == "ok", told["run"].dump());
      BOOST_TEST(told["run"]["micro_batch_size"] == 2);
      BOOST_TEST(told["run"]["seq_length"] == 4096);
      BOOST_TEST(told["run"]["step_time_s"].get<double>() == 0.6,
                 boost::test_tools::tolerance(0.01));
      BOOST_TEST(told["wall"]["label"] == "communication");
    }
  }
}

BOOST_AUTO_TEST_CASE(faulty_runs_do_not_count) {
  struct Row {
    const char* setting;
    json value;
    const char* status;
    const char* words;
  };
  const std::vector<Row> rows = {
      {"--planted-nan", true, "wrong", "not a number"},
      {"--planted-exit", "5", "failed", "exit code 5"},
      {"--planted-ignore", true, "failed", "asked 2, the log has 1"},
      {"--planted-timeout", true, "hung", "ALLTOALL_BASE"},
      {"--planted-hang", true, "hung", "nothing new in the log"},
      {"--planted-unknown", true, "failed", "does not know"},
      {"--moe-expert-capacity-factor", "1.5", "wrong", "off"},
  };
  json space = {{"micro_batch_size", {2}}};
  for (const Row& row : rows) space[row.setting] = {row.value};
  write_engine_sweep(*this, space, [](json& document) {
    std::string& text = document["engine"]["run"].get_ref<std::string&>();
    text.replace(text.find("--micro-batch-size 1"), 20, "--micro-batch-size 2");
    document["budget"]["trial_timeout_s"] = 6;  // others take turns with a busy machine
    document["engine"]["profile"] = "none";
  });
  const json result = swept(*this);
  BOOST_TEST(result["engine_settings"].empty());
  for (const Row& row : rows) {
    BOOST_TEST_CONTEXT(row.setting) {
      const store::TrialRow trial = trial_titled(db, row.setting);
      BOOST_TEST(trial.status == row.status);
      BOOST_TEST(trial.reason.find(row.words) != std::string::npos, trial.reason);
    }
  }
}

BOOST_AUTO_TEST_CASE(what_the_machine_lacks_is_no_result) {
  write_engine_sweep(*this, {{"micro_batch_size", {2}}, {"--planted-no-gpu", {true}}});
  check_refused({"sweep", folder.file("sweep.json"), "--db", db, "--quiet"}, 15,
                {"the machine cannot run it", "no driver"});
  const store::Store store = store::Store::open_read_only(db);
  for (const store::TrialRow& trial : store.list_trials(1)) BOOST_TEST(trial.status != "failed");
}

BOOST_AUTO_TEST_CASE(a_run_that_was_taken_away_is_repeated) {
  write_engine_sweep(*this, {{"micro_batch_size", {2}}}, [&](json& document) {
    document["engine"]["run"] = "if [ -e " + folder.file("calm") + " ]; then " + kFake + kBase +
                                " {flags}; else " + kFake + kBase +
                                " --planted-preemption {flags}; fi";
    document["engine"]["config"] = "pretrain_gpt.py" + kBase;
  });
  check_refused({"sweep", folder.file("sweep.json"), "--db", db, "--quiet"}, 15,
                {"stopped from outside", "PREEMPTION"});
  tests::write_text(folder.file("calm"), "");
  BOOST_TEST(swept(*this)["status"] == "done");
}

BOOST_AUTO_TEST_CASE(tell_by_hand_gives_the_same_sweep) {
  write_engine_sweep(*this, kSpace);
  const std::string sweep_file = folder.file("sweep.json");
  tests::Answer answer = run({"sweep", sweep_file, "--db", db, "--dry-run", "--format", "json"});
  int num_told = 0;
  json told;
  while (true) {
    BOOST_TEST_REQUIRE(answer.code == 0, answer.err << answer.out);
    told = json::parse(answer.out);
    if (told["next"].is_null()) break;
    BOOST_TEST_REQUIRE(++num_told < 60);
    BOOST_TEST(!told["next"]["title"].get<std::string>().empty());
    const std::string log = folder.file("told.log");
    const std::string traces = folder.file("traces");
    std::filesystem::remove_all(traces);
    // A person may well put the traces elsewhere.
    std::string command = told["next"]["command"];
    const size_t board = command.find("--tensorboard-dir ");
    if (board != std::string::npos) {
      const size_t first = board + std::string("--tensorboard-dir ").size();
      command.replace(first, command.find(' ', first) - first, traces + "/board");
    }
    const int code = std::system(("(" + command + ") > " + log + " 2>&1").c_str());
    std::vector<std::string> words = {"tell", sweep_file, log, "--db", db, "--format", "json"};
    if (std::filesystem::exists(traces)) words.insert(words.begin() + 3, traces);
    if (code != 0) words.insert(words.end(), {"--exit-code", "1"});
    answer = run(words);
    if (num_told == 1) {
      check_refused(words, 2, {"already used for trial", "told.log"});
      // Nor with something new beside it.
      words.insert(words.begin() + 2, sweep_file);
      check_refused(words, 2, {"already used for trial", "told.log"});
    }
  }
  BOOST_TEST(num_told > 5);
  BOOST_TEST(told["status"] == "done");
  BOOST_TEST(has_text(told["engine_settings"], "--micro-batch-size 2"));
  BOOST_TEST(has_text(told["engine_settings"], "--overlap-grad-reduce"));
  // Who brings one more is told that nobody takes it.
  std::filesystem::copy_file(folder.file("told.log"), folder.file("more.log"));
  check_refused({"tell", sweep_file, folder.file("more.log"), "--db", db}, 2,
                {"the sweep is done and waits for no trial; nothing was stored"});
}

BOOST_AUTO_TEST_CASE(too_few_steps_of_the_command_are_told_before_a_launch) {
  const auto with = [&](const std::string& total) {
    std::string base = kBase;
    base.replace(base.find("--train-iters 500"), 17, "--train-iters " + total);
    write_engine_sweep(*this, {{"micro_batch_size", {2}}}, [&](json& document) {
      document["engine"]["run"] = kFake + base + " {flags}";
      document["num_steps"] = 6;
    });
    return std::vector<std::string>{"sweep", folder.file("sweep.json"), "--db", db, "--dry-run"};
  };
  // 3 of warm-up; 12 of the validation.
  check_refused(with("8"), 2,
                {"engine.run", "--train-iters is 8", "a trial", "makes 9 steps",
                 "raise --train-iters to at least 15"});
  check_refused(with("14"), 2, {"--train-iters is 14", "the validation", "makes 15 steps"});
  BOOST_TEST(!std::filesystem::exists(db));
  BOOST_TEST(run(with("15")).code == 0);
}

BOOST_AUTO_TEST_CASE(a_log_of_another_run_is_not_taken) {
  write_engine_sweep(*this, {{"micro_batch_size", {2}}});
  const std::string log = folder.file("told.log");
  std::string base = kBase;
  base.replace(base.find("--global-batch-size 64"), 22, "--global-batch-size 32");
  const std::string command =
      kFake + base + " --pipeline-model-parallel-size 2 --exit-interval 11 > " + log + " 2>&1";
  BOOST_TEST(std::system(command.c_str()) == 0);
  check_refused({"tell", folder.file("sweep.json"), log, "--db", db}, 2,
                {"told.log", "another configuration",
                 "--pipeline-model-parallel-size: asked 1 (not said), the log has 2",
                 "--global-batch-size: asked 64, the log has 32"});
  // One that failed and echoes nothing: its lines about steps say it.
  const std::string failed = std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/logs/oom.log";
  check_refused(
      {"tell", folder.file("sweep.json"), failed, "--exit-code", "1", "--db", db}, 2,
      {"oom.log", "another configuration", "--global-batch-size: asked 64, the log has 256",
       "--train-iters: asked 500, the log has 100"});
  BOOST_TEST(!std::filesystem::exists(db));
}

// Of the sizes that are swept, too: a log of another trial than the next one.
BOOST_AUTO_TEST_CASE(a_log_of_another_trial_is_not_taken) {
  write_engine_sweep(*this, {{"micro_batch_size", {2}}});
  const std::string sweep_file = folder.file("sweep.json");
  const auto next_log = [&](const char* name) {
    const json next = json::parse(
        run({"sweep", sweep_file, "--db", db, "--dry-run", "--format", "json"}).out)["next"];
    const std::string log = folder.file(name);
    const std::string command = "(" + next["command"].get<std::string>() + ") > " + log + " 2>&1";
    BOOST_TEST(std::system(command.c_str()) == 0);
    return log;
  };
  const auto num_trials = [&] { return store::Store::open_read_only(db).list_trials().size(); };
  const std::string first = next_log("first.log");
  const std::string again = next_log("again.log");  // the same command: nothing was told yet
  BOOST_TEST(tests::contains(run({"watch", db}).out, "sweep 1 fake: waiting for tell\n"));
  const tests::Answer told = run({"tell", sweep_file, first, "--db", db});
  BOOST_TEST_REQUIRE(told.code == 0, told.err);
  BOOST_TEST_REQUIRE(num_trials() == 1U);
  check_refused({"tell", sweep_file, again, "--db", db}, 2,
                {"again.log", "another configuration", "micro_batch_size: asked 2, the log has 1",
                 "nothing was stored. Pass the log of",
                 "If this is its log, say --exit-code 1 without a log"});
  // What is no log at all stores nothing either.
  const std::string notes = folder.file("notes.md");
  tests::write_text(notes, "# nothing of a run\n");
  check_refused({"tell", sweep_file, notes, "--db", db}, 2,
                {"notes.md: is no log of a run that moetune knows"});
  tests::write_text(notes, "");
  check_refused({"tell", sweep_file, notes, "--db", db}, 2, {"notes.md: there is nothing in it"});
  BOOST_TEST(num_trials() == 1U);
  BOOST_TEST(tests::contains(run({"watch", db}).out, "sweep 1 fake: waiting for tell\n"));
  const tests::Answer second = run({"tell", sweep_file, next_log("second.log"), "--db", db});
  BOOST_TEST(second.code == 0, second.err);
  BOOST_TEST_REQUIRE(num_trials() == 2U);
  BOOST_TEST(store::Store::open_read_only(db).list_trials().back().status == "ok");
  // Nor does a further run of a trial count twice.
  const std::string third = next_log("third.log");
  BOOST_TEST(run({"tell", sweep_file, third, "--db", db}).code == 0);
  check_refused({"tell", sweep_file, third, "--db", db}, 2, {"already used for trial 2"});
}

BOOST_AUTO_TEST_CASE(what_a_framework_sets_by_itself_is_shown) {
  std::string base = kBase;
  for (const std::string word : {" --bf16", " --use-distributed-optimizer"}) {
    base.erase(base.find(word), word.size());
  }
  write_engine_sweep(*this, {{"micro_batch_size", {2}}}, [&](json& document) {
    document["engine"]["run"] = kFake + base + " {flags}";
  });
  const std::string log = folder.file("told.log");
  const std::string command = kFake + base + " --exit-interval 11 > " + log + " 2>&1";
  BOOST_TEST(std::system(command.c_str()) == 0);
  const tests::Answer told = run({"tell", folder.file("sweep.json"), log, "--db", db});
  BOOST_TEST_REQUIRE(told.code == 0, told.err);
  const std::string shown = run({"show", db, "1"}).out;
  const std::string notes =
      json::parse(run({"show", db, "1", "--format", "json"}).out)["texts"]["note"];
  for (const char* note : {"precision: the command says fp32, the log has bf16",
                           "distributed_optimizer: the command says false, the log has true"}) {
    BOOST_TEST(tests::contains(shown, note), shown);
    BOOST_TEST(tests::contains(notes, note), notes);
  }
}

BOOST_AUTO_TEST_CASE(what_was_run_is_counted_in_words_of_its_number) {
  write_engine_sweep(*this, kSpace);
  const std::string sweep_file = folder.file("sweep.json");
  const tests::Answer none = run({"sweep", sweep_file, "--db", db, "--dry-run"});
  BOOST_TEST(tests::contains(none.out, "0 trials run, 0 found in the database"), none.out);
  BOOST_TEST(!tests::contains(none.out, "()"), none.out);
  const json next = json::parse(
      run({"sweep", sweep_file, "--db", db, "--dry-run", "--format", "json"}).out)["next"];
  const std::string log = folder.file("told.log");
  const std::string command = next["command"];
  BOOST_TEST(std::system(("(" + command + ") > " + log + " 2>&1").c_str()) == 0);
  const tests::Answer one = run({"tell", sweep_file, log, "--db", db});
  BOOST_TEST(one.code == 0, one.err);
  BOOST_TEST(tests::contains(one.out, ": 1 trial run, "), one.out);
}

BOOST_AUTO_TEST_CASE(a_switch_is_taken_back_where_all_flags_are_written) {
  const json space = {{"overlap_grad_reduce", {false, true}}};
  const auto with = [&](const std::string& run_text) {
    write_engine_sweep(*this, space, [&](json& document) {
      document["engine"]["config"] = "pretrain_gpt.py" + kBase + " --overlap-grad-reduce";
      document["engine"]["run"] = run_text;
      document["engine"]["profile"] = "none";
    });
    return swept(*this);
  };
  json result = with(kFake + kBase + " --overlap-grad-reduce {flags}");
  BOOST_TEST(result["num_by_status"]["invalid"] == 1);
  BOOST_TEST(trial_titled(db, "the run as it is").status == "ok");
  std::filesystem::remove(db);
  result = with(kFake + " {all_flags}");
  BOOST_TEST(!result["num_by_status"].contains("invalid"));
  const store::TrialRow off = trial_titled(db, "overlap_grad_reduce true -> false");
  BOOST_TEST(off.status == "ok");
  BOOST_TEST(result["engine_settings"].empty());
}

BOOST_AUTO_TEST_CASE(what_the_command_sets_itself_is_not_set_beside_it) {
  write_engine_sweep(*this, {{"CUDA_DEVICE_MAX_CONNECTIONS", {"1", "8"}}}, [&](json& document) {
    document["engine"]["run"] = "CUDA_DEVICE_MAX_CONNECTIONS=8 " + kFake + kBase + " {flags}";
    document["engine"]["profile"] = "none";
  });
  const json result = swept(*this);
  BOOST_TEST(result["num_by_status"]["invalid"] == 1, result.dump());
}

BOOST_AUTO_TEST_CASE(a_batch_that_would_follow_the_layout_is_said) {
  std::string base = kBase;
  base.replace(base.find(" --global-batch-size 64"), 23, "");
  const auto with = [&](const std::function<void(json&)>& change) {
    std::filesystem::remove(db);
    write_engine_sweep(*this, {{"tp", {1, 2}}}, [&](json& document) {
      document["engine"]["run"] = kFake + base + " {flags}";
      document["engine"]["profile"] = "none";
      change(document);
    });
    return swept(*this);
  };
  const auto command_of = [&](const std::string& title) {
    std::string command;
    for (const store::NamedText& text :
         store::Store::open_read_only(db).read_texts(trial_titled(db, title).id)) {
      if (text.name == "command") command = text.value;
    }
    return command;
  };
  json result = with([](json&) {});
  BOOST_TEST(!result["num_by_status"].contains("invalid"), result.dump());
  BOOST_TEST(!tests::contains(command_of("the run as it is"), "--global-batch-size"));
  BOOST_TEST(tests::contains(command_of("tp 1 -> 2"), "--global-batch-size 8"));
  result = with([&](json& document) {
    document["engine"]["config"] = "pretrain_gpt.py" + base;
    document["engine"]["run"] = kFake + " {all_flags}";
  });
  BOOST_TEST(tests::contains(command_of("tp 1 -> 2"), "--global-batch-size 8"));
  result = with([](json& document) { document["engine"].erase("gpus"); });
  BOOST_TEST(result["num_by_status"]["invalid"] == 1, result.dump());
}

// Without a hardware file, too, by the sizes of the command; and experts that nobody splits
// otherwise are split as attention is.
BOOST_AUTO_TEST_CASE(rules_of_the_model_hold) {
  write_engine_sweep(*this, {{"tp", {1, 2}}, {"ep", {1, 2}}}, [](json& document) {
    document["engine"]["run"] = "FAKE_WORLD_SIZE=2 " + kFake + kBase + " {flags}";
    document["engine"]["config"] = "pretrain_gpt.py" + kBase +
                                   " --sequence-parallel --num-layers 2 --hidden-size 64 "
                                   "--num-attention-heads 4 --num-experts 4 --vocab-size 1000 "
                                   "--swiglu --normalization RMSNorm --disable-bias-linear "
                                   "--position-embedding-type rope";
    document["engine"]["profile"] = "none";
    document["engine"]["gpus"] = 2;
  });
  swept(*this);
  // Experts are split as attention is: ep 2 and tp 2 together need four ranks.
  const std::vector<store::TrialRow> trials = store::Store::open_read_only(db).list_trials();
  const auto both = std::ranges::find(trials, "invalid", &store::TrialRow::status);
  BOOST_TEST_REQUIRE((both != trials.end()));
  BOOST_TEST(tests::contains(both->reason, "ep_divides_plane: ep 2 x etp 2"), both->reason);
  const store::TrialRow split = trial_titled(db, "tp 1 -> 2");
  BOOST_TEST(split.status == "ok", split.reason);
}

BOOST_AUTO_TEST_CASE(knobs_go_by_their_long_names_too) {
  write_engine_sweep(*this, {{"tensor_model_parallel_size", {1, 2}}},
                     [](json& document) { document["engine"]["profile"] = "none"; });
  swept(*this);
  BOOST_TEST(trial_titled(db, "tp 1 -> 2").status == "ok");
}

BOOST_AUTO_TEST_CASE(an_axis_without_a_legal_value_is_told) {
  write_engine_sweep(*this, {{"pp", {3, 5}}, {"micro_batch_size", {1, 3}}},
                     [](json& document) { document["engine"]["profile"] = "none"; });
  const tests::Answer answer = run({"sweep", folder.file("sweep.json"), "--db", db, "--quiet"});
  BOOST_TEST(tests::contains(answer.err, "no value of pp is legal"), answer.err);
  BOOST_TEST(!tests::contains(answer.err, "no value of micro_batch_size"), answer.err);
  BOOST_TEST(tests::contains(answer.err, "are those of Megatron-LM core_v0."), answer.err);
}

BOOST_AUTO_TEST_CASE(logs_lie_in_one_folder_and_paths_have_blanks) {
  db = folder.file("my [old] runs/of today.db");
  std::filesystem::create_directories(folder.file("my [old] runs"));
  write_engine_sweep(*this, {{"micro_batch_size", {2}}}, [](json& document) {
    document["engine"]["run"] =
        "mkdir -p logs/{trial} && " + kFake + kBase + " {flags} > logs/{trial}/rank0.log 2>&1";
    document["engine"]["log"] = "logs";
    document["engine"]["trace"] = "{out}";
  });
  const json result = swept(*this);
  BOOST_TEST(result["best"]["step_ns"].get<double>() == 600e6, boost::test_tools::tolerance(0.01));
  BOOST_TEST(trial_titled(db, "a look into the best").wall == "communication");
}

BOOST_AUTO_TEST_CASE(forced_balancing_is_told) {
  write_engine_sweep(*this, {{"micro_batch_size", {2}}}, [](json& document) {
    document["engine"]["run"] = kFake + kBase + " --moe-router-force-load-balancing {flags}";
  });
  swept(*this);
  const store::Store store = store::Store::open_read_only(db);
  const std::vector<store::NamedText> texts =
      store.read_texts(trial_titled(db, "the run as it is").id);
  BOOST_TEST(std::ranges::count(texts, "forced_balancing", &store::NamedText::name) == 1);
  BOOST_TEST(store.read_decisions(1).front().text.find("forced to be balanced") !=
             std::string::npos);
}

// Whatever a value holds, it arrives as one word, and nothing of it is run.
BOOST_AUTO_TEST_CASE(values_are_quoted) {
  const std::string hostile = "a b'; touch " + folder.file("pwned") + "; echo '$(touch " +
                              folder.file("pwned") + ")`touch " + folder.file("pwned") + "`\"";
  write_engine_sweep(*this, {{"--data-path", {hostile}}}, [&](json& document) {
    document["engine"]["config"] = "pretrain_gpt.py" + kBase + " --data-path c4";
    document["engine"]["run"] = kFake + " {all_flags}";
    document["engine"]["profile"] = "none";
  });
  swept(*this);
  BOOST_TEST(!std::filesystem::exists(folder.file("pwned")));
  const store::TrialRow trial = trial_titled(db, "--data-path");
  BOOST_TEST(trial.status == "ok", trial.reason);
  std::string log;
  for (const store::NamedText& text : store::Store::open_read_only(db).read_texts(trial.id)) {
    if (text.name == "log") log = text.value;
  }
  BOOST_TEST(log.find(hostile) != std::string::npos, log);

  write_engine_sweep(*this, {{"--data-path", {hostile}}}, [&](json& document) {
    document["engine"]["run"] = "sh -c \"" + kFake + kBase + " {flags}\"";
    document["engine"]["profile"] = "none";
  });
  const tests::Answer answer = run({"sweep", folder.file("sweep.json"), "--db", db, "--quiet"});
  BOOST_TEST(answer.code == 2);
  BOOST_TEST(answer.err.find("within quotes") != std::string::npos, answer.err);
  BOOST_TEST(!std::filesystem::exists(folder.file("pwned")));
}

BOOST_AUTO_TEST_CASE(placeholders_in_shell_text) {
  const Placeholders values = {{"flags", {"--a", "b c", "d'e"}}, {"out", {"/tmp/x"}}};
  BOOST_TEST(filled_in("run {flags} ${HOME} {other}", values) ==
             "run --a 'b c' 'd'\\''e' ${HOME} {other}");
  BOOST_TEST(filled_in("ssh host 'cd {out}; ls'", values) == "ssh host 'cd /tmp/x; ls'");
  BOOST_TEST(filled_in("echo \\' {flags}", values) == "echo \\' --a 'b c' 'd'\\''e'");
  BOOST_CHECK_THROW(filled_in("ssh host 'x {flags}'", values), base::UsageError);
  // What is left of a word with one in it is no value of the flag before it.
  BOOST_TEST(without_placeholders("run --tp 2 {flags} > t-{trial}.out 2>&1") ==
             "run --tp 2   > t-x.out 2>&1");
  BOOST_TEST(word_for_shell("$DATA/x") == "\"$DATA/x\"");
  BOOST_TEST(word_for_shell("${DATA}") == "\"${DATA}\"");
  for (const char* word : {"$(ls)", "${X:-$(ls)}", "$", "$1", "a$b c", ""}) {
    BOOST_TEST(word_for_shell(word) == "'" + std::string(word) + "'");
  }
}

/// The settings of a run stand in the script that starts it.
BOOST_AUTO_TEST_CASE(a_job_script_is_swept) {
  const std::string script = "#!/bin/bash\n#SBATCH -N 1\nMBS=${MBS:-1}\nARGS=(" + kBase +
                             " --micro-batch-size $MBS)\n" + kFake + " \"${ARGS[@]}\" ";
  tests::write_text(folder.file("job.sh"), script + "\"$@\"\n");
  for (const std::string run : {"bash job.sh {flags}", "x=1 bash ./job.sh --lr 1e-4 {flags}"}) {
    write_engine_sweep(*this, {{"micro_batch_size", {1, 2}}},
                       [&](json& document) { document["engine"]["run"] = run; });
    const json result = swept(*this);
    BOOST_TEST(result["status"] == "done");
    BOOST_TEST(has_text(result["engine_settings"], "--micro-batch-size 2"));
    std::filesystem::remove(db);
  }
  const auto refused = [&](const std::string& run, const std::vector<std::string>& parts) {
    write_engine_sweep(*this, {{"micro_batch_size", {2}}},
                       [&](json& document) { document["engine"]["run"] = run; });
    check_refused({"sweep", folder.file("sweep.json"), "--db", db, "--dry-run"}, 2, parts);
  };
  refused("sbatch -W absent.sh {flags}",
          {"has no setting that megatron-lm takes", "absent.sh is neither beside the sweep file",
           "'engine.config' names the file"});
  refused("python pretrain_gpt.py {flags}", {"'engine.config' names the file"});
  write_engine_sweep(*this, {{"tp", {1, 2}}}, [&](json& document) {
    document["engine"]["dialect"] = "torchtitan";
    document["engine"]["run"] = "torchrun -m torchtitan.train --job.config_file y.toml {flags}";
  });
  check_refused({"sweep", folder.file("sweep.json"), "--db", db, "--dry-run"}, 2,
                {"y.toml is neither beside the sweep file", "'engine.config' names the file"});
  tests::write_text(folder.file("y.toml"), "[parallelism]\ntensor_parallel_degree = 1\n");
  BOOST_TEST(run({"sweep", folder.file("sweep.json"), "--db", db, "--dry-run"}).code == 0);
  tests::write_text(folder.file("deaf.sh"), script + "\n");
  refused("bash deaf.sh {flags}", {"deaf.sh takes no arguments", "\"$@\""});
}

BOOST_AUTO_TEST_CASE(wrong_files_are_told) {
  const auto refused = [&](const std::function<void(json&)>& change,
                           const std::vector<std::string>& parts) {
    write_engine_sweep(*this, {{"micro_batch_size", {2}}}, change);
    check_refused({"sweep", folder.file("sweep.json"), "--db", db}, 2, parts);
  };
  refused([](json& d) { d["engine"]["run"] = "train.sh"; }, {"engine.run", "{flags}"});
  refused([](json& d) { d["engine"]["dialect"] = "megatron"; }, {"dialect", "megatron-lm"});
  const tests::Answer unknown = run({"sweep", folder.file("sweep.json"), "--db", db});
  BOOST_TEST(!tests::contains(unknown.err, "micro_batch_size"), unknown.err);
  refused([](json& d) { d["space"]["micro_batch"] = {1}; }, {"micro_batch_size"});
  refused([](json& d) { d["space"]["dp"] = {1}; }, {"dp", "follows"});
  refused([](json& d) { d["space"]["data_parallel_size"] = {1}; },
          {"data_parallel_size", "follows"});
  refused([](json& d) { d["space"]["tp"] = {"many"}; }, {"tp"});
  refused(
      [](json& d) {
        d["space"]["tp"] = {1};
        d["space"]["tensor_model_parallel_size"] = {2};
      },
      {"the knob 'tp' has values under another name already"});
  refused([](json& d) { d["training"] = json::object(); }, {"training"});
  refused([](json& d) { d["engine"]["run"] = "x {config}"; }, {"{config}"});
  refused([](json& d) { d["engine"]["config"] = "nojob.sh"; },
          {"key 'engine.config' is 'nojob.sh': there is no such file in "});
  refused(
      [](json& d) {
        d["engine"] = {{"dialect", "primus"}, {"run", "x {config}"}};
      },
      {"{config} is a file that is made of yours", "with the key 'engine.config'"});
  refused([](json& d) { d.erase("space"); }, {"space"});
  write_engine_sweep(*this, {{"micro_batch_size", {2}}});
  check_refused({"trial", folder.file("sweep.json")}, 2, {"--dry-run"});
  check_refused({"sweep", folder.file("sweep.json"), "--db", db, "--set", "x=1"}, 2, {"--set"});
  check_refused({"tell", folder.file("sweep.json"), "--db", db}, 2, {"log"});
  // A name that is mistyped is no run without a log.
  check_refused(
      {"tell", folder.file("sweep.json"), folder.file("nolog"), "--exit-code", "1", "--db", db}, 2,
      {"nolog", "no such file"});
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace moetune::sweeps
