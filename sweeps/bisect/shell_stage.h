// One command of the user's, with a limit on its time: run, watched, and ended with everything that
// it started, also what has left its session.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sweeps/processes/process.h"

namespace moetune::sweeps {

/// The variable that every process of a scratch folder's commands has, with the folder as value:
/// what still has it when a command is over is a leftover.
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

/// The last bytes of a file; empty when there is none. Where the file is longer, the text starts
/// behind the first line's end.
std::string last_lines(const std::string& path, int64_t max_bytes);
/// Whether one of the texts is in the file, letters of either case.
bool file_has_any(const std::string& path, const std::vector<std::string_view>& texts);

}  // namespace moetune::sweeps
