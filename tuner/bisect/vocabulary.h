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
  ends,       ///< to find out whether there is a change at all
  search,     ///< to find out where it is
  reference,  ///< an end once more, to find out whether the machine has drifted
  verify,     ///< fresh runs of a suspect and its parent
};
const char* name_of(RunPurpose purpose);

enum class HuntVerdict : uint8_t {
  culprit,
  no_change,
  environment_changed,  ///< the machine's drift explains the difference
  unresolved,           ///< no answer; the reason says why
};
const char* name_of(HuntVerdict verdict);

/// The result of any hunt, without its culprits.
struct HuntOutcome : EndsEffect {
  HuntVerdict verdict = HuntVerdict::unresolved;
  bool is_swapped = false;  ///< the bad end is better than the good one
  /// Why the verdict is not `culprit`; if it is, what is still open.
  std::string reason;
  bool has_drift = false;
  /// Probability that nothing has changed; empty before anything was decided.
  std::optional<double> no_change;
};

/// How many runs a hunt is expected to need still.
struct RunsLeft {
  int likely = 0;
  int most = 0;  ///< enough for nine of ten hunts, as tests/bench/bisect_bench.cpp measures
};

}  // namespace moetune::tuner
