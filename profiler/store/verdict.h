// What a stored sweep has come to: whether its winner passed the validation, and how much faster it
// is. Text, JSON, report and exit code all ask here.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "profiler/store/store.h"

namespace moetune::store {

/// Whether a long run has confirmed the winner.
struct Validation {
  /// True: the winner is what the long run measured, and it held. False: its long run ended badly
  /// or its loss was too high. None: it has had no long run, as the budget or the user ended the
  /// sweep.
  std::optional<bool> is_passed;
  std::string text;  ///< what the search says of it; empty where it says nothing
  /// Its steps of the long run are longer than those that it won by, beyond both intervals.
  bool is_slower = false;

  /// The text without its full stop, for a sentence that goes on.
  [[nodiscard]] std::string reason() const;
};
Validation validation_of(const std::vector<DecisionRow>& decisions, const TrialRow& winner);

/// Ids of the trials that ended as wrong and were cleared by the second reference run, whose
/// rounding differs: what they are off is no more than that. Their rows say wrong as before.
std::set<int64_t> cleared_trials(const std::vector<DecisionRow>& decisions);
inline constexpr const char* kClearedText = "cleared by the perturbed reference";

/// How many times the throughput of the first fit: 1 + the ratio. A gain ratio of 1.21 is a speedup
/// of 2.21, and people are always shown the speedup ("2.21x").
inline double speedup_of(double gain_ratio) { return gain_ratio + 1; }

}  // namespace moetune::store
