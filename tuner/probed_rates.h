// How fast a machine's kernels, launches and links are, from what trials on it measured: the
// figures of a hardware file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/plan/layout.h"
#include "engine/plan/player.h"
#include "engine/spec/hardware_spec.h"

namespace moetune::tuner {

/// What all operations of one label did in one trial, its ranks together.
struct ProbedSum {
  double count = 0;
  double flops = 0;
  double bytes = 0;
  double row_flops = 0;  ///< plan::OpCost::row_flops
  double ns = 0;
};
/// By label (plan::op_label) and number of the trial.
using ProbedSums = std::map<std::pair<std::string, int64_t>, ProbedSum>;

/// What kernels of one kind reach.
struct WorkRate {
  double per_ns = 0;     ///< FLOPs, or bytes, a nanosecond: all that is worth a look, over its time
  double low = 0;        ///< the slowest operation that is worth a look
  double high = 0;       ///< the fastest
  double half_rows = 0;  ///< spec::HardwareSpec::half_rows
  int num_ops = 0;       ///< that were worth a look
};
using WorkRates = std::map<spec::Work, WorkRate>;

/// Whether FLOPs bound work of that kind; else bytes do.
bool is_bound_by_flops(spec::Work work);

/// Operations of less than a hundredth of a trial's time are left out where their kind has larger
/// ones. Labels that are no computation on the device are skipped.
WorkRates rates_of(const ProbedSums& sums);

/// Latency and bandwidth of one kind of link.
struct ProbedLink {
  spec::LinkSpec link;
  double error = 0;  ///< median |predicted / measured - 1|
  int num_records = 0;
};
struct ProbedLinks {
  std::optional<ProbedLink>
      intra_node;  ///< none: no message stayed within a node, or too few sizes
  std::optional<ProbedLink> inter_node;
};

/// From the transfers in traces of a trial with that layout on that machine, whose own links are
/// not read: a transfer takes spec's formulas of collectives and messages (hardware_spec.h), linear
/// in latency and in the time of a byte, which are fitted by relative least squares. Of a group
/// over several nodes what crosses them is taken to last longest.
ProbedLinks links_of(const std::vector<profiler::StepTrace>& traces, const plan::Layout& layout,
                     const spec::HardwareSpec& hardware);

/// What the host pays, from traces in wall time.
struct ProbedHost {
  std::optional<int64_t> launch_ns;        ///< median of plain launches
  std::optional<int64_t> sync_ns;          ///< of the tenth of synchronisations that wait least
  std::optional<int64_t> kernel_floor_ns;  ///< of the hundredth of kernels that is shortest
};
ProbedHost host_of(const std::vector<profiler::StepTrace>& traces);

/// The machine with what was measured in place of what its file says. `keeps_peaks`: efficiencies
/// are shares of the file's peaks (a data sheet's); else the fastest kinds of work become the
/// peaks. Two digits are kept: more are not the same in the next run.
spec::HardwareSpec with_rates(spec::HardwareSpec hardware, const WorkRates& rates,
                              bool keeps_peaks);

}  // namespace moetune::tuner
