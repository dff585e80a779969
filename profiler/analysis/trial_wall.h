// The verdict on a trial of the own engine: what holds it back, by replays of its traced steps,
// with the evidence in sentences.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/analysis/step_account.h"
#include "profiler/analysis/steps_verdict.h"
#include "profiler/analysis/wall.h"

namespace moetune::profiler {

struct TrialWall {
  Wall wall = Wall::unknown;
  std::string sub_cause;              ///< empty: out of memory, or not told apart
  std::optional<StepsVerdict> steps;  ///< none: nothing was traced
  std::string summary;                ///< a sentence
  std::vector<Evidence> evidence;     ///< sentences, too
};

/// `steps`: the first one is the step that `account` is of. A trial without a traced step must have
/// run out of memory: its wall is memory then, whatever its steps say. `to_record`: what a next run
/// should record, for a verdict of unknown; completes "record". Throws base::Error with nothing to
/// judge.
TrialWall judge_trial(std::vector<StepVerdict> steps, const std::optional<StepAccount>& account,
                      const MemoryFacts& memory, const std::string& to_record);

}  // namespace moetune::profiler
