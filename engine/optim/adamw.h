// The update of this rank's shard: the learning rate of a step, and which pieces of memory AdamW
// works on.
#pragma once

#include <cstdint>

#include "engine/model/parameters.h"
#include "engine/run_op.h"

namespace moetune::engine {

/// Linear warm-up, then cosine decay to min_lr; step counts from 0.
double learning_rate(const spec::TrainingSpec& training, int64_t step);

/// One AdamW step after `num_updates` others on what the rank updates, with gradients clipped to
/// the recipe's norm.
kernels::AdamWArgs adamw_args(const RankContext& rank, const Parameters& params,
                              int64_t num_updates, double lr, double grad_norm);

}  // namespace moetune::engine
