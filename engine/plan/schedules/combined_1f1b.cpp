// Batch-level overlap: 1F1B whose forward and backward steps are woven into each other.
#include "engine/plan/schedules/schedule.h"

namespace moetune::plan {

std::vector<ScheduleStep> combined_1f1b(int pp, int vpp, int stage, int64_t num_micro_batches) {
  // The last stage's backward must not wait for the forward beside it.
  constexpr int64_t kAhead = 1;
  return interleaved(pp, vpp, stage, num_micro_batches, kAhead);
}

}  // namespace moetune::plan
