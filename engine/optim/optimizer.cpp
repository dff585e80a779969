// The update tail of a step; see optimizer.h.
#include "engine/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace moetune::engine {
namespace {

char* element(const Tensor& tensor, int64_t index) {
  return static_cast<char*>(tensor.data) + index * base::size_of(tensor.dtype);
}

}  // namespace

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

Optimizer::Optimizer(RankContext& rank, Parameters& params)
    : rank_(rank), params_(params), is_reduced_(params.buckets().size(), false) {}

void Optimizer::zero_grads() {
  int64_t bytes = 0;
  for (const Bucket& bucket : params_.buckets()) bytes += bucket.grad.bytes();
  run_op(rank_, Op::zero_grads, Pass::update, {0, bytes}, [&] {
    for (Bucket& bucket : params_.buckets()) {
      rank_.backend.fill_zero(bucket.grad.data, bucket.grad.bytes());
    }
  });
  std::fill(is_reduced_.begin(), is_reduced_.end(), false);
}

void Optimizer::reduce(size_t index) {
  if (is_reduced_[index]) return;
  is_reduced_[index] = true;
  Bucket& bucket = params_.buckets()[index];
  if (bucket.group->size() == 1) return;
  rank_.place.layer = static_cast<int32_t>(bucket.desc.layer);
  join_streams(rank_, Stream::data, Stream::compute);
  run_comm(rank_, Op::grad_reduce, Pass::update, bucket.desc.group, [&](int64_t ready_ns) {
    if (rank_.trial.knobs.use_distributed_optimizer) {
      return bucket.group->reduce_scatter(bucket.grad.data,
                                          element(bucket.grad, bucket.shard_begin),
                                          bucket.shard_numel, bucket.grad.dtype, ready_ns);
    }
    return bucket.group->all_reduce(bucket.grad.data, bucket.grad.numel(), bucket.grad.dtype,
                                    ready_ns);
  });
  rank_.place.layer = -1;
}

void Optimizer::reduce_layer(int64_t layer) {
  for (size_t i = 0; i < params_.buckets().size(); ++i) {
    if (params_.buckets()[i].desc.layer == layer) reduce(i);
  }
}

// The first and the last stage hold the same matrix; both get the sum of what each has computed.
void Optimizer::reduce_tied_embedding() {
  if (!rank_.trial.model.ties_embeddings || rank_.layout.pp == 1 || !rank_.comms.embedding) return;
  for (Bucket& bucket : params_.buckets()) {
    const bool is_embedding = bucket.desc.name == "embedding" || bucket.desc.is_tied_copy;
    if (!is_embedding) continue;
    join_streams(rank_, Stream::data, Stream::compute);
    run_comm(rank_, Op::embedding_grad_reduce, Pass::update, spec::Group::embedding,
             [&](int64_t ready_ns) {
               return rank_.comms.embedding->all_reduce(bucket.grad.data, bucket.grad.numel(),
                                                        bucket.grad.dtype, ready_ns);
             });
  }
}

double Optimizer::finish_gradients() {
  reduce_tied_embedding();
  for (size_t i = 0; i < params_.buckets().size(); ++i) reduce(i);
  join_streams(rank_, Stream::compute, Stream::data);

  // Every rank adds up its own share of each bucket, also where all ranks hold the whole.
  kernels::SquaredNormArgs args;
  args.dtype = rank_.precision.stat;
  args.result = rank_.scalar(spec::Scalar::squared_norm);
  int64_t numel = 0;
  for (const Bucket& bucket : params_.buckets()) {
    if (bucket.desc.is_tied_copy) continue;
    const int64_t share = bucket.desc.numel / bucket.group->size();
    args.slices.push_back({element(bucket.grad, share * bucket.group->rank()), share});
    numel += share;
  }
  run_op(rank_, Op::grad_norm, Pass::update,
         {2 * numel, numel * base::size_of(rank_.precision.stat)},
         [&] { rank_.backend.squared_norm(args); });
  join_streams(rank_, Stream::data, Stream::compute);
  run_comm(rank_, Op::norm_reduce, Pass::update, spec::Group::world, [&](int64_t ready_ns) {
    return rank_.comms.world->all_reduce(args.result, 1, base::DType::f64, ready_ns);
  });
  // The host reads the norm to decide on clipping and to notice numbers that are none.
  double sum = 0;
  fetch(rank_, Stream::data, Pass::update, &sum, args.result, sizeof(sum));
  return std::sqrt(sum);
}

std::vector<kernels::AdamWArgs::Slice> Optimizer::slices() const {
  std::vector<kernels::AdamWArgs::Slice> slices;
  for (const spec::ParamDesc& param : params_.plan().params) {
    const Bucket& bucket = params_.buckets()[static_cast<size_t>(param.bucket)];
    const int64_t begin = std::max(param.offset, bucket.shard_begin);
    const int64_t end =
        std::min(param.offset + param.numel(), bucket.shard_begin + bucket.shard_numel);
    if (begin >= end) continue;
    const int64_t in_shard = begin - bucket.shard_begin;
    const bool use_decay = rank_.trial.training.decays_all || !(param.is_norm || param.is_bias);
    slices.push_back({element(bucket.weight, begin), element(bucket.master, in_shard),
                      element(bucket.m, in_shard), element(bucket.v, in_shard),
                      element(bucket.grad, begin), end - begin, use_decay});
  }
  return slices;
}

void Optimizer::update(int64_t step, double grad_norm) {
  const auto& training = rank_.trial.training;
  kernels::AdamWArgs args;
  args.slices = slices();
  args.dtype = rank_.precision.stat;
  args.weight_dtype = rank_.precision.element;
  args.moment_dtype = rank_.precision.moment;
  args.lr = learning_rate(training, step);
  args.beta1 = training.beta1;
  args.beta2 = training.beta2;
  args.eps = training.adam_eps;
  args.weight_decay = training.weight_decay;
  args.step = step + 1;
  if (training.clip_grad > 0 && grad_norm > training.clip_grad) {
    args.grad_scale = training.clip_grad / (grad_norm + 1e-6);
  }
  int64_t numel = 0;
  for (const auto& slice : args.slices) numel += slice.numel;
  run_op(rank_, Op::adamw, Pass::update, {12 * numel, 8 * numel * rank_.element_bytes},
         [&] { rank_.backend.adamw(args); });
  if (!rank_.trial.knobs.use_distributed_optimizer) return;
  for (Bucket& bucket : params_.buckets()) {
    if (bucket.group->size() == 1) continue;
    rank_.place.layer = static_cast<int32_t>(bucket.desc.layer);
    join_streams(rank_, Stream::data, Stream::compute);
    run_comm(rank_, Op::param_gather, Pass::update, bucket.desc.group, [&](int64_t ready_ns) {
      return bucket.group->all_gather(element(bucket.weight, bucket.shard_begin),
                                      bucket.weight.data, bucket.shard_numel * rank_.element_bytes,
                                      ready_ns);
    });
  }
  rank_.place.layer = -1;
  join_streams(rank_, Stream::compute, Stream::data);
}

}  // namespace moetune::engine
