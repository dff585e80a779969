// What holds a run back, from traces of other tools: the cause whose removal would shorten the
// traced time most. Time that nobody can explain is unknown and never compute; where it could hide
// another wall than the largest, there is no verdict but what to record next time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/analysis/wall.h"
#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// In the order in which ties are decided.
enum class WallLabel : uint8_t {
  communication,
  host,
  pipeline,
  imbalance,
  memory,
  compute,
  unknown,
  count
};
constexpr size_t kNumWallLabels = static_cast<size_t>(WallLabel::count);
const char* name_of(WallLabel label);

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
  double share_ratio = 0;       ///< of the label
  double unknown_ratio = 0;
  std::array<double, kNumWallLabels> shares = {};  ///< by label; sum to 1
  std::string summary;                             ///< a sentence
  std::vector<Evidence> evidence;
};

/// Of the traces of one run, one a rank. Throws base::UsageError, which names the files, where they
/// cannot be of one: a rank twice, sizes of the world that differ. Rules:
///  - Judged is the work that was launched in steps; without steps all that was launched in the
///    trace, else all.
///  - The causes of trace_causes.h, with waiting booked to the rank that came last to a matched
///    collective, and there to what this rank did meanwhile: its host, or its compute (imbalance).
///  - Messages between pipeline stages are pipeline. Copies to and from the host are memory where
///    they go both ways (offload), else the host's.
///  - The label is the largest of these with at least least_ratio, compute where none has.
ImportedWall classify_imported(std::span<const ImportedTrace> traces,
                               const ImportedWallOptions& options = {});

}  // namespace moetune::profiler
