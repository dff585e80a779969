// Weights under the names of the public checkpoints of llama, mixtral and qwen3_moe: where each
// element of our parameters lies in them, loading any layout's shards, and giving gathered
// parameters their public names back.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/parameters.h"
#include "engine/plan/params.h"
#include "engine/spec/model_spec.h"

namespace moetune::engine {

/// How a checkpoint spells its experts. Read off its keys, never from the family: the same model
/// exists in several.
struct ExpertNaming {
  std::string block =
      "mlp";  ///< layer's MoE block: "mlp", or "block_sparse_moe" of older Mixtral checkpoints
  bool is_fused = false;     ///< experts.gate_up_proj [E, 2f, h] and experts.down_proj [E, h, f]
  bool is_numbered = false;  ///< per expert w1 = gate, w3 = up, w2 = down
};

/// Consecutive elements that a parameter (whole, not sharded, row-major) and a checkpoint tensor
/// share.
struct HfSegment {
  std::string tensor;
  int64_t tensor_begin = 0;
  int64_t param_begin = 0;
  int64_t numel = 0;
};

/// Which tensors a model's checkpoint has and how they make up our parameters.
class HfNames {
 public:
  HfNames(const spec::ModelSpec& model, ExpertNaming experts);
  /// Spelling as found in a checkpoint; the family's own where it says nothing.
  static HfNames of_checkpoint(const spec::ModelSpec& model, const Checkpoint& checkpoint);

  /// Segments of a whole parameter, ascending and without holes. `layer` is -1 outside layers.
  [[nodiscard]] std::vector<HfSegment> segments(plan::ParamKind kind, int64_t layer) const;
  /// Shapes of all tensors by name.
  [[nodiscard]] const std::map<std::string, std::vector<int64_t>>& shapes() const {
    return shapes_;
  }
  /// Throws base::UsageError unless the checkpoint has exactly these tensors with these shapes and
  /// floating-point numbers. Passed over: rotary tables of old exporters, and the head of a model
  /// that ties it to the embedding.
  void check(const Checkpoint& checkpoint) const;

 private:
  /// Appends whole tensors to the segments of a parameter.
  class Builder;
  void add_layer(int64_t layer);
  void add_experts(int64_t layer, const std::string& block);

  spec::ModelSpec model_;
  ExpertNaming experts_;
  std::map<std::pair<plan::ParamKind, int64_t>, std::vector<HfSegment>> segments_;
  std::map<std::string, std::vector<int64_t>> shapes_;
};

/// Initial values out of a checkpoint, for any layout. Reads a parameter's shard when its first
/// element is asked for and keeps the last one per thread, so asking for a shard's elements in a
/// row is fast; rank threads may ask at once. Throws base::UsageError for a checkpoint that does
/// not fit the model.
InitialValue checkpoint_initial_value(const spec::ModelSpec& model,
                                      std::shared_ptr<const Checkpoint> checkpoint);

/// Collects pieces of parameters from ranks into whole tensors under public names. Not thread-safe.
class HfGather {
 public:
  explicit HfGather(HfNames names);

  /// Elements [first, first + values.size()) of the rank's shard of the parameter.
  void add(const plan::ParamDesc& param, int64_t first, std::span<const double> values);
  /// Values by tensor name. Throws base::Error unless every element has come exactly once.
  [[nodiscard]] const std::map<std::string, std::vector<double>>& tensors() const;

 private:
  HfNames names_;
  std::map<std::string, std::vector<double>> tensors_;
  int64_t num_expected_ = 0;
  int64_t num_added_ = 0;
};

}  // namespace moetune::engine
