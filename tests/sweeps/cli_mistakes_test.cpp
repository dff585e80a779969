// The program's messages and exit codes for bad input, bad files, full disks and dead processes.
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "profiler/store/db.h"
#include "profiler/store/store.h"
#include "tests/sweeps/cli_fixture.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(cli_mistakes, tests::Cli)

namespace {

using nlohmann::json;
using std::chrono::seconds;
using tests::Answer;

}  // namespace

BOOST_AUTO_TEST_CASE(mistakes_on_the_command_line_are_usage_errors) {
  check_refused({}, 2, {"command is missing"});
  check_refused({"swep"}, 2, {"'swep'", "did you mean 'sweep'", "report"});
  check_refused({"frob"}, 2, {"'frob'", "trial", "sweep", "ls"});
  check_refused({"ls"}, 2, {"the database (--db PATH) is missing"});
  check_refused({"ls", db, "--colour"}, 2, {"--colour"});
  check_refused({"ls", db, "--form", "json"}, 2, {"--form"});
  check_refused({"ls", db, "--format", "xml"}, 2, {"--format", "xml", "json"});
  check_refused({"ls", db, "--status", "good"}, 2, {"--status", "good", "oom"});
  check_refused({"show", db}, 2, {"show"});
  check_refused({"trial", spec, "--set", "recompute"}, 2, {"--set", "recompute", "KNOB=VALUE"});
  check_refused({"trial", spec, "--set", "recompte=full"}, 2, {"recompte", "recompute"});
  check_refused({"trial", spec, "--set", "micro_batch_size=0"}, 2, {"micro_batch_size", "0"});
  check_refused({"trial", spec, "--set", "dp=2"}, 2, {"'dp'", "mean 'data_parallel_size'?"});
  for (const char* word : {"offload=moe_act", "fsdp=true", "moe-token-dispatcher-type=flex"}) {
    check_refused({"program", spec, "--set", word}, 2,
                  {word, "the engine does not run '", "yet (rule engine_runs_knob)",
                   "'moetune plan' knows it"});
  }
  check_refused({"sweep", spec}, 2, {"--db"});
  check_refused({"sweep", spec, "--db", db, "--max-trials", "none"}, 2, {"--max-trials", "none"});
}

BOOST_AUTO_TEST_CASE(bad_spec_files_are_named_with_key_and_value) {
  check_refused({"trial", folder.file("none.json")}, 2, {"none.json", "No such file"});
  check_refused({"trial", folder.file("")}, 2, {"folder"});
  tests::write_text(folder.file("bad.json"), "{\"model\": ");
  check_refused({"trial", folder.file("bad.json")}, 2, {"bad.json"});
  write_spec([](json& document) { document["knobs"]["micro_batch_size"] = "many"; });
  check_refused({"trial", spec}, 2, {"trial.json", "micro_batch_size", "many"});
  write_spec([](json& document) { document["modle"] = 1; });
  check_refused({"trial", spec}, 2, {"trial.json", "modle", "model"});
  write_spec([](json& document) { document["data_path"] = "no-such-text"; });
  check_refused({"trial", spec}, 2, {"trial.json", "data_path", "no-such-text"});
}

BOOST_AUTO_TEST_CASE(bad_databases_are_named) {
  check_refused({"ls", db}, 2, {db});
  tests::write_text(folder.file("text.db"), std::string(5000, 'x'));
  for (const char* command : {"ls", "report"}) {
    check_refused({command, folder.file("text.db")}, 2, {"text.db", "not a moetune database"});
  }
  check_refused({"trial", spec, "--db", folder.file("text.db")}, 2, {"text.db"});
  check_refused({"trial", spec, "--db", "/no/such/folder/runs.db"}, 2, {"/no/such/folder"});
  for (const char* command : {"ls", "report"}) {
    check_refused({command, folder.file("")}, 2, {folder.file(""), "is a folder"});
  }
  check_refused({"trial", spec, "--db", folder.file("")}, 2, {folder.file(""), "is a folder"});
  BOOST_REQUIRE(run({"trial", spec, "--db", db}).code == 0);
  check_refused({"show", db, "99"}, 2, {"99"});
  const std::string below_a_file = folder.file("corpus") + "/page.html";
  check_refused({"report", db, "--out", below_a_file}, 2, {below_a_file, "is not a folder"});
  check_refused({"report", db, "--out", folder.file("none/page.html")}, 2,
                {"none/page.html", "does not exist"});
  BOOST_TEST(!std::filesystem::exists(folder.file("none")));
  check_refused({"trial", spec, "--trace-out", below_a_file}, 2, {below_a_file});
}

