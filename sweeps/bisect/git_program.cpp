// Puts the arguments and the environment of a call together, and reads its end.
#include "sweeps/bisect/git_program.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include "kernels/base/text.h"
#include "kernels/base/units.h"
#include "sweeps/bisect/text.h"
#include "sweeps/processes/printed_output.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kMaxComplaintBytes = 300;
constexpr milliseconds kLook{50};

/// `git rev-parse --local-env-vars`, and what else changes where git works or how it prints.
constexpr std::array kGitVariables = {"GIT_ALTERNATE_OBJECT_DIRECTORIES",
                                      "GIT_CONFIG",
                                      "GIT_CONFIG_PARAMETERS",
                                      "GIT_CONFIG_COUNT",
                                      "GIT_OBJECT_DIRECTORY",
                                      "GIT_DIR",
                                      "GIT_WORK_TREE",
                                      "GIT_IMPLICIT_WORK_TREE",
                                      "GIT_GRAFT_FILE",
                                      "GIT_INDEX_FILE",
                                      "GIT_NO_REPLACE_OBJECTS",
                                      "GIT_REPLACE_REF_BASE",
                                      "GIT_PREFIX",
                                      "GIT_INTERNAL_SUPER_PREFIX",
                                      "GIT_SHALLOW_FILE",
                                      "GIT_COMMON_DIR",
                                      "GIT_NAMESPACE",
                                      "GIT_QUARANTINE_PATH",
                                      "GIT_EXTERNAL_DIFF",
                                      "GIT_DIFF_OPTS",
                                      "GIT_DEFAULT_HASH",
                                      "GIT_DEFAULT_REF_FORMAT",
                                      "GIT_GLOB_PATHSPECS",
                                      "GIT_NOGLOB_PATHSPECS",
                                      "GIT_ICASE_PATHSPECS"};

}  // namespace

std::string find_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    // An empty entry means the current folder; nothing is to be run from there by accident.
    if (folder.empty()) continue;
    const fs::path program = fs::path(folder) / name;
    std::error_code ignored;
    if (fs::is_regular_file(program, ignored) && access(program.c_str(), X_OK) == 0) {
      return fs::absolute(program);
    }
  }
  return {};
}

std::vector<std::string> without_git_variables() {
  std::vector<std::string> words = {"/usr/bin/env"};
  for (const char* name : kGitVariables) {
    words.emplace_back("-u");
    words.emplace_back(name);
  }
  return words;
}

std::string GitProgram::Output::complaint() const {
  // The first "fatal:" is the reason; what follows it are hints, or the failures it caused.
  std::istringstream lines(err);
  for (std::string line; std::getline(lines, line);) {
    constexpr std::string_view kFatal = "fatal: ";
    if (line.starts_with(kFatal)) {
      return plain_text(std::string_view(line).substr(kFatal.size()), kMaxComplaintBytes);
    }
  }
  const std::string line = plain_text(base::last_line(err), kMaxComplaintBytes);
  return line.empty() ? fmt::format("git ended with code {}", code) : line;
}

GitProgram::GitProgram() : program_(find_in_path("git")) {
  if (program_.empty()) {
    throw base::UsageError(
        "there is no git program in PATH; install git, which reads the repository and checks out "
        "its commits");
  }
}

GitProgram GitProgram::not_above(const std::string& folder) const {
  GitProgram copy = *this;
  copy.ceiling_ = fs::path(folder).parent_path();
  return copy;
}

GitProgram::Output GitProgram::run(const std::string& folder,
                                   const std::vector<std::string>& arguments,
                                   milliseconds limit) const {
  Command command;
  command.arguments = without_git_variables();
  for (const char* word :
       {program_.c_str(), "--no-pager", "--no-replace-objects", "-c", "core.hooksPath=/dev/null",
        "-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c",
        "submodule.recurse=false", "-c", "advice.detachedHead=false", "-c", "color.ui=false"}) {
    command.arguments.emplace_back(word);
  }
  command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
  // Without optional locks, looking at the state of files does not rewrite the user's index.
  command.environment = {"LC_ALL=C",
                         "LANGUAGE=C",
                         "GIT_CONFIG_NOSYSTEM=1",
                         "GIT_OPTIONAL_LOCKS=0",
                         "GIT_TERMINAL_PROMPT=0",
                         "GIT_LITERAL_PATHSPECS=1",
                         "SSH_ASKPASS_REQUIRE=never"};
  if (!ceiling_.empty()) command.environment.push_back("GIT_CEILING_DIRECTORIES=" + ceiling_);
  command.working_directory = folder;

  Attention attention;
  attention.look = kLook;
  attention.grace = milliseconds(0);
  attention.deadline = steady_clock::now() + limit;
  PrintedOutput printed = run_and_read(std::move(command), attention);
  if (printed.end.why == WhyEnded::interrupted) throw Interrupted();
  if (printed.end.why == WhyEnded::out_of_time) {
    throw base::Error(fmt::format("git {} did not end within {}", arguments.front(),
                                  base::format_ns(limit.count() * 1'000'000)));
  }
  const ProcessEnd& end = printed.end.process;
  return {end.is_signal ? 128 + end.code : end.code, std::move(printed.out),
          std::move(printed.err)};
}

std::string GitProgram::text(const std::string& folder, const std::vector<std::string>& arguments,
                             milliseconds limit) const {
  Output output = run(folder, arguments, limit);
  if (output.code != 0) throw base::Error(fmt::format("{}: git: {}", folder, output.complaint()));
  return std::move(output.out);
}

std::string GitProgram::line(const std::string& folder,
                             const std::vector<std::string>& arguments) const {
  std::string answer = text(folder, arguments);
  if (answer.ends_with('\n')) answer.pop_back();
  return answer;
}

}  // namespace moetune::sweeps
