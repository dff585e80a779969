// Allocation and initial values of a rank's parameters; see parameters.h.
#include "engine/model/parameters.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "engine/model/philox.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

using spec::ParamKind;

bool is_output_projection(ParamKind kind) {
  return kind == ParamKind::o_proj || kind == ParamKind::mlp_fc2 || kind == ParamKind::shared_fc2 ||
         kind == ParamKind::expert_fc2;
}

/// Threads of this machine for one of the ranks that share it.
int num_threads_for(const RankContext& rank) {
  const bool shares = rank.trial.communicator == "threads";
  const int num_ranks = shares ? rank.layout.world_size() : 1;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / num_ranks);
}

/// body(row) for all rows, on several threads where there is much to do: billions of random numbers
/// take minutes on one.
void for_rows(int64_t rows, int64_t numel, int num_threads,
              const std::function<void(int64_t row)>& body) {
  constexpr int64_t kElementsPerThread = int64_t{1} << 20;
  const int64_t wanted = std::min<int64_t>(num_threads, numel / kElementsPerThread + 1);
  const int64_t count = std::min(wanted, rows);
  const auto run = [&](int64_t part) {
    for (int64_t row = rows * part / count; row < rows * (part + 1) / count; ++row) body(row);
  };
  std::vector<std::thread> threads;
  for (int64_t part = 1; part < count; ++part) threads.emplace_back(run, part);
  if (count > 0) run(0);
  for (std::thread& thread : threads) thread.join();
}

// Copies host values to flat device memory of `dtype`.
void upload(kernels::Backend& backend, const std::vector<double>& values, base::DType dtype,
            void* device) {
  const auto bytes = static_cast<int64_t>(values.size()) * base::size_of(dtype);
  if (dtype == base::DType::f64) {
    backend.copy_to_device(device, values.data(), bytes);
  } else if (dtype == base::DType::f32) {
    const std::vector<float> narrow(values.begin(), values.end());
    backend.copy_to_device(device, narrow.data(), bytes);
  } else {
    std::vector<uint16_t> narrow(values.size());
    std::transform(values.begin(), values.end(), narrow.begin(),
                   [](double value) { return base::to_bf16(static_cast<float>(value)); });
    backend.copy_to_device(device, narrow.data(), bytes);
  }
}

}  // namespace

std::vector<double> values_of(kernels::Backend& backend, const Tensor& tensor) {
  MOETUNE_CHECK(tensor.is_contiguous(), "only contiguous tensors are read as a whole");
  const auto numel = static_cast<size_t>(tensor.numel());
  const auto fetch = [&]<typename T>(std::vector<T> host) {
    backend.copy_to_host(host.data(), tensor.data, tensor.bytes());
    return host;
  };
  if (tensor.dtype == base::DType::f64) return fetch(std::vector<double>(numel));
  if (tensor.dtype == base::DType::f32) {
    const std::vector<float> narrow = fetch(std::vector<float>(numel));
    return {narrow.begin(), narrow.end()};
  }
  MOETUNE_CHECK(tensor.dtype == base::DType::bf16, "indices are not read as numbers");
  const std::vector<uint16_t> narrow = fetch(std::vector<uint16_t>(numel));
  std::vector<double> values(numel);
  std::transform(narrow.begin(), narrow.end(), values.begin(),
                 [](uint16_t bits) { return static_cast<double>(base::from_bf16(bits)); });
  return values;
}

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
  const auto allocate = [&](const char* name, MemoryGroup group, int64_t numel, base::DType dtype) {
    const int64_t bytes = numel * base::size_of(dtype);
    void* data = rank.memory.allocate(name, group, bytes);
    rank.backend.fill_zero(data, bytes);
    return Tensor::matrix(data, dtype, 1, numel);
  };
  const spec::Precision& precision = rank.precision;
  for (const spec::BucketDesc& desc : plan_.buckets) {
    Bucket bucket;
    bucket.desc = desc;
    bucket.group = desc.group == spec::Group::edp ? rank.comms.edp.get() : rank.comms.dp_cp.get();
    bucket.shard_numel = is_sharded ? desc.numel / bucket.group->size() : desc.numel;
    bucket.shard_begin = is_sharded ? bucket.shard_numel * bucket.group->rank() : 0;
    buckets_.push_back(bucket);
  }
  for (Bucket& b : buckets_) {
    b.weight = allocate(b.desc.name.c_str(), MemoryGroup::weights, b.desc.numel, precision.element);
  }
  for (Bucket& b : buckets_) {
    b.grad = allocate(b.desc.name.c_str(), MemoryGroup::gradients, b.desc.numel, precision.stat);
  }
  for (Bucket& b : buckets_) {
    const char* name = b.desc.name.c_str();
    b.master = allocate(name, MemoryGroup::optimizer, b.shard_numel, precision.stat);
    b.m = allocate(name, MemoryGroup::optimizer, b.shard_numel, precision.moment);
    b.v = allocate(name, MemoryGroup::optimizer, b.shard_numel, precision.moment);
  }
  initialize(rank, initial_value);
}

void Parameters::initialize(const RankContext& rank, const InitialValue& initial_value) {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    std::vector<double> values(static_cast<size_t>(bucket.desc.numel));
    for (const spec::ParamDesc& param : plan_.params) {
      if (static_cast<size_t>(param.bucket) != i) continue;
      for_rows(param.rows, param.numel(), num_threads_for(rank), [&](int64_t row) {
        for (int64_t col = 0; col < param.cols; ++col) {
          values[static_cast<size_t>(param.offset + row * param.cols + col)] =
              initial_value(param, param.first_row + row, col);
        }
      });
    }
    upload(rank.backend, values, bucket.weight.dtype, bucket.weight.data);
    const auto shard = values.begin() + bucket.shard_begin;
    upload(rank.backend, {shard, shard + bucket.shard_numel}, bucket.master.dtype,
           bucket.master.data);
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
