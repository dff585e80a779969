// The repository that is searched: its commits, their order and their files. It is only read.
// Checkouts are made by worktree.h.
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

/// A git repository, read by the git program. Never changes the user's checkout, index, refs or
/// config. Its functions take ids that resolve() returned.
class GitRepository {
 public:
  /// `path` is any folder inside it. Throws base::UsageError in words: not a folder, not a
  /// repository, no git program.
  static GitRepository open(const std::string& path);

  /// Full id of the commit that a name means. Throws base::UsageError naming `option` (--good,
  /// --bad) if the name is empty, looks like an option, has control characters, or names no commit.
  [[nodiscard]] std::string resolve(const std::string& revision, const std::string& option) const;
  /// True, too, if both are the same commit.
  [[nodiscard]] bool is_ancestor(const std::string& ancestor, const std::string& commit) const;
  /// Commits after `good` up to and with `bad`, oldest first: those on the line of first parents,
  /// or with `first_parent` false those of merged branches, too. Throws base::UsageError, which
  /// says what would be right, if good is not a (first-parent) ancestor of bad.
  [[nodiscard]] std::vector<CommitInfo> commits(const std::string& good, const std::string& bad,
                                                bool first_parent) const;
  [[nodiscard]] CommitInfo info(const std::string& id) const;
  /// The ends of the range of commits that a merge brought in: the commit where its branches part,
  /// and the tip that was merged. Empty if it is no merge.
  [[nodiscard]] std::optional<std::pair<std::string, std::string>> merged_range(
      const std::string& id) const;
  /// Whether a file or folder is in a commit.
  [[nodiscard]] bool has_path(const std::string& id, const std::string& path) const;
  /// Whether tracked files differ from the checked-out commit. Such changes are not measured, which
  /// a note says.
  [[nodiscard]] bool is_dirty() const;

  /// The top folder of the checkout; of a bare repository, the repository itself.
  [[nodiscard]] const std::string& root() const { return root_; }
  /// The folder with objects and refs, shared by all its worktrees.
  [[nodiscard]] const std::string& common_folder() const { return common_; }
  /// The part of that folder that belongs to this checkout. It holds the submodules.
  [[nodiscard]] const std::string& git_folder() const { return git_folder_; }
  /// A name that is the same for every clone: the first commit of the checked-out branch, or the
  /// folder if there is none.
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
