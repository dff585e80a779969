// The update: the learning rate of a step, and which pieces of memory AdamW works on.
#pragma once

#include <cstdint>
#include <span>

#include "engine/model/parameters.h"
#include "engine/run_op.h"

namespace moetune::engine {

/// Linear warm-up, then cosine decay to min_lr; step counts from 0.
double learning_rate(const spec::TrainingSpec& training, int64_t step);

/// What is updated of one bucket: elements from `begin` on, all parts beginning with that one.
struct BucketSlice {
  int bucket = 0;
  int64_t begin = 0;
  Tensor weight;
  Tensor grad;
  Tensor master;
  Tensor m;
  Tensor v;
};

/// One AdamW step after `num_updates` others on these slices, with gradients clipped to the
/// recipe's norm.
kernels::AdamWArgs adamw_args(const RankContext& rank, const plan::ParamPlan& plan,
                              std::span<const BucketSlice> slices, int64_t num_updates, double lr,
                              double grad_norm);

}  // namespace moetune::engine
