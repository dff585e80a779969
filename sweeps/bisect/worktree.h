// Checkouts of commits in a scratch folder, outside the user's repository. The worktrees belong to
// a bare repository of our own in that folder, which borrows the user's objects. So nothing is ever
// written to the user's repository, not even to the list of its worktrees. This holds if moetune is
// killed at any time.
#pragma once

#include <chrono>
#include <string>

#include "sweeps/bisect/git.h"

namespace moetune::sweeps {

/// The scratch folder: a marker that it is ours, a lock, and the repository that borrows. It stays
/// after the end, with the builds in it. To clean up, delete the folder.
class ScratchRepository {
 public:
  /// Makes the folder, or takes one that was made for the same repository. Throws base::UsageError
  /// when it cannot be written, holds something else, or lies in the user's checkout; base::Error
  /// when another moetune uses it.
  ScratchRepository(const GitRepository& source, const std::string& folder);
  ~ScratchRepository();
  ScratchRepository(const ScratchRepository&) = delete;
  ScratchRepository& operator=(const ScratchRepository&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string git_folder() const { return folder_ + "/repository"; }
  [[nodiscard]] const GitRepository& source() const { return source_; }

 private:
  void take_marker();
  void make_repository() const;
  void borrow_from_source() const;

  const GitRepository& source_;
  std::string folder_;
  int marker_ = -1;
};

/// One folder in which commits are checked out, detached. It stays when this is destroyed.
class Worktree {
 public:
  /// `path` is in the scratch folder; it need not exist.
  Worktree(const ScratchRepository& scratch, std::string path);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Makes the folder exactly the commit, with its submodules at the commits it names and nothing
  /// else in it. A checkout that an earlier or a killed run left is used again if possible, else
  /// replaced. Throws base::Error in plain words, for instance if a submodule cannot be fetched
  /// within `limit`, and Interrupted on Ctrl-C.
  void checkout(const std::string& id, std::chrono::milliseconds limit = GitProgram::kLimit) const;

 private:
  [[nodiscard]] bool is_ours() const;
  [[nodiscard]] bool reuse(const std::string& id) const;

  const ScratchRepository& scratch_;
  GitProgram git_;
  std::string path_;
};

}  // namespace moetune::sweeps
