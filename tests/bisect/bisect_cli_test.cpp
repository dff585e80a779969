// The program as a user calls it: a real repository of small commits with a planted slow one, wrong
// input, and an interrupted hunt that goes on.
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/profiler/temp_folder.h"
#include "tests/sweeps/documented.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Answer {
  int code = -1;
  std::string out;
  std::string err;
};

std::string read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A history of 20 commits; from `culprit` on a run prints more.
struct Repository {
  static constexpr int kNumCommits = 20;
  static constexpr int kCulprit = 13;

  Repository() {
    sh("git init -q -b main . && git config user.name Tester && git config user.email t@localhost");
    for (int i = 0; i <= kNumCommits; ++i) {
      const int level = i >= kCulprit ? 106 : 100;
      std::ofstream(repo + "/level") << level << "\n";
      std::ofstream(repo + "/memory") << (i >= 5 ? 700 : 500) << "\n";
      std::ofstream(repo + "/run.sh")
          << "awk -v level=\"$(cat level)\" -v seed=\"$(od -An -N2 -tu2 /dev/urandom)\" "
             "'BEGIN { srand(seed); n = 0; for (i = 0; i < 12; i++) n += rand(); "
             "printf \"%.4f\\n\", level + 0.6 * (n - 6) }'\n"
          << "# " << i << "\n";
      sh(fmt::format("git add -A && git commit -q -m 'change {} <script>alert(1)</script>'", i));
      sh(fmt::format("git tag v{}", i));
    }
  }

  void sh(const std::string& command) const {
    const std::string line = fmt::format("cd '{}' && {} >/dev/null", repo, command);
    BOOST_REQUIRE(std::system(line.c_str()) == 0);
  }

  [[nodiscard]] Answer bisect(const std::string& arguments) const {
    const std::string line =
        fmt::format("cd '{}' && '{}/moetune' bisect {} >'{}' 2>'{}'", folder.file(""),
                    MOETUNE_BIN_DIR, arguments, folder.file("out"), folder.file("err"));
    const int status = std::system(line.c_str());
    Answer answer{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(folder.file("out")),
                  read(folder.file("err"))};
    if (line.find("--format json") != std::string::npos) {
      tests::check_documented("bisect", answer.out);
    }
    return answer;
  }

  /// All that git and the file system say of the checkout.
  [[nodiscard]] std::string state() const {
    const std::string file = folder.file("state");
    sh(fmt::format(
        "(git status --porcelain; git for-each-ref; git worktree list; git rev-parse HEAD; "
        "git config -l --local; find . -path ./.git -prune -o -type f -print | sort; "
        "md5sum .git/index) >'{}' 2>&1; true",
        file));
    return read(file);
  }

