// 1F1B as an explicit list of steps.
#include <algorithm>

#include "engine/plan/schedules/schedule.h"
#include "kernels/base/error.h"

namespace moetune::plan {

std::vector<ScheduleStep> one_f_one_b(int pp, int stage, int64_t num_micro_batches) {
  MOETUNE_CHECK(pp >= 1 && stage >= 0 && stage < pp && num_micro_batches >= 0,
                "no schedule for stage {} of {} with {} micro-batches", stage, pp,
                num_micro_batches);
  const int64_t warmup = std::min<int64_t>(pp - 1 - stage, num_micro_batches);
  std::vector<ScheduleStep> steps;
  steps.reserve(static_cast<size_t>(2 * num_micro_batches));
  for (int64_t m = 0; m < warmup; ++m) steps.push_back({true, m});
  for (int64_t m = 0; m < num_micro_batches - warmup; ++m) {
    steps.push_back({true, warmup + m});
    steps.push_back({false, m});
  }
  for (int64_t m = num_micro_batches - warmup; m < num_micro_batches; ++m) {
    steps.push_back({false, m});
  }
  return steps;
}

}  // namespace moetune::plan
