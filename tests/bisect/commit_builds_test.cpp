// Builds and checkouts of commits: kept, tried again, discarded, and the user's repository as it
// was.
#include <unistd.h>

#include <boost/test/unit_test.hpp>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "sweeps/bisect/commit_runner.h"
#include "tests/bisect/commit_runner_fixture.h"
#include "tests/bisect/git_fixture.h"

namespace moetune::sweeps {
BOOST_FIXTURE_TEST_SUITE(bisect_builds, tests::Commits)

namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using tests::expect;
using tests::is_running;
using tests::pids_in;
using tests::text_of;

}  // namespace

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

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
