// Children are started, watched and ended with everything they started.
#include "sweeps/processes/process.h"

#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "tests/sweeps/sweeps_fixture.h"

namespace moetune::sweeps {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

struct Shell {
  tests::TempFolder folder;
  SystemProcessRunner runner;

  Command command(const std::string& script) {
    return {{"/bin/sh", "-c", script}, {}, folder.file("out"), folder.file("err")};
  }
  std::unique_ptr<Process> start(const std::string& script) {
    return runner.start(command(script));
  }
  ProcessEnd run(const std::string& script) {
    const auto end = start(script)->wait(seconds(30));
    BOOST_REQUIRE(end.has_value());
    return *end;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(process, Shell)

BOOST_AUTO_TEST_CASE(reports_the_exit_code_and_keeps_the_output) {
  const ProcessEnd end = run("echo to out; echo to err >&2; cat; exit 12");
  BOOST_TEST(!end.is_signal);
  BOOST_TEST(end.code == 12);
  BOOST_TEST(!end.was_ended_by_us);
  BOOST_TEST(end.max_rss_bytes > 100'000);
  BOOST_TEST(tests::read_text(folder.file("out")) == "to out\n");
  BOOST_TEST(tests::read_text(folder.file("err")) == "to err\n");
}

BOOST_AUTO_TEST_CASE(reports_the_signal) {
  const ProcessEnd end = run("kill -9 $$");
  BOOST_TEST(end.is_signal);
  BOOST_TEST(end.code == SIGKILL);
  BOOST_TEST(!end.was_ended_by_us);
}

BOOST_AUTO_TEST_CASE(replaces_environment_variables_and_keeps_the_others) {
  const tests::ScopedEnvironment kept("MOETUNE_TEST_KEPT", "kept");
  const tests::ScopedEnvironment replaced("MOETUNE_TEST_REPLACED", "old");
  Command echo = command("echo $MOETUNE_TEST_KEPT $MOETUNE_TEST_REPLACED");
  echo.environment = {"MOETUNE_TEST_REPLACED=new"};
  BOOST_TEST(runner.start(echo)->wait(seconds(30)).has_value());
  BOOST_TEST(tests::read_text(folder.file("out")) == "kept new\n");
}

BOOST_AUTO_TEST_CASE(a_program_that_is_not_there_is_an_error_with_its_name) {
  Command missing = command("");
  missing.arguments = {"/no/such/program"};
  BOOST_CHECK_EXCEPTION(runner.start(missing), base::Error,
                        tests::says("/no/such/program", "No such file"));
}

BOOST_AUTO_TEST_CASE(wait_returns_nothing_while_the_child_runs) {
  const auto child = start("sleep 100");
  BOOST_TEST(!child->wait(milliseconds(20)).has_value());
}

BOOST_AUTO_TEST_CASE(a_child_may_tidy_up_before_it_is_killed) {
  const auto child = start("trap 'exit 14' TERM; echo ready; while :; do sleep 0.01; done");
  BOOST_REQUIRE(
      tests::eventually([&] { return tests::read_text(folder.file("out")) == "ready\n"; }));
  const ProcessEnd end = child->end(seconds(30));
  BOOST_TEST(!end.is_signal);
  BOOST_TEST(end.code == 14);
  BOOST_TEST(end.was_ended_by_us);
}

BOOST_AUTO_TEST_CASE(ending_reaches_orphans_in_other_process_groups_that_ignore_sigterm) {
  // set -m gives the background job a process group of its own; its parent is gone at once.
  const auto child = start(
      "trap '' TERM; set -m; (sh -c \"trap '' TERM; while :; do sleep 0.05; done\" &) ; echo "
      "ready; "
      "while :; do sleep 0.05; done");
  BOOST_REQUIRE(
      tests::eventually([&] { return tests::read_text(folder.file("out")) == "ready\n"; }));
  BOOST_REQUIRE(tests::eventually([&] { return processes_of_session(child->pid()).size() >= 3; }));
  const ProcessEnd end = child->end(milliseconds(50));
  BOOST_TEST(end.is_signal);
  BOOST_TEST(end.code == SIGKILL);
  BOOST_TEST(end.was_ended_by_us);
  BOOST_TEST(processes_of_session(child->pid()).empty());
}

BOOST_AUTO_TEST_CASE(what_a_child_leaves_behind_is_ended_with_it) {
  const auto child = start("sleep 1000 & exit 3");
  const auto end = child->wait(seconds(30));
  BOOST_REQUIRE(end.has_value());
  BOOST_TEST(end->code == 3);
  BOOST_TEST(processes_of_session(child->pid()).empty());
}

BOOST_AUTO_TEST_CASE(destroying_it_ends_the_child) {
  auto child = start("sleep 1000");
  const int64_t pid = child->pid();
  child.reset();
  BOOST_TEST(!tests::is_running(static_cast<pid_t>(pid)));
}

BOOST_AUTO_TEST_CASE(shell_lines_can_be_pasted) {
  BOOST_TEST(shell_line({{"/bin/a", "x=1", "it's", "", "a b"}, {"N=v w"}, "", ""}) ==
             "'N=v w' /bin/a x=1 'it'\\''s' '' 'a b'");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
