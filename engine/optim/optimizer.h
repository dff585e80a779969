// The end of a step: gradients reduced over the ranks that share parameters, clipped by their
// global norm, AdamW on this rank's shard (ZeRO-1, Rajbhandari et al. 2020) or on everything,
// weights gathered again.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/parameters.h"
#include "engine/run_op.h"

namespace moetune::engine {

/// Linear warm-up, then cosine decay to min_lr; step counts from 0.
double learning_rate(const spec::TrainingSpec& training, int64_t step);

class Optimizer {
 public:
  Optimizer(RankContext& rank, Parameters& params);

  void zero_grads();
  /// Starts the reduction of one layer's buckets beside what follows.
  void reduce_layer(int64_t layer);
  /// Reduces what has not been reduced yet and returns the global gradient norm before clipping.
  double finish_gradients();
  /// One AdamW step (step counts from 0) and the gathering of weights.
  void update(int64_t step, double grad_norm);

 private:
  void reduce(size_t bucket);
  void reduce_tied_embedding();
  [[nodiscard]] std::vector<kernels::AdamWArgs::Slice> slices() const;

  RankContext& rank_;
  Parameters& params_;
  std::vector<bool> is_reduced_;
};

}  // namespace moetune::engine
