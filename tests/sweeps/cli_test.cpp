// The program itself: sub-commands, listings, exit codes and messages for bad input.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/spec/megatron_flags.h"
#include "profiler/store/db.h"
#include "profiler/store/store.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/listing.h"
#include "sweeps/stored_flags.h"
#include "sweeps/sweep_lock.h"
#include "tests/sweeps/cli_fixture.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using tests::Answer;
using tests::Cli;

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
                                         "parent",
                                         "changes",
                                         "changes_from_first_fit",
                                         "num_measurements",
                                         "environment"};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(cli, Cli)

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

BOOST_AUTO_TEST_CASE(the_rank_program_takes_each_size_of_a_layout_once) {
  const auto refused = [&](const std::string& layout, const std::string& why) {
    std::filesystem::remove(folder.file("err"));
    SystemProcessRunner runner;
    const Command command{
        {tests::bin("moetune-rank"), "--verify", folder.file(""), "--layout", layout},
        {},
        "/dev/null",
        folder.file("err")};
    const auto end = runner.start(command)->wait(seconds(60));
    BOOST_REQUIRE(end.has_value());
    BOOST_TEST(end->code == 2);
    const std::string error = tests::read_text(folder.file("err"));
    BOOST_TEST_CONTEXT(error) {
      BOOST_TEST(error.find(why) != std::string::npos);
      BOOST_TEST(error.find("(layout_syntax)") != std::string::npos);
    }
  };
  for (const char* why : {"key 'dp' is 0", "key 'ep' is 1.5", "unknown key 'fsdp'"}) {
    refused(R"({"dp": 0, "ep": 1.5, "fsdp": 2})", why);
  }
  refused(R"({"dp": 1, "dp": 2})", "--layout: key 'dp' is there twice");
  refused(R"({"dp": 0})", "--layout: key 'dp' is 0, expected an integer from 1 to 1024");
  refused(R"({"tp": -2})", "--layout: key 'tp' is -2, expected an integer from 1 to 1024");
  refused(R"({"ep": 1.5})", "--layout: key 'ep' is 1.5, expected an integer from 1 to 1024");
  refused(R"({"cp": 2, "cp_comm_type": "a2a"})", "'cp_comm_type' is \"a2a\"");
  refused(R"({"fsdp": 2})", "--layout: unknown key 'fsdp'");
  refused("[2]", "--layout: found an array");
  refused("{\"dp\"", "--layout: ");
}

BOOST_AUTO_TEST_CASE(the_rank_program_refuses_layouts_that_cannot_be) {
  const auto refused = [&](const std::string& model, const std::string& layout,
                           const std::string& rule) {
    std::filesystem::remove(folder.file("err"));
    SystemProcessRunner runner;
    const Command command{
        {tests::bin("moetune-rank"), "--verify",
         std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/" + model, "--layout", layout},
        {},
        "/dev/null",
        folder.file("err")};
    const auto end = runner.start(command)->wait(seconds(60));
    BOOST_REQUIRE(end.has_value());
    const std::string error = tests::read_text(folder.file("err"));
    BOOST_TEST_CONTEXT(layout << ": " << error) {
      BOOST_TEST(end->code == 2);
      BOOST_TEST(error.find("impossible") != std::string::npos);
      BOOST_TEST(error.find("(" + rule + ")") != std::string::npos);
    }
  };
  refused("mixtral", R"({"tp": 3})", "tp_divides_heads");
  refused("mixtral", R"({"tp": 4})", "tp_divides_heads");
  refused("mixtral", R"({"dp": 2, "etp": 2, "ep": 2})", "ep_divides_plane");
  refused("mixtral", R"({"dp": 5, "etp": 5})", "etp_divides_width");
  refused("mixtral", R"({"vpp": 2})", "vpp_needs_pp");
  // All that are broken, not the first.
  for (const char* rule : {"tp_divides_heads", "vpp_needs_pp"}) {
    refused("mixtral", R"({"tp": 3, "vpp": 2})", rule);
  }
  refused("mixtral", R"({"pp": 2, "vpp": 2})", "vpp_divides_layers");
  refused("qwen3_moe_mixed", R"({"dp": 2, "pp": 2, "vpp": 2})", "vpp_divides_micro_batches");
  refused("llama", R"({"cp": 5, "cp_comm_type": "p2p"})", "cp_divides_sequence");
}

BOOST_AUTO_TEST_CASE(the_rank_program_takes_every_axis_of_a_layout) {
  const auto verdict = [&](const std::string& layout) {
    std::filesystem::remove(folder.file("out"));
    SystemProcessRunner runner;
    const Command command{{tests::bin("moetune-rank"), "--verify",
                           std::string(MOETUNE_SOURCE_DIR) + "/tests/golden/qwen3_moe_mixed",
                           "--format", "json", "--layout", layout},
                          {},
                          folder.file("out"),
                          folder.file("err")};
    const auto end = runner.start(command)->wait(seconds(60));
    BOOST_REQUIRE(end.has_value());
    BOOST_REQUIRE_MESSAGE(end->code == 0, tests::read_text(folder.file("err")));
    return json::parse(tests::read_text(folder.file("out")));
  };
  const json spread = verdict(
      R"({"tp": 2, "etp": 1, "cp": 2, "cp_comm_type": "p2p", "ep": 2, "pp": 2, "vpp": 2, "dp": 1})");
  BOOST_TEST(spread.at("ok") == true);
  // Sums in another order: the layout was not that of one rank.
  BOOST_TEST(spread != verdict("{}"));
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
