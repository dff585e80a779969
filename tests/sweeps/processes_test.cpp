// Trials of several processes: who is started and how, whose end it was, and one result from many
// shards.
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/plan/layout.h"
#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"
#include "profiler/store/shard.h"
#include "sweeps/merge_shards.h"
#include "sweeps/processes/last_words.h"
#include "sweeps/processes/process_group.h"
#include "sweeps/processes/trial_commands.h"
#include "sweeps/runner.h"
#include "sweeps/session.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using tests::contains;
using tests::TempFolder;

spec::TrialSpec trial_of_processes() {
  spec::TrialSpec trial = tests::small_trial();
  trial.backend = spec::BackendKind::cuda;
  trial.clock = spec::ClockMode::wall;
  trial.communicator = spec::CommunicatorKind::nccl;
  trial.hardware.num_nodes = 1;
  trial.hardware.devices_per_node = 8;
  return trial;
}
constexpr milliseconds kStepLimit{60'000};
int num_ranks() { return plan::layout_of(trial_of_processes().knobs).world_size(); }

struct Group {
  TempFolder folder;
  SystemProcessRunner runner;

  ProcessGroup start(const std::vector<std::string>& scripts, milliseconds patience = seconds(20)) {
    std::vector<std::unique_ptr<Process>> members;
    for (const std::string& script : scripts) {
      members.push_back(
          runner.start({{"/bin/sh", "-c", script}, {}, folder.file("out"), folder.file("err")}));
    }
    return {std::move(members), patience};
  }
};

ProcessEnd wait_for(Process& process) {
  const auto end = process.wait(seconds(60));
  BOOST_REQUIRE(end.has_value());
  return *end;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(process_group, Group)

BOOST_AUTO_TEST_CASE(it_ends_when_the_last_has) {
  ProcessGroup group = start({"exit 0", "sleep 2", "exit 0"});
  BOOST_TEST(!group.wait(milliseconds(30)).has_value());
  BOOST_TEST(wait_for(group).code == 0);
}

BOOST_AUTO_TEST_CASE(the_cause_is_whoever_failed_of_itself) {
  // By what they say, not by who ends first.
  ProcessGroup group = start({"exit 24", "sleep 0.3; exit 10", "exit 24", "exit 0"});
  BOOST_TEST(wait_for(group).code == 10);
  BOOST_TEST(group.cause() == 1U);
  ProcessGroup killed = start({"exit 24", "exit 24", "kill -9 $$"});
  BOOST_TEST(wait_for(killed).is_signal);
  BOOST_TEST(wait_for(killed).code == 9);
  BOOST_TEST(killed.cause() == 2U);
  ProcessGroup unknown = start({"exit 0", "exit 24"});
  BOOST_TEST(wait_for(unknown).code == 24);
  BOOST_TEST(unknown.cause() == 1U);
}

BOOST_AUTO_TEST_CASE(the_first_of_several_causes_counts) {
  ProcessGroup group = start({"sleep 3; exit 12", "exit 10", "sleep 3; exit 12"});
  BOOST_TEST(wait_for(group).code == 10);
}

BOOST_AUTO_TEST_CASE(who_does_not_notice_that_another_failed_is_ended) {
  const auto begin = steady_clock::now();
  ProcessGroup group =
      start({"exit 10", "sleep 100", "trap '' TERM; sleep 100"}, milliseconds(300));
  const ProcessEnd end = wait_for(group);
  BOOST_TEST(end.code == 10);
  BOOST_TEST(!end.was_ended_by_us);
  BOOST_TEST((steady_clock::now() - begin < seconds(50)));
}

BOOST_AUTO_TEST_CASE(all_are_ended_at_the_same_time) {
  const std::string stubborn =
      "trap '' TERM; echo > '" + folder.file("ready") + "'$$; while :; do sleep 0.1; done";
  ProcessGroup group = start({stubborn, stubborn, stubborn, stubborn, stubborn, stubborn});
  const fs::path ready(folder.file("ready"));
  const auto num_ready = [&] {
    int64_t count = 0;
    for (const auto& entry : fs::directory_iterator(ready.parent_path())) {
      count += entry.path().filename().string().starts_with("ready") ? 1 : 0;
    }
    return count;
  };
  BOOST_REQUIRE(tests::eventually([&] { return num_ready() == 6; }));
  const auto begin = steady_clock::now();
  const ProcessEnd end = group.end(milliseconds(2000));
  BOOST_TEST(end.was_ended_by_us);
  BOOST_TEST(end.code == SIGKILL);
  BOOST_TEST((steady_clock::now() - begin < milliseconds(10'000)));  // one after the other: 12 s
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(trial_processes)

BOOST_AUTO_TEST_CASE(each_rank_is_a_process_that_knows_its_place) {
  const TrialFolder folder{"/f"};
  const TrialCommands one =
      trial_commands(tests::small_trial(), "/bin/engine", "", folder, kStepLimit);
  BOOST_TEST_REQUIRE(one.commands.size() == 1U);
  BOOST_TEST(one.commands.front().environment.empty());

  const TrialCommands all =
      trial_commands(trial_of_processes(), "/bin/engine", "", folder, kStepLimit);
  BOOST_TEST_REQUIRE(all.commands.size() == static_cast<size_t>(num_ranks()));
  BOOST_TEST(!all.is_launcher);
  std::set<std::string> outputs;
  std::set<std::string> meeting_places;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const Command& command = all.commands[static_cast<size_t>(rank)];
    const std::set<std::string> words(command.environment.begin(), command.environment.end());
    BOOST_TEST(words.contains("RANK=" + std::to_string(rank)));
    BOOST_TEST(words.contains("LOCAL_RANK=" + std::to_string(rank)));
    BOOST_TEST(words.contains("WORLD_SIZE=" + std::to_string(num_ranks())));
    outputs.insert(command.stderr_path);
    for (const std::string& word : words) {
      if (word.starts_with("MASTER_") || word.starts_with("TORCHELASTIC_RUN_ID")) {
        meeting_places.insert(word);
      }
    }
  }
  BOOST_TEST(outputs.size() == static_cast<size_t>(num_ranks()));
  BOOST_TEST(meeting_places.size() == 3U);
}

BOOST_AUTO_TEST_CASE(a_launcher_gets_the_numbers_it_asks_for) {
  const TrialFolder folder{"/a folder"};
  spec::TrialSpec trial = trial_of_processes();
  trial.hardware.num_nodes = 2;
  trial.hardware.devices_per_node = 4;
  const TrialCommands commands = trial_commands(
      trial, "/bin/engine", "srun -N {nodes} -n {ranks} --ntasks-per-node {ranks_per_node} ${MORE}",
      folder, kStepLimit);
  BOOST_TEST(commands.is_launcher);
  BOOST_TEST_REQUIRE(commands.commands.size() == 1U);
  const std::string line =
      "srun -N 2 -n 8 --ntasks-per-node 4 ${MORE} /bin/engine --spec "
      "'/a folder/spec.json' --out '/a folder' --step-timeout 70";
  BOOST_TEST(commands.text() == line);
  BOOST_TEST(contains(commands.commands.front().arguments.back(), line + " &"));
  // Without one there is nobody who could start them there.
  BOOST_CHECK_THROW(trial_commands(trial, "/bin/engine", "", folder, kStepLimit), base::UsageError);
  for (const char* wrong : {"", " \t", "srun {rank}", "srun {ranks", "srun {}"}) {
    BOOST_TEST_CONTEXT(wrong) { BOOST_CHECK_THROW(check_launcher(wrong), base::UsageError); }
  }
}

BOOST_AUTO_TEST_CASE(only_words_that_make_sense_are_heard) {
  const TempFolder temp;
  const TrialFolder folder{temp.file("")};
  const auto say = [&](int rank, const std::string& text) {
    tests::write_text(folder.last_word(rank), text);
  };
  say(0, R"({"code": 24, "message": "rank 2 is gone", "time_ns": 5})");
  say(1, R"({"code": "10", "message": "x", "time_ns": 1})");
  say(2, R"({"code": 10, "message": "no room", "time_ns": 9})");
  say(3, std::string(100'000, '['));
  say(4, R"({"code": 12, "message": "later", "time_ns": 10})");
  say(5, R"({"code": 0, "message": "", "time_ns": 1})");
  say(7, R"({"code": 999999999999, "message": "", "time_ns": 1})");
  const std::vector<LastWord> words = read_last_words(folder, 8);
  BOOST_TEST(words.size() == 4U);
  const auto cause = cause_of(words);
  BOOST_TEST_REQUIRE(cause.has_value());
  BOOST_TEST(cause->rank == 2);
  BOOST_TEST(cause->message == "no room");
  BOOST_TEST(silent_ranks(words, 8) == "ranks 1, 3, 6, 7 have");
  BOOST_TEST(silent_ranks({}, 1) == "rank 0 has");
  BOOST_TEST(silent_ranks({}, 100) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more have");
  BOOST_TEST(!cause_of({words.back()}).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

namespace {

/// Trials with the stand-in engine, started for real.
struct Trials {
  TempFolder folder;
  tests::ScopedEnvironment engine{"MOETUNE_RANK", tests::bin("fake_rank")};
  SystemProcessRunner runner;
  RunnerOptions options;

  Trials() {
    options.rank_program = tests::bin("fake_rank");
    options.folder = folder.file("trial");
  }

  TrialRun run(const spec::TrialSpec& trial) { return run_trial(runner, trial, options); }

  static spec::TrialSpec with_fault(spec::FaultKind kind, int rank, int64_t step = 1) {
    spec::TrialSpec trial = trial_of_processes();
    trial.fault = {kind, step, rank};
    return trial;
  }

  /// Ends with the highest exit code of its tasks, as srun does. Options are ignored.
  void launch_like_srun() {
    const std::string script = folder.file("srun");
    tests::write_text(script,
                      "while case \"$1\" in -*) true;; *) false;; esac; do shift; done\n"
                      "pids=; for rank in $(seq 0 $((NUM_RANKS - 1))); do\n"
                      "  SLURM_PROCID=$rank \"$@\" & pids=\"$pids $!\"\n"
                      "done\n"
                      "worst=0; for pid in $pids; do wait $pid; code=$?\n"
                      "  [ $code -gt $worst ] && worst=$code; done; exit $worst\n");
    options.launcher = "NUM_RANKS={ranks} /bin/sh " + script + " --wait=0";
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(trials_of_processes, Trials)

BOOST_AUTO_TEST_CASE(one_result_from_all_ranks) {
  for (const bool is_launched : {false, true}) {
    if (is_launched) launch_like_srun();
    BOOST_TEST_CONTEXT(options.launcher) {
      const TrialRun ended = run(trial_of_processes());
      BOOST_TEST_INFO(ended.result.reason);
      BOOST_TEST_REQUIRE(ended.result.status == "ok");
      BOOST_TEST(ended.result.wall != "");
      BOOST_TEST(ended.shard().steps.size() == 5U);
      const auto expected = static_cast<size_t>(num_ranks());
      BOOST_TEST(ended.shard().memory.size() == expected);
      BOOST_TEST_REQUIRE(ended.shard().traces.size() == expected);
      // What is stored is the merged shard.
      store::Store store = store::Store::open(folder.file(is_launched ? "b.db" : "a.db"));
      store::TrialRow row;
      row.sweep_id = store.create_or_resume_sweep(single_trials_row(trial_of_processes())).id;
      row.spec_json = "{}";
      row.spec_hash = "0123456789abcdef";
      row.phase = "profile";
      const int64_t id = store.begin_trial(row);
      store.finish_trial(id, ended.result);
      BOOST_TEST(store.read_memory(id).size() > expected);
      const std::vector<profiler::StepTrace> stored = store.read_trace(id);
      BOOST_TEST_REQUIRE(stored.size() == expected);
      for (size_t rank = 0; rank < expected; ++rank) {
        const profiler::StepTrace& trace = stored[rank];
        BOOST_TEST(trace.rank == static_cast<int32_t>(rank));
        // The clock of the odd ranks was a second ahead.
        BOOST_TEST(trace.start_ns == 0);
        // The even ranks waited for the odd ones, which came later.
        const profiler::TraceRecord& collective = trace.records.at(1);
        BOOST_TEST(collective.end_ns - collective.start_ns - collective.transfer_ns ==
                   (rank % 2 == 0 ? 2000 : 0));
      }
      std::set<int> ranks_with_budget;
      for (const store::MetricRow& metric : ended.result.metrics) {
        if (metric.name == "blocking_wait_ns") ranks_with_budget.insert(metric.rank);
      }
      BOOST_TEST(ranks_with_budget.size() == expected + 1);  // and the whole run
    }
  }
}

BOOST_AUTO_TEST_CASE(the_rank_that_began_it_gives_status_and_reason) {
  struct Case {
    spec::FaultKind fault;
    const char* status;
    const char* reason;
    const char* launched_reason;
  };
  for (const Case& c :
       {Case{spec::FaultKind::error, "failed", "a planned error (rank 3)",
             "a planned error (rank 3)"},
        Case{spec::FaultKind::nan, "wrong", "loss is NaN in step 1 (rank 3)",
             "loss is NaN in step 1 (rank 3)"},
        Case{spec::FaultKind::kill, "crashed",
             "killed by signal 9 (Killed), likely the kernel's out-of-memory killer",
             "rank 3 has ended without a word"}}) {
    for (const bool is_launched : {false, true}) {
      options.launcher.clear();
      if (is_launched) launch_like_srun();
      BOOST_TEST_CONTEXT(c.status << " " << options.launcher) {
        const TrialRun ended = run(with_fault(c.fault, 3));
        BOOST_TEST(ended.result.status == c.status);
        BOOST_TEST_INFO(ended.result.reason);
        BOOST_TEST(contains(ended.result.reason, is_launched ? c.launched_reason : c.reason));
        BOOST_TEST(contains(ended.result.reason, "(rank 3"));
        // What the others did until then is there.
        BOOST_TEST(!ended.shard().steps.empty());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(waiting_for_a_rank_that_has_failed_is_not_hanging) {
  const tests::ScopedEnvironment blind("FAKE_RANK_IGNORES_PEERS", "yes");
  options.step_limit = milliseconds(2000);
  options.grace = milliseconds(100);
  for (const bool is_launched : {false, true}) {
    if (is_launched) launch_like_srun();
    const TrialRun ended = run(with_fault(spec::FaultKind::error, 3));
    BOOST_TEST(ended.result.status == "failed");
    BOOST_TEST(ended.result.reason == "a planned error (rank 3)");
  }
}

BOOST_AUTO_TEST_CASE(out_of_memory_on_one_rank_is_out_of_memory) {
  spec::TrialSpec trial = trial_of_processes();
  trial.knobs.micro_batch_size = 4;
  trial.hardware.memory_bytes = 1'000'000;
  launch_like_srun();
  const TrialRun ended = run(trial);
  BOOST_TEST(ended.result.status == "oom");
  BOOST_TEST(contains(ended.result.reason, "out of memory on rank"), ended.result.reason);
}

BOOST_AUTO_TEST_CASE(a_rank_that_hangs_hangs_the_trial_and_none_is_left) {
  options.step_limit = milliseconds(3000);
  options.grace = milliseconds(100);
  const tests::ScopedEnvironment log("FAKE_RANK_LOG", folder.file("launches"));
  const TrialRun ended = run(with_fault(spec::FaultKind::hang, 0));
  BOOST_TEST(ended.result.status == "hung");
  const std::vector<tests::Launch> launches = tests::launches_in(folder.file("launches"));
  BOOST_TEST(launches.size() == static_cast<size_t>(num_ranks()));
  for (const tests::Launch& launch : launches) BOOST_TEST(!tests::is_running(launch.pid));
}

// What is wrong with the launcher or the machine is not the trial's result.
BOOST_AUTO_TEST_CASE(a_launch_that_fails_can_be_repeated) {
  for (const char* launcher :
       {"/no/such/srun -n {ranks}", "exit 10;", "exit 0;", "true", "false"}) {
    BOOST_TEST_CONTEXT(launcher) {
      options.launcher = launcher;
      BOOST_CHECK_EXCEPTION(run(trial_of_processes()), base::EnvironmentFailure,
                            tests::says("the launcher has started no rank", "--spec"));
    }
  }
  options.launcher.clear();
  spec::TrialSpec illegal = trial_of_processes();
  illegal.training.global_batch_size = 7;  // the engine refuses what this program would not start
  BOOST_CHECK_EXCEPTION(run(illegal), base::EnvironmentFailure, tests::says("cannot run here"));
}

BOOST_AUTO_TEST_CASE(what_a_rank_leaves_is_about_that_rank) {
  store::ShardContents shard;
  shard.path = "shard-2.db";
  shard.memory.push_back({2, 1, 2, {}, ""});
  shard.metrics = {{-1, "num_graphs", 1}, {2, "num_graphs", 1}};
  shard.steps.resize(3);
  BOOST_CHECK_NO_THROW(check_rank(shard, 2));
  BOOST_CHECK_EXCEPTION(check_rank(shard, 1), base::Error, tests::says("shard-2.db", "rank 2"));
  for (const int rank : {3, -5}) {
    store::ShardContents wrong = shard;
    wrong.metrics.push_back({rank, "num_graphs", 1});
    if (rank >= 0) BOOST_CHECK_THROW(check_rank(wrong, 2), base::Error);
    wrong = shard;
    wrong.traces.push_back({rank, 0, 0, 1, {}});
    BOOST_CHECK_THROW(check_rank(wrong, 2), base::Error);
    wrong = shard;
    wrong.ops.push_back({rank, "x", 0, 0, 0, 0});
    BOOST_CHECK_THROW(check_rank(wrong, 2), base::Error);
  }
  BOOST_CHECK_NO_THROW(check_all_there({shard, shard}));
  store::ShardContents fewer = shard;
  fewer.steps.pop_back();
  BOOST_CHECK_THROW(check_all_there({shard, fewer}), base::Error);
  store::ShardContents empty = shard;
  empty.memory.clear();
  BOOST_CHECK_THROW(check_all_there({shard, empty}), base::Error);
}

// Each within what a time may be, all together beyond it.
BOOST_AUTO_TEST_CASE(times_that_cannot_be_are_refused) {
  const auto shard_of = [](int rank, int64_t start_ns, int64_t end_ns, const char* clock) {
    store::ShardContents shard;
    shard.path = "shard";
    shard.traces.push_back({rank, 0, start_ns, end_ns, {}});
    shard.texts.push_back({"clock_id", clock});
    return shard;
  };
  constexpr int64_t kFar = int64_t{1} << 59;
  const spec::TrialSpec trial = trial_of_processes();
  BOOST_CHECK_NO_THROW(
      merge_shards(trial, {shard_of(0, kFar, kFar + 5, "a"), shard_of(1, -kFar, 5 - kFar, "b")}));
  BOOST_CHECK_THROW(merge_shards(trial, {shard_of(0, 0, kFar, "a")}), base::Error);
  BOOST_CHECK_THROW(merge_shards(trial, {shard_of(0, kFar, kFar, "a"), shard_of(1, 0, 5, "a")}),
                    base::Error);
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  BOOST_CHECK_THROW(merge_shards(trial, {shard_of(0, kLast, kLast, "a")}), base::Error);
  BOOST_CHECK_THROW(merge_shards(trial, {shard_of(0, -kLast, 0, "a")}), base::Error);
}

BOOST_AUTO_TEST_CASE(a_rank_without_a_shard_is_no_success) {
  // As on hosts that do not share the folder.
  const tests::ScopedEnvironment alone("FAKE_RANK_MEETS", "no");
  options.launcher = "env RANK=0";
  const TrialRun ended = run(trial_of_processes());
  BOOST_TEST(ended.result.status == "failed");
  BOOST_TEST(contains(ended.result.reason, "shard-1.db"), ended.result.reason);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
