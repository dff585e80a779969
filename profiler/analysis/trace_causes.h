// Why no compute ran on a device, moment by moment, as far as one rank's trace tells. Each moment
// of a window has one cause; time that nothing in the trace explains is `unknown` and never
// compute.
#pragma once

#include <array>
#include <cstdint>

#include "profiler/analysis/cause_segments.h"
#include "profiler/analysis/launch_order.h"
#include "profiler/analysis/trace_windows.h"
#include "profiler/analysis/wall_label.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// From the start to the end of the window. Rules, at each moment the
/// first that fits: compute runs; kernels without a name run; communication runs alone; a copy to
/// or from the host runs; nothing runs. Where compute starts while communication still runs, it did
/// not wait for that communication: the time up to the end of its launch is the host's.
CauseSegments explain_window(const ImportedTrace& trace, const TraceWindow& window,
                             const WorkClasses& wide);

/// The segments of judged_window(), after it was widened to the steps as the replay has them: from
/// the start of the first one, or from when all earlier work had ended, to the end of the last one
/// on the host, if that is later. What the host does before its first launch and behind the last
/// work is time of the run, too.
CauseSegments explain_steps(const ImportedTrace& trace, TraceWindow& window,
                            const WorkClasses& wide);
/// The same of the work that was launched in some of the trace's steps (TraceWindows::make);
/// `host`: from the start of the first one to the end of the last.
CauseSegments explain_steps(const ImportedTrace& trace, const Interval& host, TraceWindow& window,
                            const WorkClasses& wide);

using CauseSums = std::array<int64_t, static_cast<size_t>(IdleCause::count)>;
/// Time in which a rank's segments have each cause.
CauseSums causes_in(const CauseSegments& segments, const Interval& time);

/// When the host loaded data, by the names of its ranges.
IntervalSet loading_of(const ImportedTrace& trace);
/// When threads that launch device work were seen in the program: in long calls, and in ranges that
/// neither load data nor are the steps themselves.
IntervalSet program_of(const ImportedTrace& trace);

/// A shorter gap of the host is no stall: in other programs such gaps occur without any loading.
constexpr int64_t kStallNs = 2'000'000;
/// Whether the host was seen in its program for most of a gap: that is no stall, however long.
bool is_in_program(const IntervalSet& program, const Interval& gap);

/// Whether a copy is too small for a tensor: what the program reads to go on, or writes.
bool is_value(const ImportedOp& op);

/// Which copies of tensors to and from the host are offloading. Others to the device are input.
struct Offloading {
  /// More than a fifth of their time goes each way.
  bool is_both_ways = false;
  /// They go to the host in more than half of the steps: a checkpoint is saved in few.
  bool is_steady = false;
};
Offloading offloading_of(const ImportedTrace& trace);
/// Whether a copy is offloading. A tensor that goes to the host is never input: it makes room on
/// the device, or is kept elsewhere.
bool is_offload(const ImportedOp& op, const Offloading& offloading);

/// What the host did while it was late: nanoseconds of the launching threads.
struct HostTime {
  double sync_ns = 0;        ///< in calls that wait for the device
  double allocation_ns = 0;  ///< in calls that allocate or free
  double copy_ns = 0;        ///< in calls that return only when their copy is done
  double loader_ns = 0;      ///< in ranges named after loading data
  double stall_ns = 0;       ///< gaps of more than kStallNs outside of the program
  double launch_ns = 0;      ///< in calls that launch
  double between_ns = 0;     ///< in none of these: the program itself
  [[nodiscard]] double total_ns() const {
    return sync_ns + allocation_ns + copy_ns + loader_ns + stall_ns + launch_ns + between_ns;
  }
  HostTime& operator+=(const HostTime& other) {
    sync_ns += other.sync_ns;
    allocation_ns += other.allocation_ns;
    copy_ns += other.copy_ns;
    loader_ns += other.loader_ns;
    stall_ns += other.stall_ns;
    launch_ns += other.launch_ns;
    between_ns += other.between_ns;
    return *this;
  }
};
/// Of what waiting for input costs, the parts of its kinds; each at most that where it is not
/// known.
struct LoaderParts {
  double loading_ratio = 1;  ///< in ranges named after loading data
  double copies_ratio = 1;   ///< in copies of input, with nothing beside them
  double stall_ratio = 1;    ///< in stalls of the host of which the traces do not say the cause
};
/// `input_ns`: such copies. Of no waiting nothing is known.
LoaderParts loader_parts_of(const HostTime& host, double input_ns);
/// Sums over the host segments of one window.
HostTime explain_host(const ImportedTrace& trace, const CauseSegments& segments);

/// A part of the host's time as verdicts tell it.
struct HostPart {
  const char* name;
  double ns;
  const char* text;  ///< completes "of the time in which the host was late, 10 %"
};
/// Launching and the program between launches are one part.
std::array<HostPart, 6> parts_of(const HostTime& host);

/// Splits the host's share of the time among its causes, in `ratios`. `input_ns`: copies of input
/// with nothing beside them, which are of that share, too, and the loader's. Copies that the host
/// waits for count as synchronisation, as in a replay.
void split_host_share(const HostTime& host, double input_ns, double share,
                      std::array<double, kNumSubCauses>& ratios);

}  // namespace moetune::profiler
