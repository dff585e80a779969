// One commit measured once: what is printed or stored becomes the value, whatever goes wrong
// becomes a status with a plain message, and nothing stays behind.
#include "sweeps/bisect/commit_runner.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <thread>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "profiler/store/store.h"
#include "sweeps/bisect/reading.h"
#include "sweeps/bisect/shell_stage.h"
#include "sweeps/processes/interrupt.h"
#include "tests/bisect/git_fixture.h"

namespace moetune::sweeps {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using tests::says;
using tests::text_of;

namespace {

/// Commits 0 to 3; "value" holds the number.
struct Commits : tests::GitFixture {
  Commits() {
    for (const char* number : {"0", "1", "2", "3"}) {
      ids.push_back(commit_file("value", number, std::string("change ") + number));
    }
  }

  [[nodiscard]] CommitRunnerOptions options(const std::string& run_command,
                                            const std::string& build_command = "") const {
    CommitRunnerOptions options;
    options.repository = repo;
    options.scratch = scratch;
    options.run_command = run_command;
    options.build_command = build_command;
    options.metric = "step_time";
    // Only the tests that wait for them have short ones.
    options.build_limit = options.run_limit = std::chrono::minutes(5);
    return options;
  }
  /// One run of a commit with a fresh runner, by default of the last one.
  [[nodiscard]] CommitRun run(const std::string& run_command,
                              const std::string& build_command = "") const {
    return CommitRunner(options(run_command, build_command)).run(ids.back());
  }
  [[nodiscard]] std::string own(const std::string& name) const { return folder.file(name); }

