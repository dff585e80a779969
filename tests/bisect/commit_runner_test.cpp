// One commit measured once: what is printed or stored becomes the value, whatever goes wrong
// becomes a status with a plain message, and nothing stays behind. Builds are in
// commit_builds_test.cpp.
#include "sweeps/bisect/commit_runner.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <csignal>
#include <thread>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "profiler/store/store.h"
#include "sweeps/bisect/reading.h"
#include "sweeps/bisect/shell_stage.h"
#include "sweeps/processes/interrupt.h"
#include "tests/bisect/commit_runner_fixture.h"
#include "tests/bisect/git_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(bisect_runner, tests::Commits)

namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using tests::expect;
using tests::is_running;
using tests::pids_in;
using tests::says;
using tests::text_of;
using tests::write_store;

/// Whether this file system can give back a part of a file.
bool can_punch_holes(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const std::string text(1 << 16, 'x');
  const bool is_done =
      write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 15) == 0;
  close(descriptor);
  return is_done;
}

}  // namespace

BOOST_AUTO_TEST_CASE(measures_what_a_commit_prints) {
  CommitRunner runner(options("cat value; echo; echo 'progress' >&2; echo"));
  for (const size_t i : {0U, 3U, 1U, 1U}) {
    const CommitRun run = runner.run(ids[i]);
    expect(run, RunStatus::ok, {});
    BOOST_TEST(run.value.value() == static_cast<double>(i));
    BOOST_TEST(run.metrics == (Numbers{{"step_time", static_cast<double>(i)}}));
    BOOST_TEST(!run.was_built_now);
    BOOST_TEST(runner.is_built(ids[i]));
  }
}

BOOST_AUTO_TEST_CASE(measures_objects_with_clocks) {
  const CommitRun run = this->run(
      R"(echo '{"step_time": 7'; echo '{"step_ns": 4, "sm_clock_mhz": 1410, "memory": {"a": 2}}')");
  expect(run, RunStatus::ok, {});
  BOOST_TEST(run.value.value() == 4);
  BOOST_TEST(run.metrics.at("sm_clock_mhz") == 1410);
  BOOST_TEST(run.metrics.at("memory.a") == 2);
}

BOOST_AUTO_TEST_CASE(measures_stores) {
  write_store(own("good.db"), "ok");
  write_store(own("oom.db"), "oom");
  write_store(own("hung.db"), "hung");
  const auto leave = [&](const std::string& name) {
    return fmt::format("cp '{}' \"$MOETUNE_BISECT_OUT/trial.db\"; echo 5;", own(name));
  };
  const CommitRun good = run(leave("good.db"));
  expect(good, RunStatus::ok, {});
  BOOST_TEST(good.value.value() == 777);
  BOOST_TEST(good.metrics.at("memory_weights_bytes") == 101);
  expect(run(leave("oom.db")), RunStatus::oom, {"the trial ended as oom", "experts"});
  expect(run(leave("hung.db")), RunStatus::hung, {"the trial ended as hung"});
  // A metric that only the last line has, and one that nothing has.
  CommitRunnerOptions other = options(leave("good.db") + "echo '{\"quality\": 3}'");
  other.metric = "quality";
  const CommitRun printed = CommitRunner(other).run(ids.back());
  BOOST_TEST(printed.value.value() == 3);
  BOOST_TEST(printed.metrics.at("step_ns") == 777);
  other.metric = "no_such_metric";
  expect(CommitRunner(other).run(ids.back()), RunStatus::no_metric,
         {"'no_such_metric'", "neither the store"});
}

