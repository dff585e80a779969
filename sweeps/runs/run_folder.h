// Finds a run's files in a folder: logs, traces, configurations and commands. They are recognized
// by their content, as everybody names files differently.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::sweeps {

enum class RunFileKind : uint8_t {
  other,
  log,
  chrome_trace,  ///< JSON of Kineto and others
  rocprof_trace,
  sqlite,         ///< of Nsight Systems, most likely
  gzip,           ///< a trace, unless what it holds is a log
  config,         ///< a command or a configuration of a dialect
  unread_config,  ///< the same by its settings, but its reader refuses it
};

/// By the beginning of a file, and its end where it is longer: logs may begin with anything.
RunFileKind kind_of_file(std::string_view head, std::string_view tail = {});

/// Files by kind, sorted by path.
struct RunFolder {
  std::vector<std::string> logs;
  std::vector<std::string> traces;
  std::vector<std::string> configs;
  std::vector<std::string> unread_configs;
  std::vector<std::string> folders;  ///< that were named: the paths of their files begin so
  std::vector<std::string> notes;    ///< what was left out: beyond a limit, or as prose
};

/// Looks into a folder and those below it, or at one file. Commands in prose (.md, .rst, text with
/// blocks of code) count in a file that is named by itself only. Links to folders are not followed,
/// hidden ones and the kernel's (/proc, /sys) left out; depth, files and bytes are bounded. Throws
/// base::UsageError where there is nothing of that name.
RunFolder find_run_files(const std::string& path);

/// The same of all files and folders that were named. What is named by itself and is nothing known
/// is a mistake; in a folder it is somebody else's. Throws base::UsageError.
RunFolder files_of_run(const std::vector<std::string>& paths);

/// The logs among these files and below these folders, in the order of `paths`. Paths that do not
/// exist are skipped.
std::vector<std::string> logs_among(const std::vector<std::string>& paths);

}  // namespace moetune::sweeps
