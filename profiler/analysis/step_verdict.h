// What holds a traced step back. Each cause is dropped from the step of all ranks and the step is
// replayed; the cause's ceiling is how much shorter the step becomes. So waiting is booked to the
// rank that is waited for.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profiler/analysis/replayed_run.h"
#include "profiler/analysis/wall.h"
#include "profiler/analysis/wall_label.h"

namespace moetune::profiler {

/// What a verdict needs to know beside the records. Zeros are not known: then compute is not split
/// further.
struct StepFacts {
  double peak_flops_per_s = 0;    ///< that good products reach on a device
  double memory_bytes_per_s = 0;  ///< that good copies reach on it
  MemoryFacts memory;             ///< of the fullest rank
  /// A gap of the host's program is a stall from there on, and where it is 20 times the usual one.
  int64_t stall_ns = 200'000;
  double short_ratio = kShortMemoryRatio;
  /// Of the time, by accounts of it: of causes that gain only together, those of a label with less
  /// than base::kLeastBindingRatio are not named.
  std::optional<std::array<double, kNumWalls>> shares = {};
  /// Records of the step that were lost; 0 also where that is not known.
  int64_t num_lost = 0;
};

/// A link whose messages take longer than others of their size.
struct VerdictLink {
  int32_t from = 0;  ///< rank
  int32_t to = 0;
  double message_ns = 0;
  double usual_ns = 0;  ///< on the fastest link between two other ranks

  [[nodiscard]] double ratio() const { return usual_ns > 0 ? message_ns / usual_ns : 0; }
  /// A sentence; callers may know the ranks by other numbers.
  [[nodiscard]] std::string text(int64_t shown_from, int64_t shown_to) const;
};

struct StepVerdict {
  Wall label = Wall::unknown;
  SubCause sub_cause = SubCause::unexplained;
  /// Whose doing most of it is, where one rank stands out; of an uneven stage, a rank of it.
  std::optional<int32_t> rank;
  std::optional<VerdictLink> link;  ///< of one link, where messages tell it
  int64_t step_ns = 0;              ///< as replayed with nothing dropped
  /// Share of the step that is saved if all causes of the label are dropped; compute: the share of
  /// kernels, and of their waiting for a device that ranks share.
  std::array<double, kNumWalls> ceilings = {};
  /// Share of the step that is saved by dropping each cause alone; causes of compute: their shares.
  std::array<double, kNumSubCauses> sub_ceilings = {};
  /// Share of the step in which enqueued work waited while other ranks used the device; a part of
  /// compute's ceiling.
  double device_shared_ratio = 0;
  /// The label's ceiling if it is to blame for all that nothing explains, too, such as waits whose
  /// records were lost, and for stalls of the host that may be such: no less than the ceiling. Of
  /// compute and unknown it is the ceiling.
  double most_ratio = 0;
  int64_t num_lost = 0;  ///< records (StepFacts)
  /// Share of the step that is saved if nothing is computed again, whether memory is short or not.
  double recompute_ratio = 0;
  /// Where another label's causes take as long at the same time, so that only dropping both saves
  /// much: share of the step that is saved without the label's once all others are dropped. Else 0.
  /// The ceiling is what is saved without the label's alone.
  double joint_ratio = 0;
  /// The cause that hides it: without both the step is shortest. None: also where it is not known.
  std::optional<SubCause> hidden_by;
  /// Share of inferred waits in the time of all waits for other streams.
  double inferred_ratio = 0;
  std::string summary;  ///< a sentence, without the rank

  /// The summary with the rank, which callers may know by another number.
  [[nodiscard]] std::string text(std::optional<int64_t> shown_rank) const;
  [[nodiscard]] std::string text() const { return text(rank); }
  [[nodiscard]] double ceiling_ratio() const { return ceilings[static_cast<size_t>(label)]; }
  /// "29.1 %"; where records were lost "up to 29.1 %".
  [[nodiscard]] std::string ceiling_text() const;
  [[nodiscard]] bool is_hidden() const { return joint_ratio > 0; }
  [[nodiscard]] double unknown_ratio() const {
    return ceilings[static_cast<size_t>(Wall::unknown)];
  }
};

/// A sentence on a label that is_hidden().
std::string text_of_hidden(const StepVerdict& verdict);
/// "communication (transfer) and host (launch)"; of a label that is_hidden().
std::string both_causes(const StepVerdict& verdict);
/// A sentence on compute, as the label of the verdict has too small a share of the time.
std::string text_of_unsure(const StepVerdict& verdict, double compute_ratio, double share_ratio);

/// Traces of one step of all ranks (or of one of each stage), on one clock. Rules:
///  - The label is that whose causes, dropped together, shorten the step most, by at least
///    base::kLeastBindingRatio; compute where none does. Where they gain only together, because
///    they hide each other, it is the one that costs most by itself, of those that may be named.
///  - Unknown is what nothing in the records explains. There is no verdict with more of it than
///    kMaxUnknownRatio that could change the order, or where only it reaches
///    base::kLeastBindingRatio.
///  - Where records were lost, the ceilings of the label and of its cause count what nothing
///    explains, too (most_ratio): a ceiling is no less than what the cause's removal gains. There
///    is no verdict where another label would be it if that were its doing.
///  - Stages wait for whatever is late on another one. The pipeline's ceiling is what of that is
///    left where the causes of all other labels are dropped already.
///  - Within a label the cause with the largest ceiling; one link where it is half of the label's.
///    Launching that is late only behind synchronisations, which let the device run empty, is
///    theirs.
///  - Compute is bound by occupancy (what kernels take longer than the roofline) or bandwidth where
///    dropping that would gain base::kLeastBindingRatio, else by FLOPs.
///  - The rank is that whose part of the sub-cause makes 0.6 of its ceiling, and 1.5 times that of
///    any other; of a link that all of whose communicators and links are slow, or that sends on the
///    only slow one; of stages one of the slowest.
///  - Recomputation is memory only where memory is short; too small work then is a micro-batch that
///    memory caps.
StepVerdict judge_step(const ReplayedRun& run, const StepFacts& facts);

}  // namespace moetune::profiler
