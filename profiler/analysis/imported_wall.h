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

#include "profiler/analysis/wall.h"
#include "profiler/analysis/wall_label.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// Limits of the verdict; shares of the traced time.
struct ImportedWallOptions {
  double least_ratio = base::kLeastBindingRatio;  ///< a smaller wall does not bind
  /// With more unexplained, nothing is called the wall, unless it is the largest by more than this.
  double most_unknown_ratio = 0.15;
  int64_t fewest_ops = 32;          ///< of device work; less is no sample of a run
  int64_t shortest_ns = 1'000'000;  ///< the same
};

struct ImportedWall {
  WallLabel label = WallLabel::unknown;
  std::string sub_cause;        ///< "launch", "sync", "late rank", ...; empty: not told apart
  std::optional<int64_t> rank;  ///< whose doing it is, where one stands out
  double share_ratio = 0;       ///< of the label: its ceiling
  double unknown_ratio = 0;
  std::array<double, kNumWallLabels> shares = {};  ///< of the traced time, by label; sum to 1
  /// Share of a step that is gained without the label's causes; the same as `shares` where no step
  /// could be replayed.
  std::array<double, kNumWallLabels> ceilings = {};
  std::array<double, kNumSubCauses> sub_ceilings = {};  ///< the same of each cause alone, or 0
  int num_steps = 0;                                    ///< that were replayed
  double low_ratio = 0;                                 ///< of them, the least ceiling of the label
  double high_ratio = 0;                                ///< and the largest
  std::string summary;                                  ///< a sentence
  std::vector<Evidence> evidence;
};

/// Of the traces of one run, one a rank. Throws base::UsageError, which names the files, where they
/// cannot be of one: a rank twice, sizes of the world that differ. Rules:
///  - Judged is the work that was launched in steps; without steps all that was launched in the
///    trace, else all.
///  - The causes of trace_causes.h, with waiting booked to the rank that came last to a matched
///    collective, and there to what this rank did meanwhile: its host, or its compute (imbalance).
///  - Then steps are replayed without the causes of each label (imported_replay.h). The label is
///    that of most steps, where its time and its ceiling both reach least_ratio. A replay that
///    differs from the recorded step by more than a twentieth is not used.
///  - Messages between pipeline stages are pipeline. Copies to and from the host are memory where
///    they go both ways (offload), else the host's.
///  - Without a replay the label is the largest of these with at least least_ratio. Where none
///    binds it is compute.
ImportedWall classify_imported(std::span<const ImportedTrace> traces,
                               const ImportedWallOptions& options = {});

}  // namespace moetune::profiler
