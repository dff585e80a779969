// How an ended process becomes a status and a reason, and what run_trial makes of what it left.
#include "sweeps/runner.h"

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <filesystem>

#include "kernels/base/environment_failure.h"
#include "kernels/base/error.h"
#include "sweeps/processes/trial_folder.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {
namespace {

using std::chrono::milliseconds;

struct Case {
  const char* name;
  WatchEnd end;
  const char* status;
  const char* reason;  ///< a part of it
};
std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

WatchEnd exited(int code) { return {{false, code, false, 0}, false, false, "step 2 of 6"}; }
WatchEnd killed(int signal) { return {{true, signal, false, 0}, false, false, ""}; }

const std::vector<Case> kCases = {
    {"ok", exited(0), "ok", ""},
    {"usage", exited(2), "invalid", "the message"},
    {"oom", exited(10), "oom", "the message"},
    {"wrong", exited(11), "wrong", "the message"},
    {"failed", exited(12), "failed", "the message"},
    {"unknown code", exited(77), "failed", "the message"},
    {"interrupted by others", exited(14), "crashed", "stopped from outside after step 2 of 6"},
    {"segfault", killed(SIGSEGV), "crashed", "killed by signal 11 (Segmentation fault) before"},
    {"kill", killed(SIGKILL), "crashed",
     "killed by signal 9 (Killed), likely the kernel's out-of-memory killer"},
    {"launcher passes on kill", exited(137), "crashed", "likely the kernel's out-of-memory killer"},
    {"launcher passes on segfault", exited(139), "crashed", "signal 11"},
    {"hung",
     {{true, SIGKILL, true, 0}, true, false, "step 2 of 6"},
     "hung",
     "no new step within 1.50 s, after step 2 of 6"},
    {"out of time",
     {{false, 14, true, 0}, false, false, "step 2 of 6", true},
     "interrupted",
     "ended with the time budget, after step 2 of 6"},
    {"out of time behind the last step",
     {{false, 14, true, 0}, false, false, "step 6 of 6", true},
     "interrupted",
     "ended with the time budget, after all 6 steps, before its result was written"},
    {"Ctrl-C",
     {{false, 14, true, 0}, false, true, ""},
     "interrupted",
     "stopped by the user before the first step"},
};

/// A child that never was: ends after `num_waits` looks, or when it is told to.
class FakeProcess : public Process {
 public:
  FakeProcess(int num_waits, ProcessEnd end, std::function<void(int)> on_wait)
      : num_waits_(num_waits), end_(end), on_wait_(std::move(on_wait)) {}
  std::optional<ProcessEnd> wait(milliseconds limit) override {
    std::this_thread::sleep_for(std::min(limit, milliseconds(2)));
    on_wait_(num_done_);
    return num_done_++ < num_waits_ ? std::nullopt : std::optional(end_);
  }
  ProcessEnd end(milliseconds /*grace*/) override { return {true, SIGTERM, true, 0}; }
  [[nodiscard]] int64_t pid() const override { return 1; }

 private:
  int num_waits_;
  int num_done_ = 0;
  ProcessEnd end_;
  std::function<void(int)> on_wait_;
};

class FakeRunner : public ProcessRunner {
 public:
  std::unique_ptr<Process> start(const Command& command) override {
    last = command;
    return std::make_unique<FakeProcess>(num_waits, end, on_wait);
  }
  int num_waits = 0;
  ProcessEnd end;
  std::function<void(int)> on_wait = [](int) {};
  Command last;
};

struct Fixture {
  tests::TempFolder folder;
  FakeRunner runner;
  RunnerOptions options{"/bin/engine",      folder.file("trial"), folder.file("text"),
                        milliseconds(1500), milliseconds(10),     {}};
};

}  // namespace

BOOST_AUTO_TEST_SUITE(runner_endings)

