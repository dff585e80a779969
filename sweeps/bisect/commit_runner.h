// Measures one commit once: checks it out, builds it unless that was done before, runs it, and
// reads the value. A failure is a status of the result, not an exception. Nothing that was started
// keeps running afterwards.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "sweeps/bisect/git.h"
#include "sweeps/bisect/vocabulary.h"

namespace moetune::sweeps {

/// Commands are run by /bin/sh in the top folder of the checkout, with these in the environment:
/// MOETUNE_BISECT_COMMIT (the full id), MOETUNE_BISECT_BUILD_DIR (a folder of the commit's own that
/// is kept), MOETUNE_BISECT_SPEC (absolute path of the spec), MOETUNE_BISECT_OUT (an empty folder
/// for this run). When ccache is in PATH, CMake finds it by its own variables, unless the user has
/// set them.
struct CommitRunnerOptions {
  std::string repository;     ///< any folder inside it
  std::string scratch;        ///< for checkouts, builds and logs; made when it is not there
  std::string build_command;  ///< empty: nothing is built, and one checkout serves all commits
  /// A command that gives the value in one of these ways:
  /// - it leaves a store as *.db in MOETUNE_BISECT_OUT, which is read first;
  /// - it prints the value as the last line of its standard output: a number, or a JSON object with
  ///   numbers, and under "config" the configuration with its defaults filled in;
  /// - it is a training run whose log it prints or leaves in MOETUNE_BISECT_OUT.
  /// Empty together with build_command: our own engine, with the two commands below.
  std::string run_command;
  std::string spec_path;
  std::string metric;
  /// A command that takes longer is ended, with everything it has started. 0: no limit.
  std::chrono::milliseconds build_limit = std::chrono::hours(2);
  std::chrono::milliseconds run_limit = std::chrono::minutes(30);
  /// Is told what goes on ("building 1a2b3c4d5e6f"), several times per second. May be empty.
  std::function<void(const std::string&)> on_tick;
};

extern const char* const kEngineBuildCommand;
extern const char* const kEngineRunCommand;
/// Whether a commit has the sources that the two commands above need.
bool has_own_engine(const GitRepository& repository, const std::string& commit_id);

class CommitRunner {
 public:
  /// Throws base::UsageError for a repository, scratch folder or spec that cannot be used,
  /// base::Error when another moetune uses the scratch folder. Ends what a killed moetune has left
  /// running there.
  explicit CommitRunner(CommitRunnerOptions options);
  ~CommitRunner();
  CommitRunner(const CommitRunner&) = delete;
  CommitRunner& operator=(const CommitRunner&) = delete;

  /// Measures once. Throws base::Error only when the machine fails, such as a full disk.
  CommitRun run(const std::string& commit_id);
  /// The next run() builds the commit anew.
  void discard_build(const std::string& commit_id);
  /// Whether run() would not have to build.
  [[nodiscard]] bool is_built(const std::string& commit_id) const;
  [[nodiscard]] const GitRepository& repository() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moetune::sweeps