BOOST_AUTO_TEST_CASE(impossible_sweeps_are_refused_before_anything_runs) {
  const std::string sweep = folder.file("sweep.json");
  write_sweep([](json& document) { document["knobs"]["expert_model_parallel_size"] = 3; });
  check_refused({"sweep", sweep, "--db", db}, 2,
                {sweep, "'knobs.expert_model_parallel_size'", "3", "use a divisor", "ep_divides"});
  write_sweep([](json&) {});
  check_refused({"sweep", sweep, "--db", db, "--set", "micro-batch-size=3"}, 2,
                {sweep, "'knobs.micro_batch_size'", "3"});
  check_refused({"sweep", sweep, "--db", db, "--max-trials", "3"}, 2,
                {"--max-trials", "'3'", "at least 4"});
  write_sweep([](json& document) { document["budget"]["max_trials"] = 2; });
  check_refused({"sweep", sweep, "--db", db}, 2, {sweep, "'budget.max_trials' is 2", "from 4"});
  BOOST_TEST(!std::filesystem::exists(db));
}

BOOST_AUTO_TEST_CASE(an_axis_without_a_legal_value_is_told) {
  write_sweep([](json& document) { document["space"]["linear_ce_chunk_tokens"] = {100}; });
  const Answer answer = run({"sweep", folder.file("sweep.json"), "--db", db, "--max-trials", "4"});
  BOOST_TEST(answer.err.find("no value of linear_ce_chunk_tokens is legal with the starting "
                             "configuration's other values (linear_ce_tile: ") != std::string::npos,
             answer.err);
}

BOOST_AUTO_TEST_CASE(a_text_shorter_than_one_sequence_is_refused) {
  const int64_t seq_length = tests::small_trial().training.seq_length;
  write_sweep([](json&) {});
  tests::write_text(folder.file("corpus"), std::string(static_cast<size_t>(seq_length), 'x'));
  for (const char* command : {"sweep", "trial"}) {
    check_refused({command, folder.file("sweep.json"), "--db", db}, 2,
                  {"sweep.json", "'data_path'", "corpus", std::to_string(seq_length + 1)});
  }
  check_refused({"trial", spec, "--db", db}, 2, {"trial.json", "'data_path'", "corpus"});
  BOOST_TEST(!std::filesystem::exists(db));
  tests::write_text(folder.file("corpus"), std::string(static_cast<size_t>(seq_length) + 1, 'x'));
  BOOST_TEST(run({"trial", spec, "--db", db}).code == 0);
}

BOOST_AUTO_TEST_CASE(a_sweep_that_finds_nothing_fails_and_says_why) {
  const auto check_failed = [&](const std::string& why) {
    const Answer answer = run({"sweep", folder.file("sweep.json"), "--db", db, "--quiet"});
    BOOST_TEST_CONTEXT(answer.err) {
      BOOST_TEST(answer.code == 12);
      BOOST_TEST(answer.err.starts_with("moetune: no configuration has fitted"));
      BOOST_TEST(answer.err.find(why) != std::string::npos);
      BOOST_TEST(std::ranges::count(answer.err, '\n') == 1);
    }
    BOOST_TEST((store::Store::open_read_only(db).read_sweeps().back().status ==
                store::SearchStatus::failed));
  };
  write_sweep([](json& document) { document["fault"] = {{"kind", "error"}, {"step", 1}}; });
  check_failed("a planned error");
  // The reference has all the memory it wants; the real engine can say where its tokens went.
  const tests::ScopedEnvironment real("MOETUNE_RANK", tests::bin("moetune-rank"));
  write_sweep([](json& document) {
    document["hardware"]["memory_bytes"] = 102'400;
    document["model"]["vocab_size"] = 256;
    document["validate_steps"] = 2;
  });
  check_failed("fits");
}

