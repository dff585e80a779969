// What hunts through commits and through configurations have in common: why something is run, and
// how a hunt ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tuner/stats/effect.h"

namespace moetune::tuner {

/// Why a commit or a set of changes is run.
enum class RunPurpose : uint8_t {
  ends,       ///< whether there is a change at all
  search,     ///< where it is
  reference,  ///< an end once more: whether the machine has drifted
  verify,     ///< a suspect and its parent, freshly
};
const char* name_of(RunPurpose purpose);

enum class HuntVerdict : uint8_t {
  culprit,
  no_change,
  environment_changed,  ///< what differs is when the runs were made, not what they ran
  unresolved,           ///< no answer; the reason says why
};
const char* name_of(HuntVerdict verdict);

/// What every hunt ends with, beside its culprits.
struct HuntOutcome : EndsEffect {
  HuntVerdict verdict = HuntVerdict::unresolved;
  bool is_swapped = false;  ///< the bad end is better than the good one
  std::string reason;       ///< of a verdict that is not `culprit`, or what a culprit leaves open
  bool has_drift = false;
  std::optional<double> no_change;  ///< probability; none before anything was decided
};

/// How many runs a hunt is expected to need still.
struct RunsLeft {
  int likely = 0;
  int most = 0;  ///< enough for most hunts; tests/bench/bisect_bench.cpp prints for how many
};

}  // namespace moetune::tuner