  tests::TempFolder folder;
  std::string repo = [this] {
    const std::string path = folder.file("repo");
    fs::create_directory(path);
    return path;
  }();
  std::string common =
      fmt::format("--repo {} --db {} --format json ", repo, folder.file("hunt.db"));
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

BOOST_FIXTURE_TEST_SUITE(bisect_cli, Repository)

BOOST_AUTO_TEST_CASE(a_planted_commit_is_found_and_the_checkout_is_as_it_was) {
  std::ofstream(repo + "/level") << "12345\n";  // a dirty checkout
  std::ofstream(repo + "/new file") << "mine\n";
  const std::string before = state();
  const Answer answer = bisect(common + "--good v0 --bad v20 --run 'sh run.sh' --metric seconds");
  BOOST_TEST_CONTEXT(answer.err) { BOOST_REQUIRE(answer.code == 0); }
  const json document = json::parse(answer.out);
  BOOST_TEST(document.at("verdict") == "culprit");
  BOOST_REQUIRE(document.at("culprits").size() == 1U);
  const json& culprit = document.at("culprits").at(0);
  BOOST_TEST(culprit.at("subject") == "change 13 <script>alert(1)</script>");
  BOOST_TEST(culprit.at("confidence").get<double>() >= 0.95);
  BOOST_TEST(culprit.at("effect").at("low").get<double>() > 0.0);
  BOOST_TEST(document.at("runs").get<int>() > 10);
  BOOST_TEST(state() == before);
  BOOST_TEST(contains(answer.err, "commits left"));

  // The same command again measures nothing.
  const Answer again = bisect(common + "--good v0 --bad v20 --run 'sh run.sh' --metric seconds");
  BOOST_TEST(json::parse(again.out).at("runs") == document.at("runs"));
  BOOST_TEST(contains(again.err, fmt::format("{} runs in", document.at("runs").get<int>())));

  const std::string page = folder.file("page.html");
  BOOST_TEST(std::system(fmt::format("'{}/moetune' report '{}' --out '{}' >/dev/null",
                                     MOETUNE_BIN_DIR, folder.file("hunt.db"), page)
                             .c_str()) == 0);
  BOOST_TEST(contains(read(page), "change 13"));
  BOOST_TEST(!contains(read(page), "<script>alert(1)</script>"));
}

BOOST_AUTO_TEST_CASE(an_exact_metric_takes_few_runs) {
  const Answer answer = bisect(common +
                               "--good v0 --bad v20 --metric peak_memory --run "
                               "'echo \"{\\\"peak_memory\\\": $(cat memory)}\"'");
  BOOST_TEST_CONTEXT(answer.err) { BOOST_REQUIRE(answer.code == 0); }
  const json document = json::parse(answer.out);
  BOOST_TEST(document.at("culprits").at(0).at("subject") == "change 5 <script>alert(1)</script>");
  BOOST_TEST(document.at("runs").get<int>() <= 5 + 2);
}

BOOST_AUTO_TEST_CASE(from_inside_the_checkout_nothing_is_written_there) {
  const std::string before = state();
  const std::string line = fmt::format(
      "cd '{}' && XDG_STATE_HOME='{}' '{}/moetune' bisect --repo . --good v0 --bad v20 --metric "
      "peak_memory --run 'cat memory' >/dev/null 2>&1",
      repo, folder.file("home"), MOETUNE_BIN_DIR);
  BOOST_TEST(std::system(line.c_str()) == 0);
  BOOST_TEST(fs::exists(folder.file("home") + "/moetune/bisect.db"));
  BOOST_TEST(state() == before);
}

BOOST_AUTO_TEST_CASE(other_questions_of_the_same_runs_are_answered_from_the_store) {
  // Each run leaves a line, and says both metrics.
  const std::string ran = folder.file("ran");
  const std::string run = fmt::format(
      "--run 'echo $MOETUNE_BISECT_COMMIT >> {}; "
      "echo \"{{\\\"peak_memory\\\": $(cat memory), \\\"flops\\\": $(cat level)}}\"'",
      ran);
  const auto num_runs = [&] {
    const std::string lines = read(ran);
    return std::count(lines.begin(), lines.end(), '\n');
  };
  const std::string question = common + "--good v0 --bad v20 " + run;
  const Answer memory = bisect(question + " --metric peak_memory");
  BOOST_TEST_CONTEXT(memory.err) { BOOST_REQUIRE(memory.code == 0); }
  const auto first = num_runs();
  BOOST_TEST(first == json::parse(memory.out).at("runs").get<int>());
  BOOST_TEST(bisect(question + " --metric peak_memory --min-effect 10%").code == 0);
  BOOST_TEST(num_runs() == first);
  const Answer flops = bisect(question + " --metric flops");
  BOOST_TEST_CONTEXT(flops.err) { BOOST_REQUIRE(flops.code == 0); }
  BOOST_TEST(json::parse(flops.out)
                 .at("culprits")
                 .at(0)
                 .at("subject")
                 .get<std::string>()
                 .starts_with("change 13 "));
  BOOST_TEST(num_runs() < first + json::parse(flops.out).at("runs").get<int>());
  const auto all = num_runs();
  BOOST_TEST(bisect(question + " --metric peak_memory --fresh").code == 0);
  BOOST_TEST(num_runs() >= all + first);
}

BOOST_AUTO_TEST_CASE(a_changed_default_is_named_with_its_commit) {
  // The configuration is what the commit says of itself; the level follows it.
  const Answer answer =
      bisect(common +
             "--good v0 --bad v20 --metric seconds --run 'echo \"{\\\"seconds\\\": $(sh run.sh), "
             "\\\"config\\\": {\\\"recompute\\\": {\\\"level\\\": $(cat level)}}}\"'");
  BOOST_TEST_CONTEXT(answer.err) { BOOST_REQUIRE(answer.code == 0); }
  const json document = json::parse(answer.out);
  BOOST_TEST(document.at("culprits").at(0).at("moved").empty());  // its numbers are no metrics
  const json& culprit = document.at("culprits").at(0);
  BOOST_TEST(culprit.at("subject") == "change 13 <script>alert(1)</script>");
  BOOST_TEST(culprit.at("config").at(0).at("before") == "100");
  BOOST_TEST(culprit.at("config").at(0).at("after") == "106");
  const std::string page = folder.file("page.html");
  BOOST_TEST(std::system(fmt::format("'{}/moetune' report '{}' --out '{}' >/dev/null",
                                     MOETUNE_BIN_DIR, folder.file("hunt.db"), page)
                             .c_str()) == 0);
  BOOST_TEST(contains(read(page), "config recompute"));
}

BOOST_AUTO_TEST_CASE(the_commit_from_which_a_run_fails_is_a_culprit) {
  const Answer answer =
      bisect(common +
             "--good v0 --bad v20 --metric seconds --run 'test $(cat level) = 100 || "
             "{ echo CUDA out of memory >&2; exit 1; }; sh run.sh'");
  BOOST_TEST_CONTEXT(answer.err) { BOOST_REQUIRE(answer.code == 0); }
  const json document = json::parse(answer.out);
  BOOST_TEST(document.at("failure") == "oom");
  BOOST_TEST(document.at("culprits").at(0).at("subject") == "change 13 <script>alert(1)</script>");
}

// With the default database, whose scratch folder each repository has one of.
BOOST_AUTO_TEST_CASE(two_repositories_share_a_database) {
  const std::string other = folder.file("clone");
  sh(fmt::format("git clone -q . '{}'", other));
  for (const std::string& path : {repo, other}) {
    const Answer answer =
        bisect(fmt::format("--repo {} --db {} --format json --good v0 --bad v20 --metric "
                           "peak_memory --build true --run 'cat memory'",
                           path, folder.file("hunt.db")));
    BOOST_TEST_CONTEXT(answer.err) { BOOST_REQUIRE(answer.code == 0); }
    const json document = json::parse(answer.out);
    BOOST_TEST(document.at("culprits").at(0).at("position") == 5);
    // Names of revisions move.
    const auto reproduce = document.at("reproduce").get<std::string>();
    BOOST_TEST(contains(reproduce, "--good " + document.at("good").get<std::string>()));
    BOOST_TEST(contains(reproduce, "--bad " + document.at("bad").get<std::string>()));
    BOOST_TEST(!contains(reproduce, "v20"));
    BOOST_TEST(contains(answer.err, "hunt.db.work/"));
  }
}

// With a real store: what says nothing of the commit is passed by, and looked at again next time.
BOOST_AUTO_TEST_CASE(a_build_that_misses_room_is_passed_by_and_not_kept) {
  const std::string full = folder.file("full");
  const std::string arguments =
      common + "--good v0 --bad v20 --metric peak_memory --run 'cat memory' --build 'if [ -e " +
      full + " ] && grep -q 10 run.sh; then echo No space left on device; exit 1; fi'";
  std::ofstream(full) << "x";
  Answer answer = bisect(arguments);
  BOOST_TEST_CONTEXT(answer.err) { BOOST_REQUIRE(answer.code == 0); }
  json document = json::parse(answer.out);
  BOOST_TEST(document.at("culprits").at(0).at("position") == 5);
  BOOST_REQUIRE(document.at("skipped").size() == 1U);
  BOOST_TEST(document.at("skipped").at(0).at("status") == "not_prepared");
  fs::remove(full);
  answer = bisect(arguments);
  BOOST_TEST_CONTEXT(answer.err) { BOOST_REQUIRE(answer.code == 0); }
  document = json::parse(answer.out);
  BOOST_TEST(document.at("culprits").at(0).at("position") == 5);
  BOOST_TEST(document.at("skipped").empty());
}

BOOST_AUTO_TEST_CASE(no_change_is_an_answer_too) {
  const Answer answer = bisect(common + "--good v13 --bad v20 --run 'sh run.sh' --metric seconds");
  BOOST_TEST_CONTEXT(answer.err) { BOOST_REQUIRE(answer.code == 0); }
  BOOST_TEST(json::parse(answer.out).at("verdict") == "no_change");
}

BOOST_AUTO_TEST_CASE(wrong_input_is_one_plain_message) {
  const std::string before = state();
  const auto refused = [&](const std::string& arguments, const std::string& part, int code = 2) {
    const Answer answer = bisect(arguments);
    BOOST_TEST_CONTEXT(arguments << "\n" << answer.err) {
      BOOST_TEST(answer.code == code);
      BOOST_TEST(contains(answer.err, part));
    }
  };
  const std::string run = " --run 'sh run.sh' ";
  refused("--repo " + folder.file("nowhere") + " --good a --bad b" + run, "nowhere");
  refused(common + "--good v20 --bad v0" + run, "swapped");
  refused(common + "--good v0 --bad no-such" + run, "--bad");
  refused(common + "--good --bad v0" + run, "good");
  refused(common + "--good '' --bad v0" + run, "--good REV");
  refused(common + "--good v0 --bad=--upload-pack=x" + run, "--bad");
  refused(common + "--good v0 --bad v0" + run, "same commit");
  refused(common + "--good v0 --bad v20", "--run");
  refused(common + "--good v0 --bad v20 --min-effect 3x" + run, "--min-effect");
  refused(common + "--good v0 --bad v20 --confidence 0.4" + run, "--confidence");
  refused(common + "--good v0 --bad v20 --run 'echo nothing'", "good end cannot be measured", 30);
  refused(common + "--good v0 --bad v20 --build false" + run, "good end cannot be measured", 30);
  refused(common + "--good v0 --bad v20 --run-limit 1 --run 'sleep 60'",
          "good end cannot be measured", 30);
  BOOST_TEST(state() == before);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace moetune
