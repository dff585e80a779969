// The parameters of one rank: weights, gradients and optimizer state in flat buckets, as the plan
// in engine/plan/params.h lays them out.
#pragma once

#include <functional>
#include <vector>

#include "engine/plan/program.h"
#include "engine/run_op.h"
#include "kernels/tensor.h"

namespace moetune::engine {

using kernels::Tensor;

/// One bucket's memory. With the distributed optimizer master, m and v hold this rank's shard only.
struct Bucket {
  plan::BucketDesc desc;
  Communicator* group = nullptr;
  Tensor weight;  ///< [1, numel]
  Tensor grad;
  Tensor master;  ///< [1, shard]
  Tensor m;
  Tensor v;
};

/// Gives the initial value of an element, named by its number within this rank's shard and within
/// the whole parameter. Called from several threads at a time.
using InitialValue = std::function<double(const plan::ParamDesc&, int64_t local, int64_t global)>;

/// Normal(0, initializer_range), output projections scaled by 1/sqrt(2 * layers) (Shoeybi et al.
/// 2019), norms one, biases zero; counter-based, so the same for every layout.
InitialValue random_initial_value(const spec::ModelSpec& model, uint64_t seed);

/// The elements of a contiguous tensor on the device, row-major, once the current stream has come
/// so far.
std::vector<double> values_of(kernels::Backend& backend, const Tensor& tensor);

/// The place of an element of a contiguous tensor.
inline char* element(const Tensor& tensor, int64_t index) {
  return static_cast<char*>(tensor.data) + index * base::size_of(tensor.dtype);
}

class Parameters {
 public:
  /// Without memory yet.
  Parameters(RankContext& rank, const plan::ParamPlan& plan);

  /// Gives a part of a bucket its memory, zeroed.
  void place(size_t bucket, plan::BucketPart part, void* data, int64_t bytes);
  /// When all parts have theirs.
  void initialize(const InitialValue& initial_value);

  /// Weight or gradient of a parameter; `layer` is the global index, -1 for those outside layers.
  /// Null when this rank has none of that kind. Biases are rows.
  [[nodiscard]] Tensor weight(plan::ParamKind kind, int64_t layer = -1) const {
    return part(plan::BucketPart::weight, kind, layer);
  }
  [[nodiscard]] Tensor grad(plan::ParamKind kind, int64_t layer = -1) const {
    return part(plan::BucketPart::grad, kind, layer);
  }

  [[nodiscard]] const Tensor& bucket_part(size_t bucket, plan::BucketPart part) const;

  [[nodiscard]] const plan::ParamPlan& plan() const { return plan_; }
  [[nodiscard]] std::vector<Bucket>& buckets() { return buckets_; }
  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }

 private:
  [[nodiscard]] Tensor part(plan::BucketPart which, plan::ParamKind kind, int64_t layer) const;
  [[nodiscard]] const plan::ParamDesc* find(plan::ParamKind kind, int64_t layer) const;

  RankContext& rank_;
  plan::ParamPlan plan_;
  std::vector<Bucket> buckets_;
};

}  // namespace moetune::engine
