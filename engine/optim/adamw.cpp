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

namespace {

/// The number of a parameter's first element among all elements of the model, the same in every
/// layout: which way one is rounded must not depend on who does it. Both copies of a tied embedding
/// have the same.
int64_t first_element(const plan::ParamDesc& param) {
  constexpr int64_t kMostElements = int64_t{1} << 38;  // of one parameter
  // Of those that the engine runs: what only plans know changes no number.
  constexpr auto kNumKinds = static_cast<int64_t>(plan::ParamKind::head) + 1;
  const plan::ParamKind kind = param.is_tied_copy ? plan::ParamKind::embedding : param.kind;
  const int64_t number = (param.layer + 1) * kNumKinds + static_cast<int64_t>(kind);
  return number * kMostElements;
}

}  // namespace

kernels::AdamWArgs adamw_args(const RankContext& rank, const plan::ParamPlan& plan,
                              std::span<const BucketSlice> slices, int64_t num_updates, double lr,
                              double grad_norm) {
  const auto& training = rank.trial.training;
  kernels::AdamWArgs args;
  const bool has_rounding =
      rank.precision.m == base::DType::bf16 || rank.precision.v == base::DType::bf16;
  std::vector<const BucketSlice*> by_bucket(plan.buckets.size(), nullptr);
  for (const BucketSlice& slice : slices) by_bucket[static_cast<size_t>(slice.bucket)] = &slice;
  for (const plan::ParamDesc& param : plan.params) {
    const BucketSlice* bucket = by_bucket[static_cast<size_t>(param.bucket)];
    if (bucket == nullptr) continue;
    const bool use_decay = training.decays_all || !(param.is_norm || param.is_bias);
    const auto add = [&](int64_t local, int64_t global, int64_t count) {
      const int64_t at = param.offset + local - bucket->begin;
      args.slices.push_back({element(bucket->weight, at), element(bucket->master, at),
                             element(bucket->m, at), element(bucket->v, at),
                             element(bucket->grad, at), count, use_decay,
                             first_element(param) + global});
    };
    const int64_t begin = std::max<int64_t>(bucket->begin - param.offset, 0);
    const int64_t end =
        std::min(bucket->begin + bucket->weight.numel() - param.offset, param.numel());
    if (begin >= end) continue;
    // Numbers matter to rounding only; without it a piece need not be cut where they jump.
    if (has_rounding) {
      param.for_stretches(begin, end, add);
    } else {
      add(begin, begin, end - begin);
    }
  }
  args.dtype = rank.precision.stat;
  args.weight_dtype = rank.precision.element;
  args.m_dtype = rank.precision.m;
  args.v_dtype = rank.precision.v;
  args.rounding_seed = training.seed;
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
