// See adamw.h.
#include "engine/optim/adamw.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moetune::engine {

double learning_rate(const spec::TrainingSpec& training, int64_t step) {
  if (step < training.lr_warmup_steps) {
    return training.lr * static_cast<double>(step + 1) /
           static_cast<double>(training.lr_warmup_steps);
  }
  if (training.lr_decay_steps <= 0) return training.lr;
  const double progress =
      std::min(1.0, static_cast<double>(step - training.lr_warmup_steps) /
                        static_cast<double>(std::max<int64_t>(
                            1, training.lr_decay_steps - training.lr_warmup_steps)));
  return training.min_lr +
         0.5 * (training.lr - training.min_lr) * (1.0 + std::cos(std::numbers::pi * progress));
}

kernels::AdamWArgs adamw_args(const RankContext& rank, const Parameters& params,
                              int64_t num_updates, double lr, double grad_norm) {
  const auto& training = rank.trial.training;
  kernels::AdamWArgs args;
  for (const plan::ShardPiece& piece :
       plan::shard_pieces(params.plan(), rank.layout, rank.rank, params.is_sharded())) {
    const plan::ParamDesc& param = params.plan().params[piece.param];
    const Bucket& bucket = params.buckets()[static_cast<size_t>(param.bucket)];
    const int64_t in_shard = piece.begin - bucket.shard_begin;
    const bool use_decay = training.decays_all || !(param.is_norm || param.is_bias);
    args.slices.push_back({element(bucket.weight, piece.begin), element(bucket.master, in_shard),
                           element(bucket.m, in_shard), element(bucket.v, in_shard),
                           element(bucket.grad, piece.begin), piece.end - piece.begin, use_decay});
  }
  args.dtype = rank.precision.stat;
  args.weight_dtype = rank.precision.element;
  args.moment_dtype = rank.precision.moment;
  args.lr = lr;
  args.beta1 = training.beta1;
  args.beta2 = training.beta2;
  args.eps = training.adam_eps;
  args.weight_decay = training.weight_decay;
  args.step = num_updates + 1;
  if (training.clip_grad > 0 && grad_norm > training.clip_grad) {
    args.grad_scale = training.clip_grad / (grad_norm + 1e-6);
  }
  return args;
}

}  // namespace moetune::engine
