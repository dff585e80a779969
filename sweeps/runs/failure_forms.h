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

/// How near to the root cause a failure is, as one rank's failure makes the others fail. The
/// smallest value is blamed; of equal ones the earliest failure, then the first row of the table.
enum class Blame : uint8_t {
  outside,      ///< Slurm ended it: the root where nothing had gone wrong before
  cause,        ///< configuration, memory of a device or the host
  error,        ///< an exception or an error of the device: mostly a cause
  numbers,      ///< NaN
  waiting,      ///< a rank did not arrive: the root is its own failure
  killed,       ///< a process ended by a signal that the launcher had not sent
  unsure,       ///< what may be an exception (Failure::is_unsure), whatever its form
  ending,       ///< a peer is gone, or the run was cancelled
  consequence,  ///< aborts, summaries
  victim,       ///< ended by the launcher or a watchdog, as another rank had failed
};

/// A form of a failure in a log. Forms with the same name are the same failure in other words.
struct FailureForm {
  std::string_view name;    ///< for machines: "cuda-oom"
  std::string_view anchor;  ///< text in every such line; empty: found in another way
  ForeignStatus status;
  Blame blame;
  std::string_view words;     ///< for people, after "rank 3: "
  bool in_traceback = false;  ///< only as the exception of a traceback
  /// Reads more of the line; `at` is the place of the anchor. False: the line is not such a
  /// failure. Null: the line itself is the detail.
  bool (*read)(const FailureForm& form, std::string_view text, size_t at,
               LogCollector& log) = nullptr;
  bool is_of_another = false;  ///< who says it is not who failed: it saw others fail or not come
};

std::span<const FailureForm> failure_forms();
/// The form of that name without an anchor. Throws base::Error for an unknown name.
const FailureForm& failure_form(std::string_view name);
/// Form of an exception without one of its own. Before the first step, the configuration is the
/// most likely cause.
const FailureForm& python_error(std::string_view said, bool is_before_first_step);

}  // namespace moetune::sweeps
