// Allocation and initial values of a rank's parameters; see parameters.h.
#include "engine/model/parameters.h"

#include <cmath>

#include "engine/model/philox.h"

namespace moetune::engine {
namespace {

using spec::ParamKind;

bool is_output_projection(ParamKind kind) {
  return kind == ParamKind::o_proj || kind == ParamKind::mlp_fc2 || kind == ParamKind::shared_fc2 ||
         kind == ParamKind::expert_fc2;
}

void write_value(Tensor tensor, int64_t index, double value) {
  if (tensor.dtype == base::DType::f64) {
    static_cast<double*>(tensor.data)[index] = value;
  } else {
    static_cast<float*>(tensor.data)[index] = static_cast<float>(value);
  }
}

}  // namespace

InitialValue random_initial_value(const spec::ModelSpec& model, uint64_t seed) {
  const double scale = model.initializer_range;
  const double output_scale = scale / std::sqrt(2.0 * static_cast<double>(model.num_layers));
  // A tied head is the embedding under another name.
  const bool is_tied = model.ties_embeddings;
  return [=](const spec::ParamDesc& param, int64_t row, int64_t col) -> double {
    if (param.is_norm) return 1.0;
    if (param.is_bias) return 0.0;
    const bool is_head_of_tied = is_tied && param.kind == ParamKind::head;
    const uint64_t key = philox_key(seed, is_head_of_tied ? "embedding" : param.name);
    const double normal = philox_normal(key, static_cast<uint64_t>(row * param.cols + col));
    return normal * (is_output_projection(param.kind) ? output_scale : scale);
  };
}

Parameters::Parameters(RankContext& rank, const InitialValue& initial_value)
    : plan_(spec::make_param_plan(rank.trial.model, rank.trial.knobs, rank.rank)) {
  const bool is_sharded = rank.trial.knobs.use_distributed_optimizer;
  const auto allocate = [&](const char* name, MemoryGroup group, int64_t numel) {
    void* data = rank.memory.allocate(name, group, numel * rank.element_bytes);
    rank.backend.fill_zero(data, numel * rank.element_bytes);
    return Tensor::matrix(data, rank.dtype, 1, numel);
  };
  for (const spec::BucketDesc& desc : plan_.buckets) {
    Bucket bucket;
    bucket.desc = desc;
    bucket.group = desc.group == spec::Group::edp ? rank.comms.edp.get() : rank.comms.dp_cp.get();
    bucket.shard_numel = is_sharded ? desc.numel / bucket.group->size() : desc.numel;
    bucket.shard_begin = is_sharded ? bucket.shard_numel * bucket.group->rank() : 0;
    buckets_.push_back(bucket);
  }
  for (Bucket& b : buckets_) {
    b.weight = allocate(b.desc.name.c_str(), MemoryGroup::weights, b.desc.numel);
  }
  for (Bucket& b : buckets_) {
    b.grad = allocate(b.desc.name.c_str(), MemoryGroup::gradients, b.desc.numel);
  }
  for (Bucket& b : buckets_) {
    b.master = allocate(b.desc.name.c_str(), MemoryGroup::optimizer, b.shard_numel);
    b.m = allocate(b.desc.name.c_str(), MemoryGroup::optimizer, b.shard_numel);
    b.v = allocate(b.desc.name.c_str(), MemoryGroup::optimizer, b.shard_numel);
  }
  initialize(rank, initial_value);
}

void Parameters::initialize(const RankContext& rank, const InitialValue& initial_value) {
  for (const spec::ParamDesc& param : plan_.params) {
    const Bucket& bucket = buckets_[static_cast<size_t>(param.bucket)];
    for (int64_t row = 0; row < param.rows; ++row) {
      for (int64_t col = 0; col < param.cols; ++col) {
        write_value(bucket.weight, param.offset + row * param.cols + col,
                    initial_value(param, param.first_row + row, col));
      }
    }
  }
  for (Bucket& bucket : buckets_) {
    rank.backend.copy_to_device(
        bucket.master.data,
        static_cast<const char*>(bucket.weight.data) + bucket.shard_begin * rank.element_bytes,
        bucket.shard_numel * rank.element_bytes);
  }
}

const spec::ParamDesc* Parameters::find(ParamKind kind, int64_t layer) const {
  for (const spec::ParamDesc& param : plan_.params) {
    if (param.kind == kind && param.layer == layer) return &param;
  }
  return nullptr;
}

Tensor Parameters::weight(ParamKind kind, int64_t layer) const {
  const spec::ParamDesc* param = find(kind, layer);
  if (param == nullptr) return {};
  const Bucket& bucket = buckets_[static_cast<size_t>(param->bucket)];
  return bucket.weight.columns(param->offset, param->numel()).reshape(param->rows, param->cols);
}

Tensor Parameters::grad(ParamKind kind, int64_t layer) const {
  const spec::ParamDesc* param = find(kind, layer);
  if (param == nullptr) return {};
  const Bucket& bucket = buckets_[static_cast<size_t>(param->bucket)];
  return bucket.grad.columns(param->offset, param->numel()).reshape(param->rows, param->cols);
}

}  // namespace moetune::engine
