// How uneven routing slows a step down: whoever exchanges rows waits for the rank that gets most.
#pragma once

#include <map>
#include <utility>

#include "engine/plan/program.h"
#include "engine/plan/route.h"
#include "engine/spec/trial_spec.h"
#include "tuner/received_rows.h"

namespace moetune::tuner {

/// In each layer and micro-batch of a program a rank with as many rows as the busiest of its
/// expert-parallel group gets: the mean of some of the profile's steps that the trial times;
/// balanced without a profile. Only that group is looked at: where the gradients' reduction waits
/// for another one, the step is longer.
class BusiestBindings final : public plan::Bindings {
 public:
  /// `program`: of a rank of the trial.
  BusiestBindings(const spec::TrialSpec& trial, const plan::StepProgram& program,
                  const ReceivedRows& rows);
  [[nodiscard]] const plan::Route& at(int64_t layer, int64_t micro_batch) const override;

 private:
  plan::Route balanced_;
  std::map<std::pair<int64_t, int64_t>, plan::Route> routes_;
};

}  // namespace moetune::tuner
