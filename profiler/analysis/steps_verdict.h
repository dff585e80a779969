// The verdict on several steps of a run, each of which was judged alone: what most of them say, and
// how far they differ.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "profiler/analysis/step_verdict.h"

namespace moetune::profiler {

/// Ceilings below it, and differences of ceilings, are not told.
inline constexpr double kLeastToldCeiling = 0.005;

struct StepsVerdict {
  /// Of the step that is told or, where that has another label, of the one with the median ceiling
  /// among the steps with the most frequent label. It names a rank that half of these name.
  StepVerdict verdict;
  double low_ratio = 0;   ///< smallest ceiling of that label over all steps
  double high_ratio = 0;  ///< largest one
  int num_steps = 0;
  int num_agreeing = 0;  ///< steps with that label
  /// The same by label.
  std::array<double, kNumWalls> low_ceilings = {};
  std::array<double, kNumWalls> high_ceilings = {};
  std::array<int, kNumWalls> num_by_label = {};

  /// The verdict in a sentence; where no more than half of the steps agree it says so.
  [[nodiscard]] std::string text() const;
  /// How many steps agree, and from where to where the label's share of them goes.
  [[nodiscard]] Evidence agreement() const;
  /// What the ceiling is with what nothing explains, or that it is this one already, as records
  /// were lost; none where that is no more.
  [[nodiscard]] std::optional<Evidence> with_unexplained() const;
  /// Of a label that is hidden by another one: what it costs without that; else none.
  [[nodiscard]] std::optional<Evidence> without_both() const;
  /// Which walls the other steps have; none where all agree.
  [[nodiscard]] std::optional<Evidence> disagreement() const;
};

/// Of at least one step. `told`: index of the step whose records people see, if there is one. Where
/// two labels are equally frequent its own wins.
StepsVerdict verdict_of_steps(std::vector<StepVerdict> verdicts,
                              std::optional<size_t> told = std::nullopt);

/// Which of a run's steps to replay, evenly spaced: fewer if they are large. `largest`: records of
/// the largest step.
std::vector<size_t> steps_to_replay(size_t num_steps, size_t largest);

}  // namespace moetune::profiler
