// The verdict on several steps of a run, each of which was judged alone: what most of them say, and
// how far they differ.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "profiler/analysis/step_verdict.h"

namespace moetune::profiler {

struct StepsVerdict {
  /// Of the step with the median ceiling, among the steps with the most frequent label.
  StepVerdict verdict;
  double low_ratio = 0;   ///< smallest ceiling of that label over all steps
  double high_ratio = 0;  ///< largest one
  int num_steps = 0;
  int num_agreeing = 0;  ///< steps with that label

  /// How many steps agree, and from where to where the label's share of them goes.
  [[nodiscard]] Evidence agreement() const;
};

/// Of at least one step.
StepsVerdict verdict_of_steps(std::vector<StepVerdict> verdicts);

/// Which of a run's steps to replay, evenly spaced: fewer if they are large. `largest`: records of
/// the largest step.
std::vector<size_t> steps_to_replay(size_t num_steps, size_t largest);

}  // namespace moetune::profiler
