// The parameters of one rank: weights, gradients and optimizer state in flat buckets, as the plan
// in engine/spec/params.h lays them out.
#pragma once

#include <functional>
#include <vector>

#include "engine/run_op.h"
#include "engine/spec/params.h"
#include "kernels/tensor.h"

namespace moetune::engine {

using kernels::Tensor;

/// One bucket's memory. With the distributed optimizer master, m and v hold this rank's shard only.
struct Bucket {
  spec::BucketDesc desc;
  Communicator* group = nullptr;
  Tensor weight;  ///< [1, numel]
  Tensor grad;
  Tensor master;  ///< [1, shard]
  Tensor m;
  Tensor v;
  int64_t shard_begin = 0;
  int64_t shard_numel = 0;
};

/// Gives the initial value of element (row, col) of the whole parameter, before sharding. Called
/// from several threads at a time.
using InitialValue = std::function<double(const spec::ParamDesc&, int64_t row, int64_t col)>;

/// Normal(0, initializer_range), output projections scaled by 1/sqrt(2 * layers) (Shoeybi et al.
/// 2019), norms one, biases zero; counter-based, so the same for every layout.
InitialValue random_initial_value(const spec::ModelSpec& model, uint64_t seed);

/// The elements of a contiguous tensor on the device, row-major, once the current stream has come
/// so far.
std::vector<double> values_of(kernels::Backend& backend, const Tensor& tensor);

class Parameters {
 public:
  Parameters(RankContext& rank, const InitialValue& initial_value);

  /// Weight or gradient of a parameter; `layer` is the global index, -1 for those outside layers.
  /// Null when this rank has none of that kind.
  [[nodiscard]] Tensor weight(spec::ParamKind kind, int64_t layer = -1) const;
  [[nodiscard]] Tensor grad(spec::ParamKind kind, int64_t layer = -1) const;

  [[nodiscard]] const spec::ParamPlan& plan() const { return plan_; }
  [[nodiscard]] std::vector<Bucket>& buckets() { return buckets_; }
  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }

 private:
  [[nodiscard]] const spec::ParamDesc* find(spec::ParamKind kind, int64_t layer) const;
  void initialize(const RankContext& rank, const InitialValue& initial_value);

  spec::ParamPlan plan_;
  std::vector<Bucket> buckets_;
};

}  // namespace moetune::engine
