// Figures of an imported trace that only tests ask for: steps, streams, queues, copies and
// collectives, which prove that it was read right. Defined as HolisticTraceAnalysis defines them
// where it has them, so that figures can be laid beside its.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profiler/analysis/kernel_classes.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

inline bool is_in_graph(const ImportedTrace& trace, const ImportedOp& op) {
  if (op.kind == ActivityKind::graph) return true;
  if (op.kind != ActivityKind::kernel || op.detail == kNoRow) return false;
  const LaunchShape& shape = trace.shapes[op.detail];
  return shape.graph != 0 || shape.graph_node != 0;
}

struct StepFigures {
  int64_t number = 0;
  int64_t host_ns = 0;                       ///< as the host saw it
  std::optional<int64_t> start_to_start_ns;  ///< to the next step
  int64_t num_launched = 0;
  int64_t host_sync_ns = 0;  ///< union of the calls in it that wait for the device
  // Nothing where nothing was launched:
  std::optional<int64_t> device_end_after_host_end_ns;  ///< of the last work launched in it
  std::optional<int64_t> launch_to_start_median_ns;     ///< from the end of the call; the lower one
  std::optional<int64_t> launch_to_start_max_ns;
};
std::vector<StepFigures> step_figures(const ImportedTrace& trace);

/// Union over the whole trace of calls that wait for the device.
int64_t host_sync_ns(const ImportedTrace& trace);

/// Gaps between neighbours of one stream in the order of their starts; negative ones are summed,
/// too. In the order of this struct: the launch began after the one before had ended; the gap is
/// shorter than 30 us; neither.
struct StreamIdle {
  int64_t host_wait_ns = 0;
  int64_t kernel_wait_ns = 0;
  int64_t other_ns = 0;
  int64_t num_ops = 0;
};

/// Work launched and not started: one more at the start of each launch call, one less at the start
/// of its work, over all moments of change.
struct QueueLength {
  int64_t max = 0;
  int64_t min = 0;
  double mean = 0;
  int64_t num_points = 0;
};

/// `ops` are rows of trace.ops, ascending. By the stream's id; where the trace has several devices
/// by "device:stream".
std::map<std::string, StreamIdle> stream_idle(const ImportedTrace& trace,
                                              std::span<const uint32_t> ops);
/// Streams without a known launch are left out.
std::map<std::string, QueueLength> queue_lengths(const ImportedTrace& trace,
                                                 std::span<const uint32_t> ops);

struct CopySum {
  int64_t count = 0;
  int64_t bytes = 0;
  int64_t sum_ns = 0;
};
/// By path, as "HtoD".
std::map<std::string, CopySum> copy_sums(const ImportedTrace& trace);

/// Communication kernels of one name (up to its template arguments or parameters) with the same
/// arguments. Texts are empty and numbers -1 where the file does not say.
struct CollectiveSum {
  std::string kernel;
  std::string collective;
  std::string group;
  std::string dtype;
  int64_t group_size = -1;
  int64_t count = 0;
  int64_t sum_ns = 0;
  int64_t min_ns = 0;
  int64_t max_ns = 0;
  int64_t in_nelems = 0;
  int64_t out_nelems = 0;
};
/// In the order in which they first ran.
std::vector<CollectiveSum> collective_sums(const ImportedTrace& trace, const WorkClasses& wide);

}  // namespace moetune::profiler
