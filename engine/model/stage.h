// The part of the model one rank holds: its pipeline stage's layers, the embedding on the first
// stage, the head and the loss on the last. Runs one micro-batch forward or backward.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/model/layer.h"

namespace moetune::engine {

/// Tokens of one step on one rank: [micro-batches * T], targets alike.
struct StepTokens {
  std::vector<int32_t> inputs;
  std::vector<int32_t> targets;
};

/// Sees the logits of every position as they are made, chunk by chunk; for verification.
class LogitsObserver {
 public:
  virtual ~LogitsObserver() = default;
  /// Logits [n, vocab] of the rank's tokens [first_token, first_token + n) of the micro-batch;
  /// called from the thread of `rank`.
  virtual void on_logits(int rank, int64_t micro_batch, int64_t first_token,
                         const std::vector<double>& logits) = 0;
};

class Stage {
 public:
  Stage(RankContext& rank, Parameters& params, RoutingObserver* routing, LogitsObserver* logits);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  /// Puts the step's tokens on the device and clears the sums.
  void begin_step(const StepTokens& tokens);
  void forward(int64_t micro_batch);
  void backward(int64_t micro_batch);

  /// Called after each layer's backward of a micro-batch (global layer index; -1 after the
  /// embedding's), so that gradient reduction can start early.
  void set_layer_done(std::function<void(int64_t layer, int64_t micro_batch)> done) {
    layer_done_ = std::move(done);
  }

 private:
  struct MicroBatch {
    std::vector<LayerState> layers;
    LayerState edge;  ///< the stage's output or the head's buffers, and the gradient of the
                      ///< residual stream
  };

  void make_tables();
  void allocate_token_buffers();
  LayerState& next_state(MicroBatch& m, size_t layer);
  void head(MicroBatch& m, int64_t micro_batch);
  Tensor token_view(const Tensor& all, int64_t micro_batch) const;

  RankContext& rank_;
  Parameters& params_;
  BufferPlan buffers_;
  SharedTables tables_;
  LogitsObserver* logits_observer_;
  std::vector<Layer> layers_;
  spec::StageLayers range_;
  spec::LayerDims dims_;
  int64_t num_micro_batches_;
  Tensor tokens_;  ///< i32 [micro-batches * T, 1]
  Tensor targets_;
  std::map<int64_t, MicroBatch> in_flight_;
  std::function<void(int64_t, int64_t)> layer_done_;
};

}  // namespace moetune::engine
