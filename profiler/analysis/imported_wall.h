// What holds a run back, from traces of other tools: the cause whose removal would shorten the
// traced time most. Time that nobody can explain is unknown and never compute; where it could hide
// another wall than the largest, there is no verdict but what to record next time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profiler/analysis/group_costs.h"
#include "profiler/analysis/imported_roofline.h"
#include "profiler/analysis/kernel_costs.h"
#include "profiler/analysis/matched_collectives.h"
#include "profiler/analysis/wall.h"
#include "profiler/analysis/wall_label.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

struct ImportedWall {
  Wall label = Wall::unknown;
  std::string sub_cause;        ///< "launch", "sync", "rank", ...; empty: not told apart
  std::optional<int64_t> rank;  ///< the one that causes most of it, if one stands out
  double share_ratio = 0;       ///< of the label: its ceiling
  double unknown_ratio = 0;
  std::array<double, kNumWalls> shares = {};  ///< of the traced time, by label; sum to 1
  /// Share of a step that is gained without the label's causes; the same as `shares` where no step
  /// could be replayed.
  std::array<double, kNumWalls> ceilings = {};
  std::array<double, kNumSubCauses> sub_ceilings = {};  ///< the same of each cause alone, or 0
  /// The same of computing activations a second time, also where that is not memory's doing.
  double recompute_ratio = 0;
  LoaderParts loader;            ///< what the loader's part of them is made of
  bool is_memory_short = false;  ///< as far as headroom is known
  /// Tensors that go to the host do not come back, so they may be no offloading of a setting.
  bool is_offload_one_way = false;
  int num_steps = 0;      ///< that were replayed
  double low_ratio = 0;   ///< of them, the least ceiling of the label
  double high_ratio = 0;  ///< and the largest
  /// The label's ceiling if it is to blame for what nothing explains, too: no less than
  /// share_ratio. Only of steps that were replayed, of a label that could be removed.
  std::optional<double> most_ratio;
  /// Of a label that another one hides, so that only both gain much: what it costs without the
  /// other one (StepVerdict::joint_ratio).
  std::optional<double> joint_ratio;
  std::optional<SubCause> hidden_by;  ///< which other one, where that is known
  /// Of a label that may be waiting for ranks without a trace: "waiting for one of the 3 ranks
  /// without a trace". Else empty.
  std::string waiting_instead;
  bool is_waiting_likely = false;  ///< alike collectives speak for that
  std::string summary;             ///< a sentence
  std::vector<Evidence> evidence;
  double window_ns = 0;         ///< that is judged of a rank, the mean of all
  GroupCosts groups;            ///< whose communication it is, and what it costs
  KernelCosts kernels;          ///< what kernels of each class cost, and launching them
  CollectiveMatching matching;  ///< of the traces; empty where fewer than two have device work
};

/// The traces are those of one run, one for each rank. Throws base::UsageError, which names the
/// files, where they cannot be: a rank occurs twice, or sizes of the world differ. Rules:
///  - Judged is the work launched in steps, from the start of the first to the end of the last on
///    host and device; without steps, all launched work; else all work. Work whose launch is lost
///    was launched with the work before it. With too little work there is no verdict.
///  - There is no verdict either where a hundredth of the work starts before its launch (clocks
///    differ), without kernels, where a tenth of them has no positive duration, where correlation
///    ids are not unique, or where a tenth of their time is of kernels without a name.
///  - Each moment gets a cause (trace_causes.h). Waiting in a matched collective is booked to the
///    rank that came last, under what that rank did meanwhile: host, or compute (imbalance).
///    Waiting for a rank without a trace cannot be told from a transfer, or from what a stage waits
///    for: where that may be a tenth of what is booked to communication or pipeline, summary and
///    evidence say so, and there is no sub-cause. Where alike collectives take unequally long, that
///    speaks for waiting (UnevenCollectives).
///  - Where communication is the label and nothing of it was found on two ranks, though no rank is
///    known to be missing, or less than half and the rest may be messages, there is no verdict. Nor
///    is there where half of it lacks a rank that was recorded meanwhile (Lack), or where
///    collectives that two ranks have in common do not end together.
///  - Messages between stages are pipeline. Copies to and from the host are memory if both
///    directions matter (offload), else tensors that go to the host in most steps are memory, and
///    the rest is host.
///  - The largest share is the label if it reaches kLeastBindingRatio. Otherwise the label is
///    compute. If the unexplained share is too large for that (is_sure), there is no verdict.
///  - Where steps can be replayed, they are replayed without the causes of each label
///    (imported_replay.h), and the label of most steps wins instead, if its share and its ceiling
///    reach kLeastBindingRatio. Waiting for a stage whose messages are matched counts for any
///    label's share, and what collectives take from work beside them for communication's, where
///    that is the sub-cause. Of labels that gain only together one is named whose share reaches
///    that. A replay that is off by more than 5 % is not used.
///    Where none can be, the causes of host and memory have their shares of the accounts.
///  - Compute is told apart as in our own steps (step_verdict.h) where `peaks` are known and at
///    least half of the kernels' time is of known work (imported_roofline.h). Otherwise it is said
///    why not.
///  - What computed activations a second time (ImportedTrace::recomputed) is memory where more than
///    kShortMemoryRatio of the device's memory is in use, and what it would be otherwise where less
///    is, or where that is not known.
///  - Kernels that are too small (occupancy) are memory's doing (a capped micro-batch) where more
///    than kShortMemoryRatio of the device's memory is in use. `memory`: of the fullest rank;
///    without a capacity nothing is known.
ImportedWall classify_imported(std::span<const ImportedTrace> traces, const DevicePeaks& peaks = {},
                               const MemoryFacts& memory = {});

}  // namespace moetune::profiler
