// What the end of a failed run looks like in a log: ONE TABLE, a row a form of words. To know one
// more failure is to add a row.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "sweeps/runs/run_log.h"
#include "sweeps/runs/run_status.h"

namespace moetune::sweeps {

class LogCollector;

/// How near to the root a failure is: one rank's failure makes those of the others. Of several the
/// least is blamed; within a class the earliest, then the row that stands first in the table.
enum class Blame : uint8_t {
  outside,      ///< Slurm ended it: the root where nothing had gone wrong before
  cause,        ///< configuration, memory of a device or the host
  error,        ///< an exception or an error of the device: mostly a cause
  numbers,      ///< NaN
  waiting,      ///< somebody did not come: whoever failed otherwise
  ending,       ///< a peer is gone, somebody cancelled
  consequence,  ///< signals to those that were left, summaries
};

/// One row. Rows that share a name are one failure in several forms of words.
struct FailureForm {
  std::string_view name;    ///< for machines: "cuda-oom"
  std::string_view anchor;  ///< characters that every such line has; empty: told otherwise
  ForeignStatus status;
  Blame blame;
  std::string_view words;     ///< for people, behind "rank 3: "
  bool in_traceback = false;  ///< only as the exception of a traceback
  /// Reads more of the line, from `at` where the anchor stands. False: it is none. Null: the line
  /// itself is the detail.
  bool (*read)(const FailureForm& form, std::string_view text, size_t at,
               LogCollector& log) = nullptr;
};

std::span<const FailureForm> failure_forms();
/// Rows without an anchor. Throws base::Error for an unknown name.
const FailureForm& failure_form(std::string_view name);
/// An exception that has no row: before the first step most likely the configuration's.
const FailureForm& python_error(std::string_view said, bool is_before_first_step);

}  // namespace moetune::sweeps
