// The interleaved schedule as an explicit list of steps.
#include <algorithm>

#include "engine/plan/schedules/schedule.h"
#include "kernels/base/error.h"

namespace moetune::plan {

std::vector<ScheduleStep> interleaved(int pp, int vpp, int stage, int64_t num_micro_batches,
                                      int64_t num_ahead) {
  MOETUNE_CHECK(pp >= 1 && vpp >= 1 && stage >= 0 && stage < pp && num_micro_batches >= 0 &&
                    num_micro_batches % pp == 0,
                "no schedule for stage {} of {} with {} virtual stages and {} micro-batches", stage,
                pp, vpp, num_micro_batches);
  const int64_t total = num_micro_batches * vpp;
  const int64_t round = int64_t{pp} * vpp;
  const auto step = [&](bool is_forward, int64_t index) {
    const auto turn = static_cast<int>(index % round / pp);
    return ScheduleStep{is_forward, index / round * pp + index % pp,
                        is_forward ? turn : vpp - 1 - turn};
  };
  const int64_t warmup =
      std::min<int64_t>((pp - 1 - stage) * 2 + int64_t{vpp - 1} * pp + num_ahead, total);
  std::vector<ScheduleStep> steps;
  steps.reserve(static_cast<size_t>(2 * total));
  for (int64_t i = 0; i < warmup; ++i) steps.push_back(step(true, i));
  for (int64_t i = warmup; i < total; ++i) {
    steps.push_back(step(true, i));
    steps.back().is_woven = num_ahead > 0;
    steps.push_back(step(false, i - warmup));
  }
  for (int64_t i = total - warmup; i < total; ++i) steps.push_back(step(false, i));
  return steps;
}

}  // namespace moetune::plan
