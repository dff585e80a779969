// Asks git for commits, and reads what it prints as text from a stranger.
#include "sweeps/bisect/git.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "kernels/base/units.h"
#include "kernels/base/utf8.h"
#include "sweeps/bisect/text.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNameBytes = 1024;

/// id, parents, subject, author, author date; each followed by a NUL, which no message can hold.
constexpr const char* kFormat = "--format=%H%x00%P%x00%s%x00%an%x00%aI";
constexpr size_t kNumFields = 5;

std::vector<std::string_view> split_at_nul(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\0'), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

struct LoggedCommit {
  CommitInfo info;
  std::string first_parent;  ///< empty: none
};

std::vector<LoggedCommit> read_log(const GitProgram& git, const std::string& folder,
                                   const std::vector<std::string>& selection) {
  std::vector<std::string> arguments = {
      "log",        "-z",         kFormat,        "--encoding=UTF-8",    "--no-patch",
      "--no-notes", "--no-color", "--no-mailmap", "--no-show-signature", "--no-decorate"};
  arguments.insert(arguments.end(), selection.begin(), selection.end());
  arguments.emplace_back("--");
  const std::string text = git.text(folder, arguments);
  const std::vector<std::string_view> fields = split_at_nul(text);
  MOETUNE_CHECK(fields.size() % kNumFields == 0, "git log printed {} fields", fields.size());
  std::vector<LoggedCommit> commits;
  for (size_t i = 0; i < fields.size(); i += kNumFields) {
    LoggedCommit commit;
    commit.info = {std::string(fields[i]), base::valid_utf8(fields[i + 2]),
                   base::valid_utf8(fields[i + 3]), base::valid_utf8(fields[i + 4])};
    MOETUNE_CHECK(is_commit_id(commit.info.id), "git log printed no commit id");
    commit.first_parent = fields[i + 1].substr(0, fields[i + 1].find(' '));
    commits.push_back(std::move(commit));
  }
  return commits;
}

void check_id(const std::string& id) {
  MOETUNE_CHECK(is_commit_id(id), "'{}' is no commit id", plain_text(id));
}

std::string shown(const CommitInfo& commit) {
  return fmt::format("{} \"{}\"", base::short_commit(commit.id), plain_text(commit.subject));
}

}  // namespace

bool is_commit_id(const std::string& text) {
  return (text.size() == 40 || text.size() == 64) &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

GitRepository GitRepository::open(const std::string& path) {
  GitRepository repository;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    throw base::UsageError(
        fmt::format("--repo '{}': there is no such folder; it takes the folder of a git repository",
                    plain_text(path)));
  }
  const GitProgram& git = repository.git_;
  const std::string folder = fs::absolute(path);
  const GitProgram::Output found = git.run(folder, {"rev-parse", "--absolute-git-dir"});
  if (found.code != 0) {
    const bool is_none = found.err.find("not a git repository") != std::string::npos;
    throw base::UsageError(fmt::format("--repo '{}': {}; it takes the folder of a git repository",
                                       plain_text(path),
                                       is_none ? "not a git repository" : found.complaint()));
  }
  repository.git_folder_ = found.out.substr(0, found.out.size() - 1);
  repository.common_ =
      git.line(folder, {"rev-parse", "--path-format=absolute", "--git-common-dir"});
  // Fails in a bare repository and inside .git, where there is no checkout.
  const GitProgram::Output top = git.run(folder, {"rev-parse", "--show-toplevel"});
  repository.root_ = top.code == 0 ? top.out.substr(0, top.out.size() - 1) : repository.git_folder_;
  return repository;
}

std::string GitRepository::resolve(const std::string& revision, const std::string& option) const {
  const auto refuse = [&](const std::string& why) {
    throw base::UsageError(fmt::format("{} '{}': {}; it takes a commit, tag or branch of {}",
                                       option, plain_text(revision), why, root_));
  };
  if (revision.empty()) refuse("the name is empty");
  if (revision.size() > kMaxNameBytes) refuse("the name is too long");
  if (revision.starts_with('-')) refuse("a revision does not start with '-'");
  if (std::ranges::any_of(
          revision, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; })) {
    refuse("the name has a control character");
  }
  const auto parse = [&](const std::string& name) {
    GitProgram::Output output =
        git_.run(root_, {"rev-parse", "--verify", "--quiet", "--end-of-options", name});
    if (output.out.ends_with('\n')) output.out.pop_back();
    return output.code == 0 ? output.out : std::string();
  };
  // In two steps: behind a name such as ":/words" the suffix would be part of the words.
  const std::string object = parse(revision);
  if (!is_commit_id(object)) refuse("there is no such revision");
  std::string commit = parse(object + "^{commit}");
  if (!is_commit_id(commit)) refuse("it is there, but is no commit");
  return commit;
}