// The stand-in takes 400 ms, 120 of gradients that are not overlapped, and 160 / micro-batch.
BOOST_AUTO_TEST_CASE(reads_the_log_of_a_training_run) {
  const std::string fake = std::string(MOETUNE_SOURCE_DIR) +
                           "/tests/fakes/pretrain_gpt/pretrain_gpt --bf16 --train-iters 100 "
                           "--exit-interval 8 --micro-batch-size ";
  for (const char* where : {"", " > \"$MOETUNE_BISECT_OUT\"/rank0.log 2>&1"}) {
    const CommitRun run = this->run(fake + "2" + where);
    expect(run, RunStatus::ok, {});
    BOOST_TEST(run.value.value() == 600e6, boost::test_tools::tolerance(0.002));
    BOOST_TEST(run.metrics.at("peak_bytes") == 44.0 * (1 << 30));
    BOOST_TEST(run.config.at("micro_batch_size") == "\"2\"");
  }
  expect(run(fake + "4"), RunStatus::oom, {"exit code 1"});
  expect(run(fake + "1 --planted-timeout"), RunStatus::hung, {"exit code 134", "ALLTOALL_BASE"});
  expect(run(fake + "1 --planted-nan; true"), RunStatus::crashed, {"its log", "not a number"});
  expect(run("rm -r \"$MOETUNE_BISECT_OUT\"; exit 3"), RunStatus::crashed, {"exit code 3"});
}

BOOST_AUTO_TEST_CASE(a_store_that_is_none_is_told_and_links_are_left_alone) {
  write_store(own("good.db"), "ok");
  const std::string before = text_of(own("good.db"));
  expect(run("echo junk >\"$MOETUNE_BISECT_OUT/trial.db\""), RunStatus::no_metric, {"trial.db"});
  expect(run(fmt::format("ln -s '{}' \"$MOETUNE_BISECT_OUT/trial.db\"", own("good.db"))),
         RunStatus::no_metric, {"it printed nothing"});
  BOOST_TEST((text_of(own("good.db")) == before));
  // What an earlier run has left is no reading of this one.
  BOOST_TEST(
      run(fmt::format("cp '{}' \"$MOETUNE_BISECT_OUT/trial.db\"", own("good.db"))).value.value() ==
      777);
  expect(run("true"), RunStatus::no_metric, {"it printed nothing"});
}

BOOST_AUTO_TEST_CASE(a_value_that_is_never_printed_is_no_metric) {
  expect(run("echo 'done in 5 s'; echo"), RunStatus::no_metric, {"'step_time'", "\"done in 5 s\""});
  expect(run("true"), RunStatus::no_metric, {"'step_time'", "printed nothing"});
  expect(run("echo 5 >&2"), RunStatus::no_metric, {"printed nothing"});
  for (const char* text : {"nan", "NaN", "inf", "-inf", "1e999"}) {
    expect(run(fmt::format("echo {}", text)), RunStatus::no_metric, {text});
  }
  expect(run("echo '{\"step_time\": NaN}'"), RunStatus::no_metric, {"NaN"});
  expect(run(R"(printf '\033[31mred\001\377 \302\233 %0900d x' 7)"), RunStatus::no_metric,
         {"[31mred", "..."});
}

BOOST_AUTO_TEST_CASE(a_run_that_prints_without_end_does_not_use_memory_or_disk) {
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  // 100 MB in lines, then 100 MB in one line.
  const std::string script =
      "yes 'a line of some forty characters, or so' | head -c 100000000; echo; "
      "head -c 100000000 /dev/zero | tr '\\0' x; echo; ";
  const CommitRun good = run(script + "echo 42");
  expect(good, RunStatus::ok, {});
  BOOST_TEST(good.value.value() == 42);
  expect(run(script), RunStatus::no_metric, {});
  if (can_punch_holes(own("probe"))) {
    struct stat log {};
    BOOST_REQUIRE(
        stat((scratch + "/" + base::short_commit(ids.back()) + "/run.out").c_str(), &log) == 0);
    BOOST_TEST(log.st_size > 200'000'000);
    BOOST_TEST(log.st_blocks * 512 < 32 << 20);
  }
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  BOOST_TEST(after.ru_maxrss - before.ru_maxrss < 64 * 1024, "kilobytes more than before");
}