BOOST_AUTO_TEST_CASE(a_sweep_without_time_for_a_configuration_says_that_none_was_tried) {
  const tests::ScopedEnvironment slow("FAKE_RANK_STEP_MS", "700");
  write_sweep([](json&) {});
  const Answer answer =
      run({"sweep", folder.file("sweep.json"), "--db", db, "--max-seconds", "1", "--quiet"});
  BOOST_TEST_CONTEXT(answer.out << answer.err) {
    BOOST_TEST(answer.code == 12);
    BOOST_TEST(answer.out.find("\nno configuration was tried to its end\n") != std::string::npos);
    BOOST_TEST(answer.err.starts_with(
        "moetune: no configuration was tried to its end: the budget of 1 seconds is used up"));
  }
}

BOOST_AUTO_TEST_CASE(pipes_are_neither_databases_nor_reports) {
  const std::string pipe = folder.file("pipe");
  BOOST_REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::filesystem::create_symlink(pipe, folder.file("link.db"));
  write_sweep([](json&) {});
  for (const std::string& path : {pipe, folder.file("link.db")}) {
    check_refused({"ls", "--db", path}, 2, {path, "not a regular file"});
    check_refused({"show", "--db", path, "1"}, 2, {path, "not a regular file"});
    check_refused({"report", path}, 2, {path, "not a regular file"});
    check_refused({"db", "upgrade", path}, 2, {path, "not a regular file"});
    check_refused({"trial", spec, "--db", path}, 2, {path, "not a regular file"});
    check_refused({"sweep", folder.file("sweep.json"), "--db", path}, 2,
                  {path, "not a regular file"});
  }
  BOOST_REQUIRE(run({"trial", spec, "--db", db}).code == 0);
  check_refused({"report", db, "--out", pipe}, 2, {pipe, "not a regular file"});
  BOOST_TEST(std::filesystem::is_fifo(pipe));
  for (const char* suffix : {"-journal", "-wal", ".lock", ".running", ".text"}) {
    BOOST_TEST(!std::filesystem::exists(pipe + suffix));
    BOOST_TEST(!std::filesystem::exists(folder.file("link.db") + suffix));
  }
}

BOOST_AUTO_TEST_CASE(outputs_take_no_other_files_place) {
  BOOST_REQUIRE(run({"trial", spec, "--db", db, "--quiet"}).code == 0);
  write_sweep([](json&) {});
  const std::string sweep = folder.file("sweep.json");
  const std::string other_db = folder.file("other.db");
  const std::string later = folder.file("later.db");
  std::filesystem::copy_file(db, other_db);
  const std::vector<std::string> plan = {"plan", "--model", "qwen3-30b-a3b", "--hardware",
                                         "h100-80g"};
  const auto planned = [&](const char* option, const std::string& path) {
    std::vector<std::string> words = plan;
    words.insert(words.end(), {option, path});
    return words;
  };
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"trace", db, "best", "--out", db}, "runs.db: is what this command reads"},
      {{"trace", db, "best", "--out", other_db}, "other.db: is a database"},
      {{"calibrate", "--db", db, "--out", db}, "runs.db: is what this command reads"},
      {{"calibrate", "--db", db, "--out", sweep}, "sweep.json: is there already and is no file of"},
      {{"trial", spec, "--trace-out", spec}, "trial.json: is what this command reads"},
      {{"trial", spec, "--trace-out", other_db}, "other.db: is a database"},
      {{"trial", spec, "--trace-out", sweep}, "sweep.json: is there already and is no trace"},
      {{"trial", spec, "--db", later, "--trace-out", later}, "is what this command reads"},
      {{"probe", sweep, "--out", sweep}, "sweep.json: is what this command reads"},
      {{"probe", sweep, "--out", spec}, "trial.json: is there already and is no hardware file"},
      {planned("--trace-out", sweep), "sweep.json: is there already and is no trace"},
      {planned("--report", sweep), "is no HTML page"}};
  for (const auto& [words, says] : wrong) {
    const std::string before = tests::read_text(words.back());
    check_refused(words, 2, {says});
    BOOST_TEST((tests::read_text(words.back()) == before), says);
  }
  // What was written so before is written anew.
  const std::string trace = folder.file("step.json");
  for (const char* time : {"first", "second"}) {
    BOOST_TEST(run({"trial", spec, "--quiet", "--trace-out", trace}).code == 0, time);
  }
  const std::string packed = folder.file("step.pftrace");
  for (const char* time : {"first", "second"}) {
    BOOST_TEST(run({"trial", spec, "--quiet", "--trace-out", packed}).code == 0, time);
  }
}

