// The repository that is searched, only ever read: commits, their order and what they changed.
// Checkouts are made elsewhere (worktree.h).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sweeps/bisect/git_program.h"
#include "sweeps/bisect/vocabulary.h"

namespace moetune::sweeps {

/// 40 hex digits in lower case (64 in a SHA-256 repository).
bool is_commit_id(const std::string& text);

/// A git repository seen through the git program; never changes the user's checkout, index, refs or
/// config. Ids that are passed in are what resolve() returned.
class GitRepository {
 public:
  /// `path` is any folder inside it. Throws base::UsageError in words: not a folder, not a
  /// repository, no git program.
  static GitRepository open(const std::string& path);

  /// Full id of the commit that a name means. A name that looks like an option, is empty, has
  /// control characters, or names no commit: base::UsageError naming `option` (--good, --bad).
  [[nodiscard]] std::string resolve(const std::string& revision, const std::string& option) const;
  /// Also true for a commit and itself.
  [[nodiscard]] bool is_ancestor(const std::string& ancestor, const std::string& commit) const;
  /// Commits after `good` up to and with `bad`, oldest first: those that were the tip of bad's
  /// branch, or with `first_parent` false those of merged branches too. base::UsageError when good
  /// is not a (first-parent) ancestor of bad, saying what would be right.
  [[nodiscard]] std::vector<CommitInfo> commits(const std::string& good, const std::string& bad,
                                                bool first_parent) const;
  [[nodiscard]] CommitInfo info(const std::string& id) const;
  /// The two ends of the range of commits that a merge brought in: where its branches part, and the
  /// tip that was merged. Empty for any other commit.
  [[nodiscard]] std::optional<std::pair<std::string, std::string>> merged_range(
      const std::string& id) const;
  /// Whether a file or folder is in a commit.
  [[nodiscard]] bool has_path(const std::string& id, const std::string& path) const;
  /// Whether tracked files differ from the checked-out commit. For a note only: what is measured
  /// comes from commits.
  [[nodiscard]] bool is_dirty() const;

  /// The top folder of the checkout; of a bare repository, the repository itself.
  [[nodiscard]] const std::string& root() const { return root_; }
  /// The folder with objects and refs, shared by all its worktrees.
  [[nodiscard]] const std::string& common_folder() const { return common_; }
  /// This checkout's own part of it, which holds its submodules.
  [[nodiscard]] const std::string& git_folder() const { return git_folder_; }
  /// The same for every clone: the first commit of the checked-out branch; without one, the folder.
  [[nodiscard]] std::string identity() const;
  [[nodiscard]] const GitProgram& git() const { return git_; }

 private:
  GitRepository() = default;
  [[nodiscard]] std::string unrelated_text(const std::string& good, const std::string& bad) const;

  GitProgram git_;
  std::string root_;
  std::string common_;
  std::string git_folder_;
};

}  // namespace moetune::sweeps