BOOST_AUTO_TEST_CASE(failures_of_a_run_are_told_apart) {
  expect(run("echo 1; echo 'first line' >&2; echo 'last line' >&2; exit 3"), RunStatus::crashed,
         {"exit code 3", "last line"});
  expect(run("exit 3"), RunStatus::crashed, {"exit code 3"});
  expect(run("kill -SEGV $$"), RunStatus::crashed, {"signal 11"});
  expect(run("no-such-program-anywhere"), RunStatus::crashed, {"127", "no-such-program-anywhere"});
  expect(run("echo 'no room' >&2; exit 10"), RunStatus::oom, {"exit code 10", "no room"});
  expect(run("echo 'torch.OutOfMemoryError: tried' >&2; echo later >&2; exit 1"), RunStatus::oom,
         {"later"});
  expect(run("echo 'CUDA Out Of Memory' >&2; kill -ABRT $$"), RunStatus::oom, {"signal 6"});
  // Not on standard error, or not at all a failure.
  expect(run("echo 'out of memory'; exit 1"), RunStatus::crashed, {});
  BOOST_TEST(run("echo 'out of memory, trying again' >&2; echo 5").value.value() == 5);
}

BOOST_AUTO_TEST_CASE(a_run_that_hangs_is_ended_with_all_its_children) {
  // In its session, in a process group of its own, in a session of its own, orphaned; none of them
  // heeds SIGTERM.
  const std::string stay =
      "trap '' TERM INT HUP; echo $$ >>\"$PIDS\"; while :; do sleep 0.05; done";
  tests::write_text(own("stay.sh"), stay);
  const std::string pids = own("pids");
  CommitRunnerOptions slow = options(
      fmt::format("export PIDS='{0}'; set -m; trap '' TERM; sh '{1}' & (sh '{1}' &) ; setsid sh "
                  "'{1}' & (setsid sh '{1}' & ) ; sh '{1}'",
                  pids, own("stay.sh")));
  std::vector<int64_t> started;
  // A busy machine may need more than the first limit to start them.
  for (const int limit : {2, 8, 32}) {
    fs::remove(pids);
    slow.run_limit = seconds(limit);
    expect(CommitRunner(slow).run(ids[0]), RunStatus::hung, {fmt::format("{}", limit)});
    started = pids_in(pids);
    for (const int64_t pid : started) BOOST_TEST(!is_running(pid), pid << " still runs");
    if (started.size() == 5) break;
  }
  BOOST_TEST(started.size() == 5);
  BOOST_TEST(end_processes_of_scratch(fs::canonical(scratch)) == 0);
}

BOOST_AUTO_TEST_CASE(what_a_good_run_leaves_running_is_ended_too) {
  const CommitRun run =
      this->run(fmt::format("setsid sh -c 'echo $$ >{}; exec sleep 1000' & while ! [ -s {} ]; do "
                            "sleep 0.01; done; echo 1",
                            own("pid"), own("pid")));
  expect(run, RunStatus::ok, {});
  BOOST_REQUIRE(pids_in(own("pid")).size() == 1);
  BOOST_TEST(!is_running(pids_in(own("pid")).front()));
}

BOOST_AUTO_TEST_CASE(leftovers_of_a_killed_moetune_are_ended_at_the_start) {
  { const CommitRunner runner(options("echo 1")); }
  SystemProcessRunner processes;
  Command command{{"/bin/sleep", "1000"}, {}, own("out"), own("err")};
  command.environment = {std::string(kScratchVariable) + "=" + scratch + "-of-another"};
  const auto others = processes.start(command);
  command.environment = {std::string(kScratchVariable) + "=" + fs::canonical(scratch).string()};
  const auto left = processes.start(command);
  const CommitRunner runner(options("echo 1"));
  BOOST_TEST(left->wait(seconds(30)).has_value());
  BOOST_TEST(!others->wait(milliseconds(0)).has_value());
}

