// Fills the buckets: initial values are drawn by each weight's name and place, so that every layout
// begins with the same model.
#include "engine/model/parameters.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>

#include "engine/model/philox.h"
#include "kernels/base/error.h"

namespace moetune::engine {
namespace {

using plan::ParamKind;

bool is_output_projection(ParamKind kind) {
  return kind == ParamKind::o_proj || kind == ParamKind::mlp_fc2 || kind == ParamKind::shared_fc2 ||
         kind == ParamKind::expert_fc2;
}

/// By plan::BucketPart.
constexpr Tensor Bucket::*kParts[] = {&Bucket::weight, &Bucket::grad, &Bucket::master, &Bucket::m,
                                      &Bucket::v};

struct NamedKey {
  uint64_t seed = 0;
  std::string name;
  uint64_t key = 0;
};

/// Threads of this machine for one of the ranks that share it.
int num_threads_for(const RankContext& rank) {
  const bool shares = spec::ranks_of(rank.trial) == spec::RanksAre::threads;
  const int num_ranks = shares ? rank.layout.world_size() : 1;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / num_ranks);
}

/// body(first, last) for parts of [0, count), on several threads where there is much to do:
/// billions of random numbers take minutes on one.
void for_parts(int64_t count, int num_threads,
               const std::function<void(int64_t first, int64_t last)>& body) {
  constexpr int64_t kElementsPerThread = int64_t{1} << 18;
  const int64_t parts = std::min<int64_t>(num_threads, count / kElementsPerThread + 1);
  std::vector<std::thread> threads;
  for (int64_t part = 1; part < parts; ++part) {
    threads.emplace_back(body, count * part / parts, count * (part + 1) / parts);
  }
  body(0, count / parts);
  for (std::thread& thread : threads) thread.join();
}

// Copies host values to flat device memory of `dtype`, from its element `begin` on.
void upload(kernels::Backend& backend, std::span<const double> values, const Tensor& to,
            int64_t begin, int num_threads) {
  const auto send = [&]<typename T>(auto&& narrow, std::type_identity<T>) {
    // Not a vector: zeroing what is overwritten at once takes as long as the copy.
    const std::unique_ptr<T[]> host(new T[values.size()]);
    for_parts(static_cast<int64_t>(values.size()), num_threads, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) host[i] = narrow(values[static_cast<size_t>(i)]);
    });
    const auto size = static_cast<int64_t>(sizeof(T));
    backend.copy_to_device(static_cast<char*>(to.data) + begin * size, host.get(),
                           static_cast<int64_t>(values.size()) * size);
  };
  if (to.dtype == base::DType::f64) {
    send([](double value) { return value; }, std::type_identity<double>{});
  } else if (to.dtype == base::DType::f32) {
    send([](double value) { return static_cast<float>(value); }, std::type_identity<float>{});
  } else {
    send([](double value) { return base::to_bf16(static_cast<float>(value)); },
         std::type_identity<uint16_t>{});
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
  return [=](const plan::ParamDesc& param, int64_t /*local*/, int64_t global) -> double {
    if (param.is_norm) return 1.0;
    if (param.is_bias) return 0.0;
    const bool is_head_of_tied = is_tied && param.kind == ParamKind::head;
    // Hashing the name for each of billions of elements would take longer than drawing them.
    thread_local NamedKey named;
    const std::string_view name = is_head_of_tied ? std::string_view("embedding") : param.name;
    if (named.seed != seed || named.name != name)
      named = {seed, std::string(name), philox_key(seed, name)};
    const uint64_t key = named.key;
    const double normal = philox_normal(key, static_cast<uint64_t>(global));
    return normal * (is_output_projection(param.kind) ? output_scale : scale);
  };
}

Parameters::Parameters(RankContext& rank, const plan::ParamPlan& plan) : rank_(rank), plan_(plan) {
  for (const plan::BucketDesc& desc : plan_.buckets) {
    Bucket bucket;
    bucket.desc = desc;
    bucket.group = &rank.comms.of(desc.group);
    buckets_.push_back(bucket);
  }
}

const Tensor& Parameters::bucket_part(size_t bucket, plan::BucketPart part) const {
  return buckets_[bucket].*kParts[static_cast<size_t>(part)];
}

void Parameters::place(size_t bucket, plan::BucketPart part, void* data, int64_t bytes) {
  const base::DType dtype = plan::type_of(part, rank_.precision);
  buckets_[bucket].*kParts[static_cast<size_t>(part)] =
      Tensor::matrix(data, dtype, 1, bytes / base::size_of(dtype));
  rank_.backend.fill_zero(data, bytes);
}

// Piece by piece: a bucket of billions of elements as doubles would not fit into host memory.
void Parameters::initialize(const InitialValue& initial_value) {
  constexpr int64_t kPieceElements = int64_t{1} << 23;
  const int num_threads = num_threads_for(rank_);
  std::vector<double> values;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    for (int64_t begin = 0; begin < bucket.desc.numel; begin += kPieceElements) {
      const int64_t end = std::min(begin + kPieceElements, bucket.desc.numel);
      values.assign(static_cast<size_t>(end - begin), 0.0);  // between parameters
      for (const plan::ParamDesc& param : plan_.params) {
        if (static_cast<size_t>(param.bucket) != i) continue;
        const int64_t first = std::max(begin, param.offset);
        const int64_t last = std::min(end, param.offset + param.numel());
        if (first >= last) continue;
        for_parts(last - first, num_threads, [&](int64_t from, int64_t to) {
          param.for_stretches(first + from - param.offset, first + to - param.offset,
                              [&](int64_t local, int64_t global, int64_t count) {
                                double* to_values = values.data() + param.offset + local - begin;
                                for (int64_t n = 0; n < count; ++n) {
                                  to_values[n] = initial_value(param, local + n, global + n);
                                }
                              });
        });
      }
      upload(rank_.backend, values, bucket.weight, begin, num_threads);
      const int64_t first = std::max(begin, bucket.desc.own_begin);
      const int64_t last = std::min(end, bucket.desc.own_begin + bucket.desc.own_numel);
      if (first >= last || !bucket.desc.has_gradient) continue;
      upload(rank_.backend,
             std::span(values).subspan(static_cast<size_t>(first - begin),
                                       static_cast<size_t>(last - first)),
             bucket.master, first - bucket.desc.own_begin, num_threads);
    }
  }
}

const plan::ParamDesc* Parameters::find(ParamKind kind, int64_t layer) const {
  for (const plan::ParamDesc& param : plan_.params) {
    // A kind is one of layers or one outside of them, which layers of multi-token prediction use.
    if (param.kind == kind && (param.layer == layer || param.layer < 0)) return &param;
  }
  return nullptr;
}

Tensor Parameters::part(plan::BucketPart which, ParamKind kind, int64_t layer) const {
  const plan::ParamDesc* param = find(kind, layer);
  if (param == nullptr) return {};
  const Tensor whole = bucket_part(static_cast<size_t>(param->bucket), which);
  const Tensor values = whole.columns(param->offset, param->numel());
  return param->is_bias ? values : values.reshape(param->rows, param->cols);
}

}  // namespace moetune::engine