  std::vector<std::string> ids;
  std::string scratch = folder.file("scratch");
};

/// Holds for every answer, whatever happened.
void check_message(const CommitRun& run) {
  BOOST_TEST(run.value.has_value() == (run.status == RunStatus::ok));
  BOOST_TEST(run.message.empty() == (run.status == RunStatus::ok));
  BOOST_TEST(run.message.size() <= 500);
  BOOST_TEST(std::ranges::none_of(
      run.message, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }));
}

void expect(const CommitRun& run, RunStatus status, const std::vector<std::string>& words) {
  check_message(run);
  BOOST_TEST(name_of(run.status) == name_of(status), "it was " << run.message);
  for (const std::string& word : words) {
    BOOST_TEST((run.message.find(word) != std::string::npos),
               "'" << word << "' is not in: " << run.message);
  }
}

bool is_running(int64_t pid) {
  const std::string stat = text_of(fmt::format("/proc/{}/stat", pid));
  const size_t at = stat.rfind(") ");
  return at != std::string::npos && stat[at + 2] != 'Z' && stat[at + 2] != 'X';
}

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

/// The ids in a file, one a line.
std::vector<int64_t> pids_in(const std::string& path) {
  std::vector<int64_t> pids;
  std::ifstream file(path);
  for (int64_t pid = 0; file >> pid;) pids.push_back(pid);
  return pids;
}

/// A store with one trial of two ranks.
void write_store(const std::string& path, const std::string& status, double peak = 900) {
  store::Store store = store::Store::open(path);
  store::SweepRow sweep;
  sweep.name = "single trials";
  sweep.config_hash = "hash";
  sweep.config_json = sweep.contract_json = sweep.model_json = sweep.hardware_json = "{}";
  sweep.model_name = "tiny";
  sweep.hardware_name = "emulated";
  const int64_t sweep_id = store.create_or_resume_sweep(sweep).id;
  for (const char* hash : {"01", "02"}) {
    store::TrialRow trial;
    trial.sweep_id = sweep_id;
    trial.spec_hash = hash;
    trial.spec_json = "{}";
    trial.phase = "profile";
    const int64_t id = store.begin_trial(trial);
    store::TrialResult result;
    result.status = std::string(hash) == "02" ? status : "ok";
    result.reason = result.status == "ok" ? "" : "no memory for \"experts\"";
    result.step_ns = 777;
    result.tokens_per_s = 5;
    result.metrics = {{-1, "comm_bytes.ep", 64}, {-1, "num_launches", 12}, {0, "num_launches", 6}};
    for (const int rank : {0, 1}) {
      const std::string shard = fmt::format("{}.{}.{}", path, hash, rank);
      store::ShardWriter writer(shard);
      writer.add_step({0, false, false, 777, 1.5});
      writer.add_memory({rank, static_cast<int64_t>(peak) + rank, 4096, {100 + rank, 20}, "x"});
      writer.add_op({rank, "experts.forward", 4, 40, 50, 20 + rank});
      writer.commit();
      result.shards.push_back(store::read_shard(shard));
    }
    store.finish_trial(id, result);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(bisect_reading)

BOOST_AUTO_TEST_CASE(a_bare_number_is_the_metric) {
  for (const auto& [line, value] : std::vector<std::pair<std::string, double>>{
           {"12", 12}, {" 1.5e3 \r", 1500}, {"+2.5", 2.5}, {"-3", -3}, {".5", 0.5}, {"0", 0}}) {
    const PrintedNumbers printed = read_printed(line, "step_time");
    BOOST_TEST(printed.numbers == (Numbers{{"step_time", value}}), line);
    BOOST_TEST(printed.complaint == "");
  }
}

const std::vector<std::string> kNoNumbers = {"",
                                             "nan",
                                             "-nan",
                                             "inf",
                                             "-Infinity",
                                             "1e999",
                                             "1e101",
                                             "-1.7e308",
                                             "12 ms",
                                             "12.5.1",
                                             "1,000",
                                             "0x10",
                                             "++1",
                                             "value = 12",
                                             "[1, 2]",
                                             "true",
                                             "{",
                                             "{\"a\"}",
                                             "{\"x\": 1}",
                                             "null",
                                             "\"12\"",
                                             "{\"step_time\": \"12\"}",
                                             "1 2",
                                             "{} trail",
                                             "{\"step_time\": NaN}",
                                             "{\"step_time\": 1e999}",
                                             "{\"step_time\": -2e100}",
                                             "{\"step_time\": null}",
                                             "{\"step_time\": [1]}",
                                             "{\"step_time\": true}"};

BOOST_DATA_TEST_CASE(anything_else_is_refused_with_a_reason,
                     boost::unit_test::data::make(kNoNumbers), line) {
  const PrintedNumbers printed = read_printed(line, "step_time");
  BOOST_TEST(!find_metric(printed.numbers, "step_time").has_value());
  BOOST_TEST(printed.complaint.size() > 10);
}

BOOST_AUTO_TEST_CASE(objects_hold_many_numbers) {
  const PrintedNumbers printed = read_printed(
      R"({"step_ns": 12, "memory": {"peak": 3.5, "name": "x"}, "ok": true, "list": [1]})",
      "step_time");
  BOOST_TEST(printed.numbers == (Numbers{{"step_ns", 12}, {"memory.peak", 3.5}}));
  BOOST_TEST(find_metric(printed.numbers, "step_time").value() == 12);
  BOOST_TEST(find_metric(printed.numbers, "memory.peak").value() == 3.5);
  BOOST_TEST(!find_metric(printed.numbers, "peak_memory").has_value());
  std::string deep = "1";
  for (int i = 0; i < 3000; ++i) deep = "{\"a\":" + deep + "}";
  BOOST_TEST(read_printed(deep, "x").complaint.size() > 10);
}

BOOST_AUTO_TEST_CASE(stores_give_what_their_newest_trial_measured) {
  const tests::TempFolder folder;
  write_store(folder.file("runs.db"), "ok");
  const StoredNumbers stored = read_stored(folder.file("runs.db"));
  BOOST_TEST(stored.status == "ok");
  const Numbers expected = {{"step_ns", 777},
                            {"peak_bytes", 901},
                            {"tokens_per_s", 5},
                            {"loss_final", 1.5},
                            {"comm_bytes.ep", 64},
                            {"num_launches", 12},
                            {"memory_total_bytes", 901},
                            {"memory_capacity_bytes", 4096},
                            {"memory_weights_bytes", 101},
                            {"memory_gradients_bytes", 20},
                            {"op_experts.forward_ns", 20.5},
                            {"op_experts.forward_count", 8}};
  for (const auto& [name, value] : expected) {
    BOOST_REQUIRE_MESSAGE(stored.numbers.contains(name), name);
    BOOST_TEST(stored.numbers.at(name) == value, name);
  }
  BOOST_TEST(find_metric(stored.numbers, "step_time").value() == 777);
  BOOST_TEST(find_metric(stored.numbers, "peak_memory").value() == 901);
  tests::write_text(folder.file("not.db"), "not a database at all");
  BOOST_CHECK_THROW(read_stored(folder.file("not.db")), base::Error);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_FIXTURE_TEST_SUITE(bisect_runner, Commits)

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

BOOST_AUTO_TEST_CASE(builds_are_kept_per_commit) {
  const std::string build = fmt::format(
      "echo \"$MOETUNE_BISECT_COMMIT\" >>'{}'; cp value \"$MOETUNE_BISECT_BUILD_DIR/program\"; "
      "cp value in-tree.o; echo edited >value",
      own("builds"));
  const std::string measure = "cat in-tree.o \"$MOETUNE_BISECT_BUILD_DIR/program\"";
  {
    CommitRunner runner(options(measure, build));
    BOOST_TEST(!runner.is_built(ids[1]));
    for (const size_t i : {1U, 2U, 1U, 2U}) {
      const bool was_built = runner.is_built(ids[i]);
      const CommitRun run = runner.run(ids[i]);
      expect(run, RunStatus::ok, {});
      BOOST_TEST(run.value.value() == static_cast<double>(11 * i));
      BOOST_TEST(run.was_built_now == !was_built);
      BOOST_TEST((run.build_seconds > 0) == !was_built);
      BOOST_TEST(runner.is_built(ids[i]));
    }
    BOOST_TEST(!runner.is_built(ids[3]));
  }
  // By another process, later.
  BOOST_TEST(!CommitRunner(options(measure, build)).run(ids[1]).was_built_now);
  BOOST_TEST(text_of(own("builds")) == ids[1] + "\n" + ids[2] + "\n");
  // Another build command is another build, from scratch.
  const CommitRun again = CommitRunner(options(measure, build + " ")).run(ids[1]);
  BOOST_TEST(again.was_built_now);
  BOOST_TEST(again.value.value() == 11);
  // So is one whose folders somebody removed.
  fs::remove_all(scratch + "/" + base::short_commit(ids[2]) + "/tree");
  BOOST_TEST(CommitRunner(options(measure, build)).run(ids[2]).was_built_now);
}

BOOST_AUTO_TEST_CASE(builds_that_fail_are_told_and_tried_again) {
  const std::string build = fmt::format(
      "test -e '{0}' || {{ touch \"$MOETUNE_BISECT_BUILD_DIR/half\" half; echo 'compiling'; echo "
      "'x.cpp:3: error: no such \033[31mtype' >&2; exit 2; }}; test ! -e half && "
      "test ! -e \"$MOETUNE_BISECT_BUILD_DIR/half\"",
      own("fixed"));
  CommitRunner runner(options("cat value", build));
  for (const std::string& id : ids) {
    const CommitRun run = runner.run(id);
    expect(run, RunStatus::build_failed, {"exit code 2", "x.cpp:3: error: no such"});
    BOOST_TEST(run.was_built_now);
    BOOST_TEST(run.build_seconds > 0);
    BOOST_TEST(run.run_seconds == 0);
    BOOST_TEST(!runner.is_built(id));
  }
  tests::write_text(own("fixed"), "");
  const CommitRun run = runner.run(ids[2]);
  expect(run, RunStatus::ok, {});
  BOOST_TEST(run.value.value() == 2);
}

BOOST_AUTO_TEST_CASE(errors_on_standard_output_of_a_build_are_found) {
  expect(run("echo 1", "echo '[1/2] x.cpp'; echo 'x.cpp:7: error: bad'; echo 'note'; exit 1"),
         RunStatus::build_failed, {"x.cpp:7: error: bad"});
  expect(run("echo 1", "echo 'all went wrong'; exit 1"), RunStatus::build_failed,
         {"all went wrong"});
}

BOOST_AUTO_TEST_CASE(a_build_that_hangs_is_ended) {
  CommitRunnerOptions slow =
      options("echo 1",
              fmt::format("trap '' TERM; echo $$ >'{}'; while :; do sleep 0.05; done", own("pid")));
  for (const int limit : {1, 8, 32}) {
    slow.build_limit = seconds(limit);
    CommitRunner runner(slow);
    expect(runner.run(ids[0]), RunStatus::build_failed,
           {fmt::format("the build was ended after {}.0", limit)});
    BOOST_TEST(!runner.is_built(ids[0]));
    if (!pids_in(own("pid")).empty()) break;
  }
  BOOST_REQUIRE(pids_in(own("pid")).size() == 1);
  BOOST_TEST(!is_running(pids_in(own("pid")).front()));
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

BOOST_AUTO_TEST_CASE(without_a_build_every_run_starts_from_a_clean_checkout) {
  // Stale caches of interpreters would otherwise make one commit run another's code.
  CommitRunner runner(options("ls -A | grep -v '^\\.git$' | wc -l; touch cache; echo 9 >value"));
  for (const size_t i : {0U, 0U, 2U}) {
    const CommitRun run = runner.run(ids[i]);
    expect(run, RunStatus::ok, {});
    BOOST_TEST(run.value.value() == 1);
  }
  BOOST_TEST(fs::exists(scratch + "/tree/cache"));
}

BOOST_AUTO_TEST_CASE(the_users_repository_stays_as_it_was) {
  git({"branch", "other", ids[0]});
  write("staged", "1");
  git({"add", "staged"});
  write("value", "edited");
  write("untracked", "1");
  const auto before = tests::snapshot(repo);
  const auto look = [&] {
    return git({"--no-optional-locks", "status", "--porcelain"}) +
           git({"worktree", "list", "--porcelain"}) + git({"for-each-ref"}) +
           git({"rev-parse", "HEAD"}) + git({"stash", "list"}) + git({"config", "--list"});
  };
  const std::string seen = look();
  {
    CommitRunner runner(
        options("cat value", "test \"$(cat value)\" != 2 && git tag built && git stash list"));
    for (const std::string& id : ids) {
      const CommitRun run = runner.run(id);
      expect(run, id == ids[2] ? RunStatus::build_failed : RunStatus::ok, {});
      // The edit is not what is measured.
      if (id == ids[3]) BOOST_TEST(run.value.value() == 3);
      // One of our own: the next build makes it again.
      if (id != ids[2])
        git({"tag", "--delete", "built"}, scratch + "/" + base::short_commit(id) + "/tree");
    }
    tests::check_same(before, tests::snapshot(repo));
  }
  BOOST_TEST(look() == seen);
  tests::check_same(before, tests::snapshot(repo));
}

BOOST_AUTO_TEST_CASE(a_submodule_that_is_gone_is_no_failed_build) {
  const tests::GitFixture library;
  library.commit_file("lib", "1");
  git({"-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library.repo, "lib"});
  const std::string id = commit("with a submodule");
  {
    CommitRunner runner(options("cat lib/lib", "test -e lib/lib"));
    BOOST_TEST(runner.run(id).value.value() == 1);
  }
  fs::remove_all(library.repo);
  fs::remove_all(repo + "/.git/modules");
  fs::remove_all(scratch);
  for (const char* build : {"", "true"}) {
    const CommitRun run = CommitRunner(options("cat lib/lib", build)).run(id);
    expect(run, RunStatus::not_prepared, {"the submodule 'lib'", "cannot be checked out"});
    fs::remove_all(scratch);
  }
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

// Kept as a failed build, it would make the first commit that is built after the good end a
// culprit.
BOOST_AUTO_TEST_CASE(a_full_disk_is_no_failed_build) {
  const std::string id = commit("one");
  // Build programs print what compilers say to either stream.
  for (const char* stream : {">&2", ""}) {
    const std::string build = fmt::format("echo 'cc1: No space left on device' {}; false", stream);
    CommitRunner runner(options("echo 1", build));
    expect(runner.run(id), RunStatus::not_prepared, {"No space left on device"});
  }
  // A run may miss room in the shared memory by its own fault.
  CommitRunner other(options("echo 'shm: No space left on device' >&2; false", "true"));
  expect(other.run(id), RunStatus::crashed, {"No space left on device"});
}

BOOST_AUTO_TEST_CASE(a_build_that_is_discarded_is_made_anew) {
  const std::string id = commit("one");
  CommitRunner runner(options("cat \"$MOETUNE_BISECT_BUILD_DIR/n\"",
                              "echo x >>../n; wc -l <../n >\"$MOETUNE_BISECT_BUILD_DIR/n\""));
  BOOST_TEST(runner.run(id).value.value() == 1);
  BOOST_TEST(runner.run(id).value.value() == 1);
  runner.discard_build(id);
  BOOST_TEST(!runner.is_built(id));
  BOOST_TEST(runner.run(id).value.value() == 2);
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