BOOST_DATA_TEST_CASE(judge_by_the_table, boost::unit_test::data::make(kCases), c) {
  RunnerOptions options;
  options.step_limit = milliseconds(1500);
  const Ending ending = judge(c.end, "the message", options);
  BOOST_TEST(ending.status == c.status);
  BOOST_TEST_CONTEXT(ending.reason) {
    BOOST_TEST(ending.reason.find(c.reason) != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_silent_failure_still_has_a_reason) {
  BOOST_TEST(judge(exited(12), "", {}).reason == "ended with exit code 12 after step 2 of 6");
}

BOOST_AUTO_TEST_CASE(the_last_message_is_found) {
  BOOST_TEST(last_message("") == "");
  BOOST_TEST(last_message("noise\nthe end\n\n") == "the end");
  BOOST_TEST(last_message("noise\nmoetune-rank: first\nmoetune-rank: a\nb\n") == "a\nb");
  BOOST_TEST(last_message(std::string(100'000, 'x')).size() == 2000U);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_FIXTURE_TEST_SUITE(runner_files, Fixture)

BOOST_AUTO_TEST_CASE(the_engine_gets_the_spec_and_the_folder) {
  spec::TrialSpec written;
  runner.on_wait = [&](int) {
    const std::string path = options.folder + "/spec.json";
    written = spec::trial_spec_from_json(spec::parse_json(tests::read_text(path), path), path);
  };
  runner.end = {false, 12, false, 0};
  const TrialRun run = run_trial(runner, tests::small_trial(), options);
  BOOST_TEST(spec::spec_hash(written) == spec::spec_hash(tests::small_trial()));
  BOOST_TEST(written.data_path == folder.file("text"));
  BOOST_TEST(runner.last.arguments ==
                 (std::vector<std::string>{"/bin/engine", "--spec", options.folder + "/spec.json",
                                           "--out", options.folder}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_folder_is_emptied_before_and_removed_after) {
  std::filesystem::create_directories(options.folder);
  tests::write_text(options.folder + "/shard-0.db", "left over");
  bool was_there = true;
  runner.on_wait = [&](int) {
    was_there = std::filesystem::exists(options.folder + "/shard-0.db");
  };
  runner.end = {false, 12, false, 0};
  { const TrialRun run = run_trial(runner, tests::small_trial(), options); }
  BOOST_TEST(!was_there);
  BOOST_TEST(!std::filesystem::exists(options.folder));
}

BOOST_AUTO_TEST_CASE(no_shard_after_success_is_a_failure) {
  const TrialRun run = run_trial(runner, tests::small_trial(), options);
  BOOST_TEST(run.result.status == "failed");
  BOOST_TEST(run.result.reason.find("shard-0.db") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_damaged_shard_keeps_the_first_reason) {
  runner.on_wait = [&](int) {
    tests::write_text(options.folder + "/shard-0.db", "garbage");
    tests::write_text(options.folder + "/stderr", "moetune-rank: no room on rank 3\n");
  };
  runner.end = {false, 10, false, 0};
  const TrialRun run = run_trial(runner, tests::small_trial(), options);
  BOOST_TEST(run.result.status == "oom");
  BOOST_TEST(run.result.reason == "no room on rank 3");
  BOOST_TEST(run.result.shards.empty());
}

BOOST_AUTO_TEST_CASE(no_progress_is_hung_and_progress_is_not) {
  options.step_limit = milliseconds(1500);
  runner.num_waits = 1'000'000;
  int num_steps = 0;
  // Progress for a while, longer than the limit, then none.
  runner.on_wait = [&](int i) {
    if (i % 10 == 0 && i <= 900) {
      tests::write_text(options.folder + "/progress",
                        "step " + std::to_string(++num_steps) + " of 900\n");
    }
  };
  const TrialRun run = run_trial(runner, tests::small_trial(), options);
  BOOST_TEST(run.result.status == "hung");
  BOOST_TEST(run.result.reason == "no new step within 1.50 s, after step 91 of 900");
}

// The shell and the loader end a program that they cannot start with these codes.
BOOST_AUTO_TEST_CASE(a_program_that_misses_a_library_says_nothing_about_the_trial) {
  runner.on_wait = [&](int) {
    tests::write_text(
        options.folder + "/stderr",
        "/bin/engine: error while loading shared libraries: libx.so.1: no such file\n");
  };
  for (const int code : {126, 127}) {
    runner.end = {false, code, false, 0};
    BOOST_CHECK_EXCEPTION(run_trial(runner, tests::small_trial(), options),
                          base::EnvironmentFailure,
                          tests::says("/bin/engine cannot be started here", "libx.so.1"));
  }
}

BOOST_AUTO_TEST_CASE(a_kill_for_lack_of_memory_is_the_machines) {
  options.host_root = folder.file("host");
  std::filesystem::create_directories(options.host_root + "/proc");
  const std::string vmstat = options.host_root + "/proc/vmstat";
  tests::write_text(vmstat, "nr_free 7\noom_kill 3\n");
  runner.end = {true, SIGKILL, false, 0};
  // Somebody's kill -9.
  BOOST_TEST(run_trial(runner, tests::small_trial(), options).result.status == "crashed");
  runner.on_wait = [&](int) { tests::write_text(vmstat, "nr_free 7\noom_kill 4\n"); };
  BOOST_CHECK_EXCEPTION(run_trial(runner, tests::small_trial(), options), base::EnvironmentFailure,
                        tests::says("this machine ran out of memory"));
  // Another program was killed, and the ranks ended by themselves.
  tests::write_text(vmstat, "oom_kill 3\n");
  runner.end = {false, 12, false, 0};
  BOOST_TEST(run_trial(runner, tests::small_trial(), options).result.status == "failed");
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_made_is_named) {
  tests::write_text(folder.file("file"), "");
  options.folder = folder.file("file") + "/trial";
  BOOST_CHECK_EXCEPTION(run_trial(runner, tests::small_trial(), options), base::Error,
                        tests::says(options.folder));
}

BOOST_AUTO_TEST_CASE(the_engine_is_found_by_the_environment) {
  const tests::ScopedEnvironment engine("MOETUNE_RANK", tests::bin("fake_rank"));
  BOOST_TEST(find_rank_program() == tests::bin("fake_rank"));
  const tests::ScopedEnvironment missing("MOETUNE_RANK", "/no/such/engine");
  BOOST_CHECK_EXCEPTION(find_rank_program(), base::UsageError,
                        tests::says("/no/such/engine", "MOETUNE_RANK"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
