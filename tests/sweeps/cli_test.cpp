// The program itself: sub-commands, listings and exit codes.
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/spec/megatron_flags.h"
#include "profiler/store/store.h"
#include "sweeps/commands/commands.h"
#include "sweeps/listing.h"
#include "sweeps/stored_flags.h"
#include "sweeps/sweep_lock.h"
#include "tests/sweeps/cli_fixture.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(cli, tests::Cli)

namespace {

using nlohmann::json;
using std::chrono::seconds;
using tests::Answer;

std::set<std::string> keys_of(const json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

const std::set<std::string> kListKeys = {"id",
                                         "sweep",
                                         "hash",
                                         "phase",
                                         "title",
                                         "status",
                                         "reason",
                                         "knobs",
                                         "predicted_peak_bytes",
                                         "wall",
                                         "step_ns",
                                         "loss",
                                         "peak_bytes",
                                         "predicted_step_ns",
                                         "tokens_per_s",
                                         "marks",
                                         "is_kept",
                                         "is_cleared",
                                         "validated",
                                         "parent",
                                         "changes",
                                         "changes_from_first_fit",
                                         "num_measurements",
                                         "environment"};

}  // namespace

BOOST_AUTO_TEST_CASE(a_trial_is_run_stored_listed_and_shown) {
  const Answer ran = run({"trial", spec, "--db", db, "--format", "json"});
  BOOST_TEST_CONTEXT(ran.err) { BOOST_REQUIRE(ran.code == 0); }
  const json trial = json::parse(ran.out);
  BOOST_TEST(trial.at("status") == "ok");
  BOOST_TEST(trial.at("step_ns") == 1'500'000);
  BOOST_TEST(trial.at("steps").size() == 5U);

  const Answer listed = run({"ls", "--db", db, "--format", "json"});
  BOOST_REQUIRE(listed.code == 0);
  const json list = json::parse(listed.out);
  BOOST_REQUIRE(list.size() == 1U);
  BOOST_TEST((keys_of(list[0]) == kListKeys));
  BOOST_TEST(list[0].at("knobs").at("data_parallel_size") == 2);
  BOOST_TEST(list[0].at("knobs").at("recompute") == "none");
  BOOST_TEST(list[0].at("knobs").at("overlap_grad_reduce") == false);
  BOOST_TEST(list[0].at("predicted_step_ns") > 0);
  BOOST_TEST(list[0].at("predicted_peak_bytes") > 0);
  BOOST_TEST(list[0].at("wall") == "communication");

  const Answer table = run({"ls", db});
  BOOST_TEST(table.code == 0);
  BOOST_TEST(table.out.find("1.50 ms") != std::string::npos);
  BOOST_TEST(json::parse(run({"ls", db, "--status", "oom", "--format", "json"}).out).empty());
  BOOST_TEST(run({"ls", db, "--status", "oom"}).out == db + ": no trials that ended as oom\n");
  BOOST_TEST(run({"ls", db, "--hunts"}).out == db + ": no hunts\n");

  const Answer shown = run({"show", "--db", db, "1", "--format", "json"});
  BOOST_TEST(json::parse(shown.out).at("hash") == list[0].at("hash"));
  const std::string prefix = list[0].at("hash").get<std::string>().substr(0, 6);
  const Answer text = run({"show", db, prefix});
  BOOST_TEST(text.code == 0);
  BOOST_TEST(text.out.find("communication") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_a_gpu_tells_is_shown) {
  const std::string account = R"({"ranks": [
      {"rank": 0, "lines": [{"name": "peak of the ledger", "bytes": 3145728},
                            {"name": "bad\u001b[31mname", "bytes": 1048576}]},
      {"rank": 1, "lines": [{"name": "peak of the ledger", "bytes": 2097152}]}],
      "driver_used_bytes": 8388608})";
  const tests::ScopedEnvironment memory("FAKE_RANK_DEVICE_MEMORY", account);
  const tests::ScopedEnvironment note("FAKE_RANK_TRACE_NOTE", "GPU activity is not\ttraced: why.");
  const tests::ScopedEnvironment graphs("FAKE_RANK_GRAPHS", "yes");
  BOOST_REQUIRE(run({"trial", spec, "--db", db, "--quiet"}).code == 0);
  const Answer text = run({"show", db, "1"});
  BOOST_TEST_CONTEXT(text.out) {
    BOOST_TEST(text.code == 0);
    BOOST_TEST(text.out.find("\nMemory of the device\n"
                             "  2 ranks                      bytes    share\n"
                             "  peak of the ledger        5.00 MiB   62.5 %\n"
                             "  bad [31mname              1.00 MiB   12.5 %\n"
                             "  not explained             2.00 MiB   25.0 %\n"
                             "  used, as the driver says  8.00 MiB  100.0 %\n"
                             "\nTrace\n  GPU activity is not traced: why.\n"
                             "\nGraphs (all ranks)\n"
                             "  6 captured, 81 launches of them, 1 parts given up\n") !=
               std::string::npos);
  }
  // On a narrow terminal tables are cut, but not what explains them.
  const auto store = store::Store::open_read_only(db);
  const std::string narrow = trial_details_text(store, store.get_trial("1"), 20);
  BOOST_TEST(narrow.find("\nTrace\n  GPU activity is\n  not traced: why.\n") != std::string::npos);
  const Answer shown = run({"show", db, "1", "--format", "json"});
  BOOST_REQUIRE(shown.code == 0);
  BOOST_TEST(json::parse(shown.out).at("texts").at("device_memory") == json::parse(account));
}