BOOST_AUTO_TEST_CASE(commands_are_told_where_they_are) {
  tests::write_text(own("spec file.json"), "{}");
  const tests::Variable git_folder("GIT_DIR", repo + "/.git");
  const tests::Variable launcher("CMAKE_CXX_COMPILER_LAUNCHER", "users-own");
  fs::create_directories(own("bin"));
  tests::write_text(own("bin") + "/ccache", "#!/bin/sh\n");
  fs::permissions(own("bin") + "/ccache", fs::perms::all);
  const tests::Variable path("PATH", own("bin") + ":" + std::getenv("PATH"));
  const std::string print =
      "{ pwd; git rev-parse --show-toplevel; git rev-parse HEAD; for name in COMMIT BUILD_DIR SPEC "
      "OUT; do eval echo \\$MOETUNE_BISECT_$name; done; ls -A \"$MOETUNE_BISECT_OUT\"; echo "
      "$CMAKE_C_COMPILER_LAUNCHER $CMAKE_CXX_COMPILER_LAUNCHER; echo $CCACHE_BASEDIR; } >";
  CommitRunnerOptions both =
      options(print + "'" + own("run") + "'; touch \"$MOETUNE_BISECT_OUT/x\"; echo 1",
              print + "'" + own("build") + "'; touch \"$MOETUNE_BISECT_OUT/x\"");
  // A path relative to where moetune was started.
  both.spec_path = fs::relative(own("spec file.json"));
  CommitRunner runner(both);
  expect(runner.run(ids[2]), RunStatus::ok, {});
  expect(runner.run(ids[2]), RunStatus::ok, {});
  const std::string top = fs::canonical(scratch).string();
  const std::string of_commit = top + "/" + base::short_commit(ids[2]);
  const std::string expected =
      fmt::format("{0}/tree\n{0}/tree\n{1}\n{1}\n{0}/build\n{2}\n{3}/out\nccache users-own\n{0}\n",
                  of_commit, ids[2], fs::canonical(own("spec file.json")).string(), top);
  BOOST_TEST(text_of(own("build")) == expected);
  BOOST_TEST(text_of(own("run")) == expected);
}

BOOST_AUTO_TEST_CASE(ctrl_c_ends_a_run_or_a_build) {
  for (const bool is_build : {true, false}) {
    const std::string script = fmt::format(
        "rm -f '{0}'; setsid sh -c 'echo $$ >{0}; exec sleep 1000' & while :; do sleep 0.05; done",
        own("pid"));
    const InterruptGuard guard;
    std::thread user([&] {
      while (pids_in(own("pid")).empty()) std::this_thread::sleep_for(milliseconds(5));
      raise(SIGINT);
    });
    const CommitRun run =
        is_build ? this->run("echo 1", script) : this->run(script, "rm -f '" + own("pid") + "'");
    user.join();
    expect(run, RunStatus::interrupted, {"stopped by the user"});
    BOOST_REQUIRE(pids_in(own("pid")).size() == 1);
    BOOST_TEST(!is_running(pids_in(own("pid")).front()));
    fs::remove(own("pid"));
  }
}

BOOST_AUTO_TEST_CASE(processes_run_in_the_folder_they_are_given) {
  SystemProcessRunner processes;
  Command command{{"/bin/sh", "-c", "pwd"}, {}, own("out"), own("err")};
  command.working_directory = repo + "/.git";
  BOOST_TEST(processes.start(command)->wait(seconds(30)).has_value());
  BOOST_TEST(text_of(own("out")) == fs::canonical(repo).string() + "/.git\n");
  BOOST_TEST(shell_line({{"make"}, {}, "", "", "a b"}) == "cd 'a b' && make");
  for (const std::string& wrong : {own("missing"), repo + "/value"}) {
    command.working_directory = wrong;
    BOOST_CHECK_EXCEPTION(processes.start(command), base::Error, says(wrong, "is not a folder"));
  }
}