bool GitRepository::is_ancestor(const std::string& ancestor, const std::string& commit) const {
  check_id(ancestor);
  check_id(commit);
  const GitProgram::Output output =
      git_.run(root_, {"merge-base", "--is-ancestor", ancestor, commit});
  MOETUNE_CHECK(output.code == 0 || output.code == 1, "{}: git: {}", root_, output.complaint());
  return output.code == 0;
}

std::string GitRepository::unrelated_text(const std::string& good, const std::string& bad) const {
  if (is_ancestor(bad, good)) {
    return fmt::format(
        "the good commit {} comes after the bad commit {}: they look swapped; try --good {} --bad "
        "{}",
        shown(info(good)), shown(info(bad)), base::short_commit(bad), base::short_commit(good));
  }
  const std::string pair = fmt::format("the good commit {} is not an ancestor of the bad commit {}",
                                       shown(info(good)), shown(info(bad)));
  const GitProgram::Output ancestor = git_.run(root_, {"merge-base", good, bad});
  if (ancestor.code == 0 && !ancestor.out.empty()) {
    return fmt::format("{}: they are on different branches; try their common ancestor, --good {}",
                       pair, base::short_commit(ancestor.out));
  }
  const bool is_shallow = git_.line(root_, {"rev-parse", "--is-shallow-repository"}) == "true";
  return pair + (is_shallow ? ": this clone is shallow and may lack the commits between them; "
                              "'git fetch --unshallow' brings them"
                            : ", and they have no history in common");
}

std::vector<CommitInfo> GitRepository::commits(const std::string& good, const std::string& bad,
                                               bool first_parent) const {
  check_id(good);
  check_id(bad);
  if (good == bad) {
    throw base::UsageError(
        fmt::format("--good and --bad are the same commit, {}: there is nothing "
                    "between them",
                    shown(info(good))));
  }
  if (!is_ancestor(good, bad)) throw base::UsageError(unrelated_text(good, bad));
  std::vector<std::string> selection = {"--topo-order", "--reverse"};
  if (first_parent) selection.emplace_back("--first-parent");
  selection.push_back(good + ".." + bad);
  std::vector<LoggedCommit> logged = read_log(git_, root_, selection);
  // A good commit inside a merged branch has no place on the line of first parents: the commits
  // before the merge do not contain it, and comparing them with it would find nothing true.
  if (first_parent && (logged.empty() || logged.front().first_parent != good)) {
    const std::string fork = logged.empty() ? "" : logged.front().first_parent;
    throw base::UsageError(fmt::format(
        "the good commit {} came into the bad commit {} by a merge: it is not on its line of first "
        "parents; {}take all commits with --all-parents",
        shown(info(good)), shown(info(bad)),
        fork.empty() ? "" : fmt::format("try --good {}, which is, or ", base::short_commit(fork))));
  }
  std::vector<CommitInfo> commits;
  for (LoggedCommit& commit : logged) commits.push_back(std::move(commit.info));
  return commits;
}

CommitInfo GitRepository::info(const std::string& id) const {
  check_id(id);
  return read_log(git_, root_, {"--max-count=1", id}).at(0).info;
}

std::optional<std::pair<std::string, std::string>> GitRepository::merged_range(
    const std::string& id) const {
  check_id(id);
  const auto parent = [&](const char* which) {
    const GitProgram::Output output =
        git_.run(root_, {"rev-parse", "--verify", "--quiet", "--end-of-options", id + which});
    return output.code == 0 ? output.out.substr(0, output.out.find('\n')) : std::string();
  };
  const std::string merged = parent("^2");
  if (!is_commit_id(merged)) return std::nullopt;
  const GitProgram::Output ancestor = git_.run(root_, {"merge-base", parent("^1"), merged});
  const std::string fork = ancestor.out.substr(0, ancestor.out.find('\n'));
  if (ancestor.code != 0 || !is_commit_id(fork) || fork == merged) return std::nullopt;
  return std::pair(fork, merged);
}

bool GitRepository::has_path(const std::string& id, const std::string& path) const {
  check_id(id);
  return git_.run(root_, {"cat-file", "-e", id + ":" + path}).code == 0;
}

bool GitRepository::is_dirty() const {
  const GitProgram::Output status =
      git_.run(root_, {"status", "--porcelain", "-z", "--untracked-files=no"});
  return status.code == 0 && !status.out.empty();
}

std::string GitRepository::identity() const {
  const GitProgram::Output roots =
      git_.run(root_, {"rev-list", "--max-parents=0", "--first-parent", "HEAD", "--"});
  const std::string first = roots.code == 0 ? roots.out.substr(0, roots.out.find('\n')) : "";
  return is_commit_id(first) ? first : common_;
}

}  // namespace moetune::sweeps