// Columns are left out in their order, so that those that stay are whole; sentences are wrapped.
BOOST_AUTO_TEST_CASE(tables_of_a_trial_fit_a_terminal) {
  BOOST_REQUIRE(run({"trial", spec, "--db", db, "--quiet"}).code == 0);
  const auto store = store::Store::open_read_only(db);
  const auto header_at = [&](std::optional<size_t> width) {
    const std::string text = trial_details_text(store, store.get_trial("1"), width);
    const size_t start = text.find("\n  attempt");
    BOOST_TEST_REQUIRE(start != std::string::npos, text);
    return text.substr(start + 1, text.find('\n', start + 1) - start - 1);
  };
  BOOST_TEST(header_at(std::nullopt).find("  when") != std::string::npos);
  const std::string narrow = header_at(72);
  BOOST_TEST(narrow.find("  when") == std::string::npos, narrow);
  BOOST_TEST(narrow.find("  step  ") != std::string::npos, narrow);
  BOOST_TEST(narrow.ends_with("  environment"), narrow);
}

BOOST_AUTO_TEST_CASE(an_account_of_memory_that_cannot_be_read_is_no_reason_to_fail) {
  int id = 0;
  for (const std::string& broken :
       {std::string("no JSON"), std::string(R"({"ranks": 1, "driver_used_bytes": 1e400})"),
        std::string(60'000, '[') + std::string(60'000, ']')}) {
    const tests::ScopedEnvironment memory("FAKE_RANK_DEVICE_MEMORY", broken);
    const std::string seed = std::to_string(++id);
    write_spec([&](json& document) { document["training"]["seed"] = id; });
    BOOST_REQUIRE(run({"trial", spec, "--db", db, "--quiet"}).code == 0);
    const Answer text = run({"show", db, seed});
    BOOST_TEST(text.code == 0);
    BOOST_TEST(text.out.find("\nMemory of the device\n  cannot be read\n") != std::string::npos);
    BOOST_TEST(text.out.find("\nTrace\n") == std::string::npos);
    const Answer shown = run({"show", db, seed, "--format", "json"});
    BOOST_REQUIRE(shown.code == 0);
    BOOST_TEST(json::parse(shown.out).at("texts").at("device_memory") == broken);
  }
}

BOOST_AUTO_TEST_CASE(the_trials_of_two_sweeps_are_told_apart) {
  BOOST_REQUIRE(run({"trial", spec, "--db", db}).code == 0);
  tests::write_text(folder.file("corpus"), std::string(5000, 'b') + "another text");
  BOOST_REQUIRE(run({"trial", spec, "--db", db}).code == 0);
  const json list = json::parse(run({"ls", db, "--format", "json"}).out);
  BOOST_REQUIRE(list.size() == 2U);
  BOOST_TEST(list[0].at("sweep") == 1);
  BOOST_TEST(list[1].at("sweep") == 2);
  BOOST_TEST(run({"ls", db}).out.starts_with("id  sweep  phase"));
  const json second = json::parse(run({"ls", db, "--sweep", "2", "--format", "json"}).out);
  BOOST_REQUIRE(second.size() == 1U);
  BOOST_TEST(second[0] == list[1]);
  check_refused({"ls", db, "--sweep", "7"}, 2, {db, "no sweep 7", "one of 1, 2"});
  check_refused({"ls", db, "--sweep", "last"}, 2, {"--sweep", "'last'"});
  BOOST_TEST(run({"report", db, "--sweep", "2", "--out", folder.file("page.html")}).code == 0);
}

BOOST_AUTO_TEST_CASE(a_printed_spec_is_what_a_launcher_starts) {
  const Answer printed = run({"trial", spec, "--set", "recompute=norm", "--print-spec"});
  BOOST_REQUIRE(printed.code == 0);
  const json document = json::parse(printed.out);
  BOOST_TEST(document.at("knobs").at("recompute") == "norm");
  tests::write_text(folder.file("printed.json"), printed.out);
  BOOST_TEST(run({"trial", folder.file("printed.json"), "--print-spec"}).out == printed.out);
  BOOST_TEST(run({"trial", folder.file("printed.json"), "--db", db}).code == 0);
}

BOOST_AUTO_TEST_CASE(trials_and_sweeps_of_several_processes) {
  const auto over_nccl = [](json& document) {
    document["backend"] = "cuda";
    document["communicator"] = "nccl";
    document["hardware"].update({{"num_nodes", 1}, {"devices_per_node", 8}});
    document.erase("clock");
  };
  check_refused({"trial", spec, "--launch", "srun"}, 2, {"--launch", "nccl", "threads"});
  write_spec(over_nccl);
  check_refused({"trial", spec, "--launch", "srun -n {rank}"}, 2, {"--launch", "{ranks}"});
  {
    // Virtual stages need what NCCL has not got: nothing is launched to find out.
    const tests::ScopedEnvironment launches("FAKE_RANK_LOG", folder.file("none"));
    const Answer refused = run({"trial", spec, "--set", "virtual_pipeline_model_parallel_size=2"});
    BOOST_TEST(refused.code == 2);
    BOOST_TEST(refused.err.find("vpp_within_communicator") != std::string::npos, refused.err);
    BOOST_TEST(!std::filesystem::exists(folder.file("none")));
  }
  write_spec([&](json& document) {
    over_nccl(document);
    document["hardware"].update({{"num_nodes", 2}, {"devices_per_node", 4}});
  });
  check_refused({"trial", spec}, 2, {"8 ranks with 4 GPUs", "--launch"});
  // A rule that is broken comes first: a launcher would not help.
  const Answer unruly = run({"trial", spec, "--set", "virtual_pipeline_model_parallel_size=2"});
  BOOST_TEST(unruly.code == 2);
  BOOST_TEST(tests::contains(unruly.err, "vpp_within_communicator"), unruly.err);
  BOOST_TEST(!tests::contains(unruly.err, "launcher"), unruly.err);
  write_spec(over_nccl);
  check_refused({"bisect", "--repo", ".", "--launch", "srun"}, 2, {"--launch", "--run"});
  const Answer trial = run({"trial", spec, "--db", db, "--format", "json"});
  BOOST_TEST_INFO(trial.err);
  BOOST_TEST_REQUIRE(trial.code == 0);
  BOOST_TEST(json::parse(trial.out).at("status") == "ok");

  write_sweep([&](json& sweep) {
    over_nccl(sweep);
    sweep["num_steps"] = 6;
    sweep["budget"] = {{"max_trials", 4}};
  });
  const tests::ScopedEnvironment log("FAKE_RANK_LOG", folder.file("launches"));
  const Answer sweep = run({"sweep", folder.file("sweep.json"), "--db", db, "--format", "json"});
  BOOST_TEST_INFO(sweep.err);
  BOOST_TEST_REQUIRE(sweep.code == 0);
  const json told = json::parse(sweep.out);
  const auto num_trials = told.at("num_run").get<size_t>();
  BOOST_TEST(num_trials >= 2U);
  // The reference run is one process, every other trial one for each of eight ranks.
  BOOST_TEST(tests::launches_in(folder.file("launches")).size() == 1 + 8 * (num_trials - 1));
  // A sweep's last lines can be pasted where its winner is to be trained.
  BOOST_TEST(told.at("megatron_flags")[0] == "--num-layers");
  const auto store = store::Store::open_read_only(db);
  const std::string id = std::to_string(*store.read_sweeps().back().winner_trial);
  const Answer text = run({"sweep", folder.file("sweep.json"), "--db", db, "--quiet"});
  BOOST_TEST_CONTEXT(text.out) {
    BOOST_TEST(text.code == 0);
    BOOST_TEST(text.out.ends_with("\nMegatron-LM flags of trial " + id +
                                  ", to go behind the training script:\n" +
                                  flags_block(store.get_trial(id))));
  }
}

// Started here or by a launcher, asked to stop or killed: no process of the trial is left.
BOOST_AUTO_TEST_CASE(the_processes_of_a_trial_end_with_the_program) {
  write_spec([](json& trial) {
    trial["backend"] = "cuda";
    trial["communicator"] = "nccl";
    trial["hardware"].update({{"num_nodes", 1}, {"devices_per_node", 8}});
    trial.erase("clock");
    trial["num_steps"] = 10'000;
  });
  tests::write_text(folder.file("launcher"),
                    "pids=; for rank in 0 1 2 3 4 5 6 7; do\n"
                    "  SLURM_PROCID=$rank \"$@\" & pids=\"$pids $!\"\ndone\nwait $pids\n");
  const tests::ScopedEnvironment pace("FAKE_RANK_STEP_MS", "20");
  int number = 0;
  for (const bool is_launched : {false, true}) {
    for (const int signal_number : {SIGKILL, SIGINT}) {
      BOOST_TEST_CONTEXT((is_launched ? "launched, " : "started here, ") << signal_number) {
        const std::string log = folder.file("log" + std::to_string(++number));
        const tests::ScopedEnvironment launches("FAKE_RANK_LOG", log);
        std::vector<std::string> words = {"trial", spec, "--db",
                                          folder.file("db" + std::to_string(number))};
        if (is_launched) {
          words.insert(words.end(), {"--launch", "/bin/sh " + folder.file("launcher")});
        }
        const std::unique_ptr<Process> process = start(words);
        // All of them have come to the first step, or the first would not have gone on.
        const auto is_going = [&] {
          std::error_code ignored;
          for (const auto& entry :
               std::filesystem::recursive_directory_iterator(words[3] + ".running", ignored)) {
            if (entry.path().filename() == "at-1-0") return true;
          }
          return false;
        };
        BOOST_REQUIRE(tests::eventually(is_going));
        const std::vector<tests::Launch> ranks = tests::launches_in(log);
        BOOST_TEST(ranks.size() == 8U);
        BOOST_REQUIRE(kill(static_cast<pid_t>(process->pid()), signal_number) == 0);
        BOOST_TEST(tests::eventually([&] {
          return std::ranges::none_of(
              ranks, [](const tests::Launch& rank) { return tests::is_running(rank.pid); });
        }));
        const auto end = process->wait(seconds(60));
        BOOST_REQUIRE(end.has_value());
        BOOST_TEST(end->code == (signal_number == SIGKILL ? SIGKILL : 14));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_same_trial_is_not_run_twice) {
  const tests::ScopedEnvironment log("FAKE_RANK_LOG", folder.file("launches"));
  for (int i = 0; i < 2; ++i) BOOST_TEST(run({"trial", spec, "--db", db}).code == 0);
  BOOST_TEST(tests::launches_in(folder.file("launches")).size() == 1U);
  BOOST_TEST(run({"trial", spec, "--db", db, "--set", "recompute=norm"}).code == 0);
  BOOST_TEST(tests::launches_in(folder.file("launches")).size() == 2U);
}

BOOST_AUTO_TEST_CASE(without_a_database_nothing_is_kept_but_the_trace_that_was_asked_for) {
  const std::string trace = folder.file("trace.json");
  const Answer answer = run({"trial", spec, "--trace-out", trace});
  BOOST_TEST(answer.code == 0);
  BOOST_TEST(answer.out.find("1.50 ms") != std::string::npos);
  const json document = json::parse(tests::read_text(trace));
  BOOST_TEST(document.at("traceEvents").size() > 8U);
  std::set<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(trace).parent_path())) {
    files.insert(entry.path().filename());
  }
  BOOST_TEST((files == std::set<std::string>{"corpus", "trial.json", "trace.json", "out", "err"}));
}

BOOST_AUTO_TEST_CASE(exit_codes_say_how_the_trial_ended) {
  const auto code_with = [&](const char* fault) {
    write_spec([&](json& document) { document["fault"] = {{"kind", fault}, {"step", 1}}; });
    return run({"trial", spec, "--step-limit", "1"}).code;
  };
  BOOST_TEST(code_with("error") == 12);
  BOOST_TEST(code_with("crash") == 12);
  BOOST_TEST(code_with("nan") == 11);
  BOOST_TEST(code_with("hang") == 13);
  write_spec([](json& document) { document["fault"]["kind"] = ""; });
  BOOST_TEST(run({"trial", spec, "--set", "micro-batch-size=4"}).code == 10);
  const Answer invalid = run({"trial", spec, "--set", "expert_model_parallel_size=3"});
  BOOST_TEST(invalid.code == 2);
  BOOST_TEST(invalid.out.find("invalid") != std::string::npos);
  BOOST_TEST(invalid.err.starts_with("moetune: 2 mistakes:\n  " + spec + ": key 'knobs.expert_"));
  BOOST_TEST(run({"trial", spec, "--db", db, "--set", "expert_model_parallel_size=3"}).code == 2);
  const json list = json::parse(run({"ls", db, "--format", "json"}).out);
  BOOST_TEST(list.at(0).at("status") == "invalid");
  // What the help says of them.
  const std::string help = run({"--help"}).out;
  const auto row = help.find("  12  the trial ended as failed or crashed");
  BOOST_REQUIRE(row != std::string::npos);
  const std::string text = help.substr(row, help.find("\n  13 ") - row);
  for (const char* cause : {"locked", "damaged", "full", "any other error"}) {
    BOOST_TEST(text.find(cause) != std::string::npos, "code 12 names: " << cause);
  }
}

// As a sweep says of its reference run.
BOOST_AUTO_TEST_CASE(a_trial_whose_losses_explode_is_wrong) {
  write_spec([](json& document) { document["training"]["lr"] = 0.5; });
  const tests::ScopedEnvironment diverges("FAKE_RANK_DIVERGES", "yes");
  const Answer answer = run({"trial", spec, "--quiet", "--format", "json"});
  BOOST_TEST(answer.code == 11);
  const json trial = json::parse(answer.out);
  BOOST_TEST(trial.at("status") == "wrong");
  BOOST_TEST(trial.at("reason") ==
             "the run diverged at step 1 (loss 200, at step 0 5): lower training.lr, which is 0.5");
  // What has a reference is judged by that.
  write_spec([](json& document) { document["reference_loss"] = {5.0, 200.0}; });
  BOOST_TEST(run({"trial", spec, "--quiet"}).code == 0);
}

BOOST_AUTO_TEST_CASE(a_locked_or_damaged_database_or_full_output_ends_with_code_12) {
  BOOST_REQUIRE(run({"trial", spec, "--db", db}).code == 0);
  {
    const SweepLock lock(db);
    check_refused({"trial", spec, "--db", db}, 12, {db, "another moetune"});
  }
  BOOST_TEST(run({"trial", spec, "--quiet", "--trace-out", "/dev/full"}).code == 12);
  const std::string full = tests::bin("moetune") + " ls " + db + " >/dev/full";
  SystemProcessRunner runner;
  const auto end = runner.start({{"/bin/sh", "-c", full}, {}, "/dev/null", folder.file("err")})
                       ->wait(seconds(60));
  BOOST_REQUIRE(end.has_value());
  BOOST_TEST(end->code == 12);
  // Pages of the tables are overwritten; the header, by which SQLite knows its files, stays.
  std::fstream file(db, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(4096);
  file << std::string(std::filesystem::file_size(db) - 4096, 'x') << std::flush;
  file.close();
  check_refused({"ls", db}, 12, {db, "damaged"});
}

BOOST_AUTO_TEST_CASE(a_text_that_is_too_large_is_cut_and_said_to_be) {
  // Holes cost no disk: what is read of them is zero bytes, as good as any others here.
  std::filesystem::resize_file(folder.file("corpus"), uintmax_t{6} << 30);
  const Answer answer = run({"trial", spec, "--quiet", "--db", db});
  BOOST_TEST(answer.code == 0);
  BOOST_TEST(answer.err == "moetune: note: " + spec + ": key 'data_path': '" +
                               folder.file("corpus") +
                               "' holds more than 64.0 MiB of text; the rest is not read\n");
}

BOOST_AUTO_TEST_CASE(ctrl_c_ends_the_trial_and_is_stored) {
  const tests::ScopedEnvironment log("FAKE_RANK_LOG", folder.file("launches"));
  const tests::ScopedEnvironment slow("FAKE_RANK_STEP_MS", "500");
  const auto process = start({"trial", spec, "--db", db});
  const auto launches = [&] { return tests::launches_in(folder.file("launches")); };
  BOOST_REQUIRE(tests::eventually([&] { return launches().size() == 1; }));
  BOOST_REQUIRE(kill(static_cast<pid_t>(process->pid()), SIGINT) == 0);
  BOOST_TEST(finish(*process).code == 14);
  BOOST_TEST(!tests::is_running(launches().front().pid));
  const json list = json::parse(run({"ls", db, "--format", "json"}).out);
  BOOST_TEST(list.at(0).at("status") == "interrupted");
}

BOOST_AUTO_TEST_CASE(a_sweep_from_standard_input_says_that_it_needs_the_file_again) {
  const tests::ScopedEnvironment log("FAKE_RANK_LOG", folder.file("launches"));
  const tests::ScopedEnvironment slow("FAKE_RANK_STEP_MS", "500");
  const auto told_after_ctrl_c = [&](const std::string& line) {
    std::filesystem::remove(folder.file("launches"));
    SystemProcessRunner runner;
    const auto process =
        runner.start({{"/bin/sh", "-c", "exec " + tests::bin("moetune") + " " + line},
                      {},
                      folder.file("out"),
                      folder.file("err")});
    const auto launches = [&] { return tests::launches_in(folder.file("launches")); };
    BOOST_REQUIRE(tests::eventually([&] { return launches().size() == 1; }));
    BOOST_REQUIRE(kill(static_cast<pid_t>(process->pid()), SIGINT) == 0);
    const Answer answer = finish(*process);
    BOOST_TEST(answer.code == 14);
    return answer.err;
  };
  write_sweep([](json&) {});
  const std::string file = folder.file("sweep.json");
  const std::string typed = told_after_ctrl_c("sweep - --db " + db + " < " + file);
  BOOST_TEST(typed.find("to go on where it stopped, with the same file at standard input: cd ") !=
                 std::string::npos,
             typed);
  const std::string named = told_after_ctrl_c("sweep " + file + " --db " + db);
  BOOST_TEST(named.find("to go on where it stopped: cd ") != std::string::npos, named);
}

BOOST_AUTO_TEST_CASE(the_text_stays_as_it_was_while_trials_run) {
  const tests::ScopedEnvironment log("FAKE_RANK_LOG", folder.file("launches"));
  const tests::ScopedEnvironment slow("FAKE_RANK_STEP_MS", "100");
  const auto process = start({"trial", spec, "--db", db, "--format", "json"});
  BOOST_REQUIRE(
      tests::eventually([&] { return tests::launches_in(folder.file("launches")).size() == 1; }));
  tests::write_text(folder.file("corpus"), std::string(5000, 'b') + "edited");
  BOOST_TEST(tests::read_text(db + ".text").ends_with("some text to train on"));
  const Answer answer = finish(*process);
  BOOST_TEST(answer.code == 0);
  BOOST_TEST(json::parse(answer.out).at("spec").at("data_path") == folder.file("corpus"));
  BOOST_TEST(!std::filesystem::exists(db + ".text"));
}

BOOST_AUTO_TEST_CASE(every_command_has_help) {
  for (const CommandRow& row : command_table()) {
    const std::string command(row.name);
    const Answer answer = run({command, "--help"});
    BOOST_TEST(answer.code == 0);
    BOOST_TEST(answer.out.starts_with("usage: moetune " + command));
    BOOST_TEST(run({"help", command}).out == answer.out);
  }
  BOOST_TEST(run({"--help"}).code == 0);
  BOOST_TEST(run({"--version"}).out.starts_with("moetune "));
  BOOST_TEST(run({"-V"}).out == run({"--version"}).out);
}

BOOST_AUTO_TEST_CASE(knobs_are_listed_in_three_forms) {
  const json knobs = json::parse(run({"knobs", "--format", "json"}).out);
  BOOST_TEST(knobs.size() == spec::knob_table().size());
  BOOST_TEST(run({"knobs", "--markdown"}).out == spec::knobs_markdown());
  const std::string table = run({"knobs"}).out;
  for (const spec::KnobRow& row : spec::knob_table()) {
    BOOST_TEST(table.find("\n" + std::string(row.name) + " ") != std::string::npos, row.name);
    const std::string flag(spec::has_megatron_flag(row) ? row.megatron_flag : "none");
    BOOST_TEST(table.find("  " + flag + "  ") != std::string::npos, flag);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