BOOST_AUTO_TEST_CASE(ticks_say_what_goes_on) {
  std::vector<std::string> heard;
  CommitRunnerOptions with_ticks = options("echo 1", "true");
  with_ticks.on_tick = [&](const std::string& text) {
    if (heard.empty() || heard.back() != text) heard.push_back(text);
  };
  expect(CommitRunner(with_ticks).run(ids[0]), RunStatus::ok, {});
  const std::string id = base::short_commit(ids[0]);
  BOOST_TEST(heard == (std::vector{"checking out " + id, "building " + id, "running " + id}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(options_that_cannot_work_are_refused) {
  const auto refused = [](const CommitRunnerOptions& wrong, const std::string& word) {
    BOOST_CHECK_EXCEPTION(CommitRunner{wrong}, base::UsageError, says(word));
  };
  refused(options("", "make"), "--build without --run");
  refused(options(""), "--spec");
  CommitRunnerOptions wrong = options("echo 1");
  wrong.spec_path = own("missing.json");
  refused(wrong, "missing.json");
  wrong = options("echo 1");
  wrong.repository = own("missing");
  refused(wrong, "--repo");
  wrong = options("echo 1");
  wrong.scratch = "/proc/moetune-scratch";
  refused(wrong, "/proc/moetune-scratch");
  wrong.scratch = repo + "/scratch";
  refused(wrong, "lies in the repository");
  wrong = options("echo 1");
  wrong.metric = "";
  refused(wrong, "metric");
  CommitRunner runner(options("echo 1"));
  for (const char* id : {"HEAD", "", "--all", "main"}) {
    BOOST_CHECK_THROW(runner.run(id), base::UsageError);
  }
  expect(runner.run(std::string(40, '0')), RunStatus::not_prepared, {"cannot be checked out"});
}

BOOST_AUTO_TEST_CASE(our_own_engine_needs_no_commands) {
  write_store(own("good.db"), "ok");
  tests::write_text(own("spec.json"), "{}");
  CommitRunnerOptions engine = options("");
  engine.spec_path = own("spec.json");
  expect(CommitRunner(engine).run(ids[0]), RunStatus::build_failed, {"--build and --run"});

  // A stand-in with the targets and the command line of the real one; exit code 13 is "hung".
  write("engine/main.cpp", "");
  write("sweeps/main.cpp", "");
  write(
      "moetune.sh",
      fmt::format("#!/bin/sh\nset -eu\ntest -z \"${{MOETUNE_RANK:-}}\"\n"
                  "test \"$1 $2\" = 'trial {}'\ntest \"$3 $5 $6 $7\" = '--db --quiet "
                  "--format json'\ncp '{}' \"$4\"\necho '{{'\necho '}}'\nexit ${{1+$(cat code)}}\n",
                  own("spec.json"), own("good.db")));
  fs::permissions(repo + "/moetune.sh", fs::perms::owner_all);
  write("CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.20)\nproject(fake NONE)\n"
        "if(NOT CMAKE_BUILD_TYPE STREQUAL Release)\n  message(FATAL_ERROR type)\nendif()\n"
        "add_custom_target(moetune COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/moetune.sh "
        "${CMAKE_BINARY_DIR}/bin/moetune COMMAND ${CMAKE_COMMAND} -E copy "
        "${CMAKE_SOURCE_DIR}/code ${CMAKE_BINARY_DIR}/../tree/code)\n"
        "add_custom_target(moetune-rank)\n");
  const std::string good = commit_file("code", "0");
  const std::string hung = commit_file("code", "13");
  const tests::Variable rank("MOETUNE_RANK", "/usr/bin/false");
  CommitRunner runner(engine);
  BOOST_TEST(has_own_engine(runner.repository(), good));
  BOOST_TEST(!has_own_engine(runner.repository(), ids[0]));
  const CommitRun run = runner.run(good);
  expect(run, RunStatus::ok, {});
  BOOST_TEST(run.value.value() == 777);
  BOOST_TEST(run.was_built_now);
  BOOST_TEST(!runner.run(good).was_built_now);
  expect(runner.run(hung), RunStatus::hung, {"exit code 13"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
