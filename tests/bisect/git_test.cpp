// Repositories are read, whatever names and messages they hold, and never written to; checkouts are
// exactly their commits.
#include "sweeps/bisect/git.h"

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <csignal>
#include <thread>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "sweeps/bisect/text.h"
#include "sweeps/bisect/worktree.h"
#include "sweeps/processes/interrupt.h"
#include "tests/bisect/git_fixture.h"

namespace moetune::sweeps {

namespace fs = std::filesystem;
using tests::says;

namespace {

std::vector<std::string> ids_of(const std::vector<CommitInfo>& commits) {
  std::vector<std::string> ids;
  for (const CommitInfo& commit : commits) ids.push_back(commit.id);
  return ids;
}

struct Repository : tests::GitFixture {
  Repository() {
    for (const char* number : {"0", "1", "2", "3"}) {
      ids.push_back(commit_file("value", number, std::string("change ") + number));
    }
  }
  [[nodiscard]] GitRepository open() const { return GitRepository::open(repo); }
  std::vector<std::string> ids;
};

struct Checkouts : Repository {
  std::string scratch_folder = folder.file("scratch");
  std::string tree = scratch_folder + "/tree";

  /// Names of what lies in the checkout, .git left out.
  [[nodiscard]] std::vector<std::string> names(const std::string& of = "") const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(of.empty() ? tree : of)) {
      if (entry.path().filename() != ".git") found.push_back(entry.path().filename());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  void checkout(const std::string& id) const {
    const GitRepository source = open();
    const ScratchRepository scratch(source, scratch_folder);
    Worktree(scratch, tree).checkout(id);
  }
};

const std::vector<std::string> kOneFile = {"value"};

}  // namespace

BOOST_AUTO_TEST_SUITE(bisect_text)

BOOST_AUTO_TEST_CASE(plain_text_is_one_short_line) {
  BOOST_TEST(plain_text("  a\n\x1b[31mb\t", 100) == "a  [31mb");
  BOOST_TEST(plain_text("12345678901", 10) == "1234567...");
  // Not cut inside a character.
  BOOST_TEST(plain_text("12345\xc3\xa9\xc3\xa9\xc3\xa9", 10) == "12345\xc3\xa9...");
  BOOST_TEST(plain_text("123456\xc3\xa9\xc3\xa9\xc3\xa9", 10) == "123456...");
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_FIXTURE_TEST_SUITE(bisect_git, Repository)

BOOST_AUTO_TEST_CASE(opens_a_repository_from_inside_it) {
  fs::create_directories(repo + "/sub/folder");
  const GitRepository repository = GitRepository::open(repo + "/sub/folder");
  BOOST_TEST(repository.root() == fs::canonical(repo).string());
  BOOST_TEST(repository.common_folder() == fs::canonical(repo).string() + "/.git");
  BOOST_TEST(repository.identity() == ids.front());
}

BOOST_AUTO_TEST_CASE(opens_a_bare_repository_and_a_linked_worktree) {
  git({"clone", "--quiet", "--bare", repo, folder.file("bare.git")});
  const GitRepository bare = GitRepository::open(folder.file("bare.git"));
  BOOST_TEST(bare.resolve("HEAD", "--bad") == ids.back());
  BOOST_TEST(bare.commits(ids[0], ids[3], true).size() == 3);
  git({"worktree", "add", "--quiet", "--detach", folder.file("linked"), ids[1]});
  const GitRepository linked = GitRepository::open(folder.file("linked"));
  BOOST_TEST(linked.resolve("HEAD", "--bad") == ids[1]);
  BOOST_TEST(linked.common_folder() == open().common_folder());
}

BOOST_AUTO_TEST_CASE(says_what_is_no_repository) {
  fs::create_directories(folder.file("empty"));
  BOOST_CHECK_EXCEPTION(GitRepository::open(folder.file("empty")), base::UsageError,
                        says("--repo", "empty", "not a git repository"));
  for (const std::string& path : {folder.file("missing"), repo + "/value", std::string()}) {
    BOOST_CHECK_EXCEPTION(GitRepository::open(path), base::UsageError,
                          says("--repo", "there is no such folder"));
  }
}

BOOST_AUTO_TEST_CASE(says_that_git_is_missing) {
  const tests::Variable path("PATH", folder.file("nothing"));
  BOOST_CHECK_EXCEPTION(GitRepository::open(repo), base::UsageError,
                        says("no git program in PATH"));
}

BOOST_AUTO_TEST_CASE(variables_of_a_hook_do_not_redirect_git) {
  const tests::GitFixture other;
  const tests::Variable git_folder("GIT_DIR", other.repo + "/.git");
  const tests::Variable work_tree("GIT_WORK_TREE", other.repo);
  const tests::Variable index("GIT_INDEX_FILE", other.repo + "/index");
  BOOST_TEST(open().resolve("HEAD", "--bad") == ids.back());
}

BOOST_AUTO_TEST_CASE(resolves_names) {
  git({"tag", "-a", "-m", "a tag", "v1", ids[1]});
  git({"branch", "old", ids[0]});
  const GitRepository repository = open();
  BOOST_TEST(repository.resolve("v1", "--good") == ids[1]);
  BOOST_TEST(repository.resolve("old", "--good") == ids[0]);
  BOOST_TEST(repository.resolve("HEAD~1", "--good") == ids[2]);
  BOOST_TEST(repository.resolve(ids[2].substr(0, 10), "--good") == ids[2]);
  BOOST_TEST(repository.resolve(":/change 1", "--good") == ids[1]);
  BOOST_TEST(repository.resolve("HEAD@{0 seconds ago}", "--good") == ids[3]);
}

const std::vector<std::string> kWrongNames = {
    "--upload-pack=x", "-n",
    "--all",           "",
    "HEAD\n",          "HEAD\t",
    "\x1b[31m",        "a name with spaces",
    " HEAD",           "HEAD..HEAD~1",
    "^HEAD",           "no-such-branch",
    "HEAD:value",      "HEAD; touch x",
    "$(touch x)",      "0123456789012345678901234567890123456789",
    "main:",           std::string(5000, 'a')};

BOOST_DATA_TEST_CASE(refuses_what_is_no_commit, boost::unit_test::data::make(kWrongNames), name) {
  const auto before = tests::snapshot(repo);
  const GitRepository repository = open();
  BOOST_CHECK_EXCEPTION(static_cast<void>(repository.resolve(name, "--good")), base::UsageError,
                        says("--good '"));
  try {
    static_cast<void>(repository.resolve(name, "--bad"));
    BOOST_ERROR("it was taken");
  } catch (const base::UsageError& error) {
    const std::string message = error.what();
    BOOST_TEST(message.find("--bad") == 0);
    BOOST_TEST(message.size() < 400);
    BOOST_TEST(message.find_first_of("\n\t\x1b") == std::string::npos);
  }
  tests::check_same(before, tests::snapshot(repo));
}

BOOST_AUTO_TEST_CASE(lists_commits_from_old_to_new) {
  const std::vector<CommitInfo> commits = open().commits(ids[0], ids[3], true);
  BOOST_TEST(ids_of(commits) == (std::vector{ids[1], ids[2], ids[3]}),
             boost::test_tools::per_element());
  BOOST_TEST(commits[0].subject == "change 1");
  BOOST_TEST(commits[0].author == "Tester");
  BOOST_TEST(commits[0].author_date.size() >= 20);
  BOOST_TEST(commits[0].author_date[10] == 'T');
}

// A replaced commit would be listed, and checked out, with the contents of another one.
BOOST_AUTO_TEST_CASE(commits_are_those_that_were_made_and_not_what_replaces_them) {
  git({"replace", "--graft", ids[3], ids[0]});
  BOOST_TEST(git({"rev-list", "--count", ids[3]}) == "2\n");
  BOOST_TEST(ids_of(open().commits(ids[0], ids[3], true)) == (std::vector{ids[1], ids[2], ids[3]}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(swapped_ends_are_told_with_the_right_order) {
  BOOST_CHECK_EXCEPTION(
      static_cast<void>(open().commits(ids[3], ids[1], true)), base::UsageError,
      says("swapped",
           "--good " + base::short_commit(ids[1]) + " --bad " + base::short_commit(ids[3]),
           "change 3"));
  BOOST_CHECK_EXCEPTION(static_cast<void>(open().commits(ids[1], ids[1], true)), base::UsageError,
                        says("the same commit"));
}

BOOST_AUTO_TEST_CASE(unrelated_ends_are_told) {
  git({"checkout", "--quiet", "-b", "side", ids[1]});
  const std::string side = commit_file("side", "1", "on the side");
  BOOST_CHECK_EXCEPTION(
      static_cast<void>(open().commits(side, ids[3], true)), base::UsageError,
      says("not an ancestor", "common ancestor, --good " + base::short_commit(ids[1]),
           "on the side"));
  git({"checkout", "--quiet", "--orphan", "alone"});
  const std::string alone = commit_file("alone", "1");
  BOOST_CHECK_EXCEPTION(static_cast<void>(open().commits(ids[0], alone, true)), base::UsageError,
                        says("no history in common"));
  git({"clone", "--quiet", "--depth=2", "--branch=main", "file://" + repo, folder.file("shallow")});
  git({"fetch", "--quiet", "--depth=1", "origin", "side"}, folder.file("shallow"));
  const GitRepository shallow = GitRepository::open(folder.file("shallow"));
  BOOST_CHECK_EXCEPTION(static_cast<void>(shallow.commits(side, ids[3], true)), base::UsageError,
                        says("shallow", "--unshallow"));
}

BOOST_AUTO_TEST_CASE(merges_are_one_commit_of_the_first_parents) {
  git({"checkout", "--quiet", "-b", "side", ids[1]});
  const std::string side = commit_file("side", "1", "on the side");
  git({"checkout", "--quiet", "main"});
  git({"merge", "--quiet", "--no-ff", "-m", "merge the side", "side"});
  const std::string merge = head();
  const std::string last = commit_file("value", "5");
  const GitRepository repository = open();
  BOOST_TEST(ids_of(repository.commits(ids[2], last, true)) == (std::vector{ids[3], merge, last}),
             boost::test_tools::per_element());
  const std::vector<std::string> all = ids_of(repository.commits(ids[2], last, false));
  BOOST_TEST(all.size() == 4);
  BOOST_TEST((std::find(all.begin(), all.end(), side) < std::find(all.begin(), all.end(), merge)));
  const auto range = repository.merged_range(merge);
  BOOST_REQUIRE(range.has_value());
  BOOST_TEST(range->first == ids[1]);
  BOOST_TEST(range->second == side);
  BOOST_TEST(!repository.merged_range(last).has_value());
  BOOST_TEST(!repository.merged_range(ids[0]).has_value());
  // On a merged branch the good end has no place in the line of first parents.
  BOOST_CHECK_EXCEPTION(
      static_cast<void>(repository.commits(side, last, true)), base::UsageError,
      says("by a merge", "--good " + base::short_commit(ids[1]), "--all-parents"));
  BOOST_TEST(repository.commits(side, last, false).size() == 4);
}

BOOST_AUTO_TEST_CASE(messages_come_through_as_data) {
  const std::string subject = "\x1b[31m<script>alert('x')</script>\x01\x07 \"q\" %H %x00 \xc3\xa9";
  const std::string id = commit_file("value", "4", subject + "\n\nbody\n");
  const std::string after = commit_file("value", "5", "plain");
  const std::string empty = commit_file("value", "6", "");
  git({"-c", "i18n.commitEncoding=none-such", "commit", "--quiet", "--allow-empty", "-m",
       "bad byte \xff"});
  const std::vector<CommitInfo> commits = open().commits(ids[3], head(), true);
  BOOST_REQUIRE(commits.size() == 4);
  BOOST_TEST(commits[0].id == id);
  BOOST_TEST(commits[0].subject == subject);
  BOOST_TEST(commits[1].id == after);
  BOOST_TEST(commits[1].subject == "plain");
  BOOST_TEST(commits[2].id == empty);
  BOOST_TEST(commits[2].subject == "");
  BOOST_TEST(commits[3].subject == "bad byte \xef\xbf\xbd");
  BOOST_TEST(open().info(id).subject == subject);
}

BOOST_AUTO_TEST_CASE(settings_of_the_user_do_not_change_what_is_read) {
  git({"config", "log.showSignature", "true"});
  git({"config", "log.diffMerges", "on"});
  git({"config", "diff.relative", "true"});
  git({"config", "color.ui", "always"});
  git({"config", "format.pretty", "%B"});
  git({"config", "core.pager", "false"});
  write("sub/a", "1");
  write("b", "1");
  const std::string id = commit("two files");
  const GitRepository repository = GitRepository::open(repo + "/sub");
  BOOST_TEST(repository.info(id).subject == "two files");
}

BOOST_AUTO_TEST_CASE(paths_may_have_any_name) {
  write("with space", "1");
  write("with\nline", "1");
  write("\"quoted\" \xc3\xa9", "1");
  fs::remove(repo + "/value");
  const std::string id = commit();
  for (const char* path : {"with space", "with\nline", "\"quoted\" \xc3\xa9"}) {
    BOOST_TEST(open().has_path(id, path));
  }
  BOOST_TEST(!open().has_path(id, "value"));
}

BOOST_AUTO_TEST_CASE(looking_at_a_dirty_checkout_does_not_write_its_index) {
  BOOST_TEST(!open().is_dirty());
  write("untracked", "1");
  BOOST_TEST(!open().is_dirty());
  // The same contents with another time: a plain "git status" would write that into the index.
  fs::last_write_time(repo + "/value",
                      fs::last_write_time(repo + "/value") + std::chrono::hours(1));
  auto before = tests::snapshot(repo);
  BOOST_TEST(!open().is_dirty());
  tests::check_same(before, tests::snapshot(repo));
  write("value", "changed");
  before = tests::snapshot(repo);
  BOOST_TEST(open().is_dirty());
  tests::check_same(before, tests::snapshot(repo));
}

BOOST_AUTO_TEST_CASE(a_repository_without_commits_is_one) {
  const tests::GitFixture fresh;
  const GitRepository repository = GitRepository::open(fresh.repo);
  BOOST_TEST(repository.identity() == repository.common_folder());
  BOOST_CHECK_EXCEPTION(static_cast<void>(repository.resolve("HEAD", "--good")), base::UsageError,
                        says("there is no such revision"));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_FIXTURE_TEST_SUITE(bisect_worktree, Checkouts)

BOOST_AUTO_TEST_CASE(goes_from_commit_to_commit_and_leaves_nothing_of_the_last) {
  const std::string deeper = commit_file("deep/file", "x");
  const GitRepository source = open();
  const ScratchRepository scratch(source, scratch_folder);
  const Worktree worktree(scratch, tree);
  worktree.checkout(deeper);
  BOOST_TEST(tests::text_of(tree + "/deep/file") == "x");
  tests::write_text(tree + "/value", "edited");
  tests::write_text(tree + "/built.o", "x");
  fs::create_directories(tree + "/nested");
  git({"init", "--quiet"}, tree + "/nested");
  worktree.checkout(ids[1]);
  BOOST_TEST(names() == kOneFile, boost::test_tools::per_element());
  BOOST_TEST(tests::text_of(tree + "/value") == "1");
  BOOST_TEST(git({"rev-parse", "HEAD"}, tree) == ids[1] + "\n");
}

BOOST_AUTO_TEST_CASE(what_a_killed_run_left_is_used_or_replaced) {
  checkout(ids[0]);
  // A lock that a killed git left.
  const std::string git_folder =
      tests::text_of(tree + "/.git").substr(std::string("gitdir: ").size());
  tests::write_text(git_folder.substr(0, git_folder.size() - 1) + "/index.lock", "");
  checkout(ids[1]);
  BOOST_TEST(tests::text_of(tree + "/value") == "1");
  // No longer a worktree, a worktree of nothing, gone, and a file instead.
  fs::remove(tree + "/.git");
  tests::write_text(tree + "/leftover", "x");
  checkout(ids[2]);
  BOOST_TEST(names() == kOneFile, boost::test_tools::per_element());
  tests::write_text(tree + "/.git", "gitdir: /no/such/folder\n");
  checkout(ids[3]);
  BOOST_TEST(tests::text_of(tree + "/value") == "3");
  fs::remove_all(tree);
  checkout(ids[0]);
  BOOST_TEST(tests::text_of(tree + "/value") == "0");
  fs::remove_all(tree);
  tests::write_text(tree, "a file");
  checkout(ids[1]);
  BOOST_TEST(tests::text_of(tree + "/value") == "1");
  // Killed while the repository was made.
  fs::remove(scratch_folder + "/repository/moetune-ready");
  fs::remove(scratch_folder + "/repository/HEAD");
  checkout(ids[2]);
  BOOST_TEST(tests::text_of(tree + "/value") == "2");
}

BOOST_AUTO_TEST_CASE(a_worktree_of_the_user_in_that_place_is_not_taken_over) {
  const std::string users = folder.file("users");
  git({"worktree", "add", "--quiet", "-b", "own", users, ids[0]});
  tests::write_text(users + "/value", "not committed");
  const auto before = tests::snapshot(users);
  BOOST_CHECK_EXCEPTION(ScratchRepository(open(), users), base::UsageError, says("users"));
  tests::check_same(before, tests::snapshot(users));
}

BOOST_AUTO_TEST_CASE(nothing_is_written_to_the_repository) {
  write("value", "staged");
  git({"add", "value"});
  write("value", "edited after that");
  write("untracked", "x");
  git({"stash", "list"});
  write(".git/hooks/post-checkout", "#!/bin/sh\ntouch " + folder.file("hook-ran") + "\n");
  fs::permissions(repo + "/.git/hooks/post-checkout", fs::perms::all);
  git({"config", "core.hooksPath", repo + "/.git/hooks"});
  const auto before = tests::snapshot(repo);
  {
    const GitRepository source = open();
    const ScratchRepository scratch(source, scratch_folder);
    const Worktree worktree(scratch, tree);
    for (const std::string& id : ids) worktree.checkout(id);
    // Also while it is in use: a killed moetune leaves nothing to clean up.
    tests::check_same(before, tests::snapshot(repo));
    // What a build calls git for.
    git({"tag", "built", ids[0]}, tree);
    git({"checkout", "--quiet", ids[2]}, tree);
    git({"-c", "user.name=x", "commit", "--quiet", "--allow-empty", "-m", "in the worktree"}, tree);
  }
  tests::check_same(before, tests::snapshot(repo));
  BOOST_TEST(!fs::exists(folder.file("hook-ran")));
}

BOOST_AUTO_TEST_CASE(builds_see_the_tags) {
  git({"tag", "-a", "-m", "release", "v1.0", ids[1]});
  checkout(ids[3]);
  BOOST_TEST(git({"describe"}, tree).starts_with("v1.0-2-g"));
  git({"tag", "-a", "-m", "release", "v2.0", ids[3]});
  checkout(ids[3]);
  BOOST_TEST(git({"describe"}, tree) == "v2.0\n");
}

BOOST_AUTO_TEST_CASE(shallow_and_partial_clones_can_be_checked_out) {
  git({"config", "uploadpack.allowFilter", "true"});
  git({"config", "uploadpack.allowAnySHA1InWant", "true"});
  const std::string shallow = folder.file("shallow");
  git({"clone", "--quiet", "--depth=2", "file://" + repo, shallow});
  const GitRepository shallow_source = GitRepository::open(shallow);
  const ScratchRepository first(shallow_source, folder.file("scratch-1"));
  Worktree(first, first.folder() + "/tree").checkout(ids[2]);
  BOOST_TEST(tests::text_of(first.folder() + "/tree/value") == "2");
  BOOST_TEST(git({"log", "--format=%H"}, first.folder() + "/tree") == ids[2] + "\n");

  const std::string partial = folder.file("partial");
  git({"clone", "--quiet", "--filter=blob:none", "--no-checkout", "file://" + repo, partial});
  const GitRepository partial_source = GitRepository::open(partial);
  const ScratchRepository second(partial_source, folder.file("scratch-2"));
  Worktree(second, second.folder() + "/tree").checkout(ids[1]);
  BOOST_TEST(tests::text_of(second.folder() + "/tree/value") == "1");
}

BOOST_AUTO_TEST_CASE(scratch_folders_that_cannot_be_used_are_refused) {
  const GitRepository source = open();
  const auto refused = [&](const std::string& path, const std::string& word) {
    BOOST_CHECK_EXCEPTION(ScratchRepository(source, path), base::UsageError, says(word));
  };
  refused("", "no name");
  // Nobody can write there, not even root.
  refused("/proc/moetune-scratch", "cannot be created");
  refused(repo + "/value/below-a-file", "");
  refused("/proc/self", "");
  refused(repo + "/scratch", "lies in the repository");
  refused(repo + "/.git/scratch", "lies in the repository");
  fs::create_directory_symlink(repo, folder.file("link"));
  refused(folder.file("link") + "/scratch", "lies in the repository");
  fs::create_directories(folder.file("full"));
  tests::write_text(folder.file("full") + "/thesis.txt", "x");
  refused(folder.file("full"), "holds other files");
  BOOST_TEST(tests::text_of(folder.file("full") + "/thesis.txt") == "x");
  if (geteuid() != 0) {
    fs::create_directories(folder.file("readonly"));
    fs::permissions(folder.file("readonly"), fs::perms::owner_read | fs::perms::owner_exec);
    refused(folder.file("readonly"), "cannot be written");
    refused(folder.file("readonly") + "/below", "cannot be created");
    fs::permissions(folder.file("readonly"), fs::perms::owner_all);
  }
  {
    const ScratchRepository holder(source, scratch_folder);
    BOOST_CHECK_EXCEPTION(ScratchRepository(source, scratch_folder), base::Error,
                          says("used by another moetune"));
  }
  const ScratchRepository again(source, scratch_folder + "/");
  BOOST_TEST(again.folder() == fs::canonical(scratch_folder).string());
  const Repository other;
  const GitRepository other_source = other.open();
  const ScratchRepository others(other_source, folder.file("others"));
}

BOOST_AUTO_TEST_CASE(a_scratch_folder_belongs_to_one_repository) {
  checkout(ids[0]);
  const Repository other;
  const GitRepository other_source = other.open();
  BOOST_CHECK_EXCEPTION(ScratchRepository(other_source, scratch_folder), base::UsageError,
                        says("was made for the repository", repo));
}

BOOST_AUTO_TEST_CASE(paths_may_hold_blanks_and_quotes) {
  const std::string odd = folder.file("an \"odd\" \\ path's; name");
  fs::rename(repo, odd);
  const GitRepository source = GitRepository::open(odd);
  const ScratchRepository scratch(source, folder.file("odd $scratch \"x\""));
  const Worktree worktree(scratch, scratch.folder() + "/a tree");
  worktree.checkout(ids[1]);
  BOOST_TEST(tests::text_of(worktree.path() + "/value") == "1");
}

BOOST_AUTO_TEST_CASE(submodules_are_at_the_commits_that_were_pinned) {
  // inner is a submodule of outer, which is one of the repository, by a relative address.
  const tests::GitFixture inner;
  const std::string inner_id = inner.commit_file("inner", "i");
  const std::string outer = folder.file("outer");
  git({"clone", "--quiet", repo, outer});
  git({"-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner.repo, "in ner"},
      outer);
  git({"commit", "--quiet", "-m", "submodule"}, outer);
  git({"-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "--name", "a b=c",
       "./../outer", "libs/outer"});
  const std::string first = commit("with a submodule");
  tests::write_text(outer + "/value", "new");
  git({"commit", "--quiet", "-a", "-m", "newer"}, outer);
  git({"-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--remote"});
  const std::string second = commit("a newer submodule");
  const auto before = tests::snapshot(repo);

  for (const bool is_known : {true, false}) {
    BOOST_TEST_CONTEXT("known to the user's repository: " << is_known) {
      std::string used = repo;
      if (!is_known) {
        used = folder.file("fresh");
        git({"clone", "--quiet", repo, used});
        // Relative addresses are relative to where the clone came from.
      }
      const GitRepository source = GitRepository::open(used);
      const ScratchRepository scratch(source, folder.file(is_known ? "scratch-1" : "scratch-2"));
      const Worktree worktree(scratch, scratch.folder() + "/tree");
      const auto used_before = tests::snapshot(used);
      worktree.checkout(first);
      const std::string at = worktree.path() + "/libs/outer";
      BOOST_TEST(tests::text_of(at + "/value") == "3");
      BOOST_TEST(tests::text_of(at + "/in ner/inner") == "i");
      tests::write_text(at + "/value", "edited");
      tests::write_text(at + "/in ner/leftover", "x");
      worktree.checkout(second);
      BOOST_TEST(tests::text_of(at + "/value") == "new");
      BOOST_TEST(!fs::exists(at + "/in ner/leftover"));
      worktree.checkout(ids[0]);
      BOOST_TEST(names(worktree.path()) == kOneFile, boost::test_tools::per_element());
      worktree.checkout(first);
      BOOST_TEST(tests::text_of(at + "/value") == "3");
      tests::check_same(used_before, tests::snapshot(used));
    }
  }
  tests::check_same(before, tests::snapshot(repo));
}

BOOST_AUTO_TEST_CASE(submodules_that_the_user_has_need_no_network) {
  const tests::GitFixture library;
  library.commit_file("lib", "1");
  git({"-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library.repo, "lib"});
  const std::string id = commit("with a submodule");
  fs::remove_all(library.repo);
  checkout(id);
  BOOST_TEST(tests::text_of(tree + "/lib/lib") == "1");
  BOOST_TEST(git({"config", "remote.origin.url"}, tree + "/lib") == library.repo + "\n");
}

BOOST_AUTO_TEST_CASE(a_submodule_that_cannot_be_fetched_is_named) {
  const tests::GitFixture library;
  library.commit_file("lib", "1");
  git({"-c", "protocol.file.allow=always", "submodule", "--quiet", "add", library.repo, "lib"});
  const std::string id = commit("with a submodule");
  fs::remove_all(library.repo);
  fs::remove_all(repo + "/.git/modules");
  BOOST_CHECK_EXCEPTION(checkout(id), base::Error, says("the submodule 'lib'", "git: "));
  checkout(ids[0]);
  BOOST_TEST(names() == kOneFile, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_submodule_of_another_repository_can_be_searched) {
  const tests::GitFixture outer;
  outer.git({"-c", "protocol.file.allow=always", "submodule", "--quiet", "add", repo, "inner"});
  outer.commit();
  const GitRepository source = GitRepository::open(outer.repo + "/inner");
  BOOST_TEST(source.root() == fs::canonical(outer.repo).string() + "/inner");
  const auto before = tests::snapshot(outer.repo);
  const ScratchRepository scratch(source, scratch_folder);
  Worktree(scratch, tree).checkout(ids[1]);
  BOOST_TEST(tests::text_of(tree + "/value") == "1");
  tests::check_same(before, tests::snapshot(outer.repo));
}

BOOST_AUTO_TEST_CASE(leftovers_in_gitmodules_are_passed_over) {
  const std::string id =
      commit_file(".gitmodules", "[submodule \"gone\"]\n\tpath = gone\n\turl = /no/such/place\n");
  checkout(id);
  BOOST_TEST(fs::exists(tree + "/.gitmodules"));
}

BOOST_AUTO_TEST_CASE(ctrl_c_ends_a_call_of_git) {
  const GitRepository source = open();
  const InterruptGuard guard;
  std::thread user([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    raise(SIGINT);
  });
  // An alias is a command that waits.
  BOOST_CHECK_THROW(
      static_cast<void>(source.git().run(repo, {"-c", "alias.wait=!sleep 1000", "wait"})),
      Interrupted);
  user.join();
  BOOST_CHECK_EXCEPTION(
      static_cast<void>(source.git().run(repo, {"-c", "alias.wait=!sleep 1000", "wait"},
                                         std::chrono::milliseconds(50))),
      base::Error, says("did not end within"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace moetune::sweeps
