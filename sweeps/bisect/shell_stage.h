// Runs one command of the user with a time limit. Ends it together with everything that it started,
// even processes that have left its session.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sweeps/processes/process.h"

namespace moetune::sweeps {

/// The variable that all commands of a scratch folder are run with; its value is the folder. A
/// process that still has it after the command has ended is a leftover.
inline constexpr const char* kScratchVariable = "MOETUNE_BISECT_SCRATCH";

/// Kills all processes of this machine whose environment has that variable with that value, until
/// there are none. Returns how many it found.
int end_processes_of_scratch(const std::string& scratch);

struct ShellStage {
  std::string command;  ///< for /bin/sh -c
  std::string folder;
  std::string scratch;
  std::vector<std::string> environment;
  std::vector<std::string> unset;  ///< names of variables
  std::string log;                 ///< the output goes to <log>.out and <log>.err
  std::chrono::milliseconds limit{0};
  std::function<void()> on_tick;

  [[nodiscard]] std::string out_path() const { return log + ".out"; }
  [[nodiscard]] std::string err_path() const { return log + ".err"; }
};

struct ShellEnd {
  ProcessEnd process;
  bool is_over_limit = false;
  bool is_interrupted = false;
  double seconds = 0;

  [[nodiscard]] bool is_success() const {
    return !is_over_limit && !is_interrupted && !process.is_signal && process.code == 0;
  }
};

/// Throws base::Error when the shell cannot be started.
ShellEnd run_stage(const ShellStage& stage);

/// The end of a file, at most so many bytes; empty if there is no file. If it is cut, it starts at
/// the beginning of a line.
std::string last_lines(const std::string& path, int64_t max_bytes);
/// Whether one of the texts is in the file; upper and lower case count as the same.
bool file_has_any(const std::string& path, const std::vector<std::string_view>& texts);

}  // namespace moetune::sweeps
