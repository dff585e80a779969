// What follows from the time of a step.
#include <array>

#include "tuner/planner/step_time.h"

namespace moetune::tuner::planner {

double tokens_per_s_per_device(const PlanRun& run, double step_seconds) {
  if (step_seconds <= 0) return 0;
  return static_cast<double>(run.global_batch_size) * static_cast<double>(run.seq_length) /
         step_seconds / static_cast<double>(run.knobs.world_size());
}

base::Wall wall_of(const StepTime& step) {
  std::array<double, base::kNumWalls> shares{};
  for (size_t i = 0; i < step.parts.size(); ++i) {
    shares[static_cast<size_t>(named(static_cast<TimePart>(i)).row->wall)] +=
        step.parts[i] / step.seconds;
  }
  return base::binding_wall(shares);
}

}  // namespace moetune::tuner::planner
