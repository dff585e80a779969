// The device work that a verdict on imported traces is about, counted, and why it may allow none: a
// label from work that nobody can judge would send its reader after the wrong wall.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "profiler/analysis/kernel_classes.h"
#include "profiler/analysis/trace_windows.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Why there is no verdict.
struct NoVerdict {
  std::string sub_cause;  ///< "clocks", ...
  std::string summary;    ///< a sentence
};

class JudgedWork {
 public:
  /// The work of one rank's window, by the classes of its trace.
  void add(const ImportedTrace& trace, const TraceWindow& window, const WorkClasses& wide);

  /// Less than kMinJudgedOps, or no window of kMinJudgedNs.
  [[nodiscard]] bool is_too_little() const;
  /// Kernels share correlation ids while launches are left over: what launched what is not known.
  [[nodiscard]] bool are_ids_shared() const;
  /// A tenth of the kernels or more does not end after its start.
  [[nodiscard]] bool lacks_lengths() const;
  /// The first reason that holds; empty: what was added can be judged.
  [[nodiscard]] std::optional<NoVerdict> why_unjudged() const;
  /// Communication kernels, summed over all ranks.
  [[nodiscard]] double comm_volume_ns() const { return comm_volume_ns_; }

 private:
  int64_t longest_ns_ = 0;  ///< of the windows
  int64_t num_ops_ = 0;
  int64_t num_too_early_ = 0;         ///< of those, that start before their launch does
  int64_t num_launched_kernels_ = 0;  ///< of those, whose launches are in the traces
  int64_t num_launched_copies_ = 0;   ///< copies and fills
  int64_t num_kernels_ = 0;
  int64_t num_without_length_ = 0;  ///< of those
  int64_t num_traced_kernels_ = 0;  ///< of the whole traces
  int64_t num_mixed_up_ = 0;        ///< of those, that share their ids
  double kernel_ns_ = 0;
  double unnamed_ns_ = 0;  ///< of that, kernels whose names no file says
  double comm_volume_ns_ = 0;
};

}  // namespace moetune::profiler
