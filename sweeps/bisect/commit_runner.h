// One measurement of one commit: check it out, build it unless that was done before, run it, read
// the value. What goes wrong is a value, not an exception; nothing that it started runs on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "sweeps/bisect/git.h"

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
  /// Prints the value as the last line of its standard output, as a number or a JSON object with
  /// numbers (and, as an object under "config", the configuration with its defaults filled in); or
  /// leaves a store as *.db in MOETUNE_BISECT_OUT, which then has the first word.
  /// Empty, like build_command: our own engine, with the two commands below.
  std::string run_command;
  std::string spec_path;
  std::string metric;
  /// After these a command is ended, with everything it has started. 0: never.
  std::chrono::milliseconds build_limit = std::chrono::hours(2);
  std::chrono::milliseconds run_limit = std::chrono::minutes(30);
  /// Called with what is going on ("building 1a2b3c4d5e6f") several times per second. May be empty.
  std::function<void(const std::string&)> on_tick;
};

extern const char* const kEngineBuildCommand;
extern const char* const kEngineRunCommand;
/// Whether a commit has the sources that the two commands above need.
bool has_own_engine(const GitRepository& repository, const std::string& commit_id);

enum class RunStatus : uint8_t {
  ok,
  /// By no fault of the commit's, it seems: an object or a submodule is out of reach, or the build
  /// speaks of a full disk. Not kept.
  not_prepared,
  build_failed,  ///< also: it could not be built in time
  crashed,
  oom,
  hung,
  no_metric,  ///< it ended well, but the value is not there, or no number that can be measured
  interrupted,
};
const char* name_of(RunStatus status);

struct CommitRun {
  RunStatus status = RunStatus::ok;
  std::optional<double> value;            ///< of the wanted metric; there when ok
  std::map<std::string, double> metrics;  ///< all numbers found
  /// The configuration that the run says it had, defaults filled in: JSON texts by dotted name.
  /// Empty where it says none.
  std::map<std::string, std::string> config;
  std::string message;  ///< why it is not ok: one plain line of at most 500 bytes
  double build_seconds = 0;
  double run_seconds = 0;
  bool was_built_now = false;  ///< a build was tried in this call, with whatever result
  /// Where the run says so, under the name "sm_clock_mhz".
  std::optional<double> sm_clock_mhz;
};

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
