// What the end of a failed run looks like in a log: ONE TABLE, a row a form of words. To know one
// more failure is to add a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "sweeps/runs/run_log.h"
#include "sweeps/runs/run_status.h"

namespace moetune::sweeps {

class LogCollector;
struct FailureForm;

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

/// Reads more of a line that has a form's anchor, at `at`, and adds its failure. False: the line is
/// not such a failure.
using FailureReader = bool(const FailureForm& form, std::string_view text, size_t at,
                           LogCollector& log);

/// A form of a failure in a log. Forms with the same name are the same failure in other words.
struct FailureForm {
  std::string_view name;    ///< for machines: "cuda-oom"
  std::string_view anchor;  ///< text in every such line; empty: found in another way
  ForeignStatus status;
  Blame blame;
  std::string_view words;         ///< for people, after "rank 3: "
  FailureReader* read = nullptr;  ///< null: the line itself is the detail
  unsigned marks = 0;             ///< of the following

  static constexpr unsigned kInTraceback = 1;  ///< only as the exception of a traceback
  static constexpr unsigned kSawOthers = 2;    ///< who says it saw others fail or not come
  [[nodiscard]] bool is_in_traceback() const { return (marks & kInTraceback) != 0; }
  [[nodiscard]] bool saw_others() const { return (marks & kSawOthers) != 0; }
};

std::span<const FailureForm> failure_forms();
/// The form of that name without an anchor. Throws base::Error for an unknown name.
const FailureForm& failure_form(std::string_view name);
/// Form of an exception without one of its own. Before the first step, the configuration is the
/// most likely cause.
const FailureForm& python_error(std::string_view said, bool is_before_first_step);

}  // namespace moetune::sweeps
