// Calls the git program by argument vectors, never through a shell. Hooks, pager, prompts and the
// user's GIT_* variables are switched off, and its messages are in English.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "kernels/base/error.h"

namespace moetune::sweeps {

/// The user pressed Ctrl-C while something was waited for.
class Interrupted : public base::Error {
 public:
  Interrupted() : Error("stopped by the user") {}
};

/// The path of a program that execve can start, looked up in PATH; empty when there is none.
std::string find_in_path(const std::string& name);

/// "env -u NAME ...": unsets the variables that would make git work on the user's repository,
/// whatever its folder. Git sets them for hooks, and a hook may run moetune.
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
  /// Runs git like run() and returns its standard output. Throws base::Error with git's message
  /// unless it ends with 0.
  std::string text(const std::string& folder, const std::vector<std::string>& arguments,
                   std::chrono::milliseconds limit = kLimit) const;
  /// text() without the end of the line, for output of one line.
  [[nodiscard]] std::string line(const std::string& folder,
                                 const std::vector<std::string>& arguments) const;

  /// A copy that only finds a repository in the folder it runs in, not in one above. For calls that
  /// delete or overwrite.
  [[nodiscard]] GitProgram not_above(const std::string& folder) const;

 private:
  std::string program_;
  std::string ceiling_;
};

}  // namespace moetune::sweeps
