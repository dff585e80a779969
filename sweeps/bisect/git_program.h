// Calling the git program: by argument vectors, never through a shell; without hooks, pager,
// prompts and the user's GIT_* variables; with its words in English.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "kernels/base/error.h"

namespace moetune::sweeps {

/// Ctrl-C while something was waited for; see interrupt.h.
class Interrupted : public base::Error {
 public:
  Interrupted() : Error("stopped by the user") {}
};

/// The path of a program that execve can start, looked up in PATH; empty when there is none.
std::string find_in_path(const std::string& name);

/// "env -u NAME ...": takes out what would make a git of another folder work on the user's
/// repository (moetune may itself be run by a hook, where git sets these).
std::vector<std::string> without_git_variables();

class GitProgram {
 public:
  /// Throws base::UsageError when there is no git in PATH.
  GitProgram();

  struct Output {
    int code = 0;
    std::string out;
    std::string err;
    /// What git said was wrong, as one plain line.
    [[nodiscard]] std::string complaint() const;
  };
  static constexpr std::chrono::milliseconds kLimit = std::chrono::minutes(10);

  /// Runs git in `folder` and waits. Every exit code is an answer. Throws base::Error when it
  /// cannot be started or takes longer than `limit`, Interrupted on Ctrl-C.
  [[nodiscard]] Output run(const std::string& folder, const std::vector<std::string>& arguments,
                           std::chrono::milliseconds limit = kLimit) const;
  /// The same; standard output of a call that must end with 0, else base::Error in git's words.
  std::string text(const std::string& folder, const std::vector<std::string>& arguments,
                   std::chrono::milliseconds limit = kLimit) const;
  /// text() without the line's end, for answers that are one line.
  [[nodiscard]] std::string line(const std::string& folder,
                                 const std::vector<std::string>& arguments) const;

  /// A copy that takes a repository only from the folder it runs in, never from one above: for
  /// calls that delete or overwrite.
  [[nodiscard]] GitProgram not_above(const std::string& folder) const;

 private:
  std::string program_;
  std::string ceiling_;
};

}  // namespace moetune::sweeps
