// How uneven routing slows a step down: whoever exchanges rows waits for the rank that gets most.
#pragma once

#include <map>
#include <utility>

#include "engine/plan/program.h"
#include "engine/plan/route.h"
#include "engine/spec/trial_spec.h"
#include "tuner/received_rows.h"

namespace moetune::tuner {

/// Rows of a rank whose experts receive `load` times their share: at most all of the group.
int64_t rows_at_load(const plan::LayerDims& dims, double load);

/// Routing of a rank that receives as many rows as the busiest rank of its expert-parallel group,
/// for each layer and micro-batch. The rows are averaged over some of the timed steps of the
/// profile; without a profile they are a given multiple of its share. Other expert-parallel groups
/// are not looked at, so steps that wait for them are underestimated.
class BusiestBindings final : public plan::Bindings {
 public:
  /// `program`: of a rank of the trial. `load`: of the busiest rank, over its share.
  BusiestBindings(const spec::TrialSpec& trial, const plan::StepProgram& program,
                  const ReceivedRows& rows, double load = 1);
  [[nodiscard]] const plan::Route& at(int64_t layer, int64_t micro_batch) const override;

 private:
  plan::Route same_;  ///< where no profile says more
  std::map<std::pair<int64_t, int64_t>, plan::Route> routes_;
};

}  // namespace moetune::tuner