BOOST_AUTO_TEST_CASE(a_running_row_of_a_dead_process_says_so) {
  const auto add_running = [&](const std::string& change) {
    store::Store store = store::Store::open(db);
    store::SweepRow sweep;
    sweep.config_hash = "0";
    store::TrialRow trial;
    trial.sweep_id = store.create_or_resume_sweep(sweep).id;
    trial.spec_hash = change;
    trial.spec_json = "{}";
    trial.phase = "fit";
    store.begin_trial(trial);
    if (!change.empty()) store.database().execute("UPDATE trial SET " + change);
  };
  add_running("lease_start = lease_start + 1");
  json list = json::parse(run({"ls", db, "--format", "json"}).out);
  BOOST_TEST(list.at(0).at("status") == "running");
  BOOST_TEST(list.at(0).at("reason") == "its process is gone; the next sweep repeats it");
  BOOST_TEST(run({"ls", db, "--status", "running"}).out.find("is gone") != std::string::npos);
  BOOST_TEST(run({"show", db, "1"}).out.find("is gone") != std::string::npos);
  // This test process lives.
  store::Store::open(db).database().execute("UPDATE trial SET lease_start = lease_start - 1");
  list = json::parse(run({"ls", db, "--format", "json"}).out);
  BOOST_TEST(list.at(0).at("reason") == "");
}

BOOST_AUTO_TEST_CASE(databases_are_upgraded_on_request) {
  BOOST_REQUIRE(run({"trial", spec, "--db", db}).code == 0);
  const std::string schema = std::to_string(store::Store::schema_version());
  for (const auto& words : {std::vector<std::string>{"db", "upgrade", db},
                            std::vector<std::string>{"db", "upgrade", "--db", db}}) {
    const Answer answer = run(words);
    BOOST_TEST(answer.code == 0);
    BOOST_TEST(answer.out == db + ": schema " + schema + " is already that of this moetune\n");
  }
  BOOST_TEST(run({"ls", db}).code == 0);
  BOOST_TEST(!std::filesystem::exists(db + ".lock"));

  check_refused({"db"}, 2, {"upgrade", "is missing"});
  check_refused({"db", "downgrade", db}, 2, {"downgrade", "upgrade"});
  check_refused({"db", "upgrade"}, 2, {"database"});
  check_refused({"db", "upgrade", folder.file("none.db")}, 2, {"none.db", "no such database"});
  BOOST_TEST(!std::filesystem::exists(folder.file("none.db.lock")));
  check_refused({"db", "upgrade", spec}, 2, {spec, "not a moetune database"});
  // One of a later moetune stays as it is.
  store::Store::open(db).database().execute("PRAGMA user_version = 99");
  check_refused({"db", "upgrade", db}, 2, {db, "99"});
}

BOOST_AUTO_TEST_CASE(a_full_disk_is_one_message_and_the_database_stays_usable) {
  const std::string disk = folder.file("disk");
  std::filesystem::create_directory(disk);
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=400k") != 0) {
    BOOST_TEST_MESSAGE("no right to mount a small disk: not tested");
    return;
  }
  const std::string small = disk + "/runs.db";
  int code = 0;
  std::string error;
  for (int i = 0; i < 50 && code == 0; ++i) {
    const Answer answer = run({"trial", spec, "--db", small, "--quiet", "--set",
                               "linear_ce_chunk_tokens=" + std::to_string(64 * (i + 1))});
    code = answer.code;
    error = answer.err;
  }
  const Answer listed = run({"ls", small, "--format", "json"});
  umount(disk.c_str());
  BOOST_TEST_CONTEXT(error) {
    BOOST_TEST(code == 12);
    BOOST_TEST(error.find(disk) != std::string::npos);
    BOOST_TEST(error.find("full") != std::string::npos);
  }
  BOOST_TEST(listed.code == 0);
  BOOST_TEST(!json::parse(listed.out).empty());
}

BOOST_AUTO_TEST_CASE(a_file_size_limit_is_an_error_and_no_crash) {
  Command limited{
      {"/bin/bash", "-c",
       "ulimit -f 64; exec " + tests::bin("moetune") + " trial " + spec + " --db " + db},
      {},
      folder.file("out"),
      folder.file("err")};
  SystemProcessRunner runner;
  const auto end = runner.start(limited)->wait(seconds(60));
  BOOST_REQUIRE(end.has_value());
  BOOST_TEST(!end->is_signal);
  BOOST_TEST(end->code == 12);
  BOOST_TEST(tests::read_text(folder.file("err")).find(db) != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
