// Training on one rank: its program, run step by step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/comm/world.h"
#include "engine/data/token_source.h"
#include "engine/exec/executor.h"
#include "engine/model/parameters.h"
#include "engine/plan/program.h"
#include "engine/run_op.h"

namespace moetune::engine {

/// What a step came to, the same on every rank.
struct StepResult {
  double loss = 0;  ///< mean cross-entropy over the global batch, nats per token
  double aux_loss = 0;
  double z_loss = 0;
  double grad_norm = 0;  ///< before clipping
  double lr = 0;
  int64_t step_ns = 0;
  /// Gradients held NaN or infinity on some rank: no rank changed any weight, moment or count.
  bool is_skipped = false;
};

/// Looks into a trainer; every function may be empty. Called from rank threads at the same time.
struct TrainerHooks {
  InitialValue initial_value;  ///< empty: random by the recipe's seed
  Observers observers;
  /// After gradients are cleared at the start of a step; for injected faults.
  std::function<void(int64_t step, int rank, const Parameters& params, kernels::Backend& backend)>
      on_zeroed;
  /// After gradients are reduced and before the update; the backend's current stream has them.
  std::function<void(int64_t step, const Parameters& params, kernels::Backend& backend)>
      on_gradients;
};

class RankTrainer {
 public:
  RankTrainer(const spec::TrialSpec& trial, int rank, World& world, kernels::Backend& backend,
              const TrainerHooks& hooks);
  ~RankTrainer();

  StepResult step(int64_t step, const TokenSource& tokens, profiler::TraceLevel level);

  /// Trace of the last step; empty records when it was not traced.
  [[nodiscard]] profiler::StepTrace take_trace() { return std::move(trace_); }
  /// Where the durations of operations and of the host's work go, in the program's order; null:
  /// nowhere.
  void record_durations(std::vector<int64_t>* durations) {
    rank_.timeline.record_durations(durations);
  }
  /// Whom to tell what is enqueued; null: nothing is recorded on the device.
  void set_recorder(profiler::DeviceRecorder* recorder) { rank_.recorder = recorder; }
  /// Whether the recorder records the next steps.
  void set_traced(bool is_traced) { rank_.is_traced = is_traced; }
  [[nodiscard]] kernels::Backend& backend() { return rank_.backend; }
  [[nodiscard]] const Graphs& graphs() const { return rank_.graphs; }
  [[nodiscard]] const profiler::MemoryLedger& ledger() const { return rank_.memory.ledger(); }
  /// Device memory that the rank's arenas hold.
  [[nodiscard]] int64_t held_bytes() const { return rank_.memory.held_bytes(); }
  [[nodiscard]] int64_t workspace_bytes() const { return rank_.memory.workspace_bytes(); }
  [[nodiscard]] Parameters& params() { return *params_; }
  /// Steps so far that changed the weights.
  [[nodiscard]] int64_t num_updates() const { return num_updates_; }
  /// Of weights and moments that come from elsewhere.
  void set_num_updates(int64_t num_updates) { num_updates_ = num_updates; }
  [[nodiscard]] int64_t num_launches() const { return rank_.timeline.num_launches(); }

 private:
  World& world_;
  RankContext rank_;
  TrainerHooks hooks_;
  plan::StepProgram program_;
  std::unique_ptr<Parameters> params_;
  std::unique_ptr<Executor> executor_;
  profiler::StepTrace trace_;
  int64_t num_updates_ = 0;
};

}  // namespace moetune::engine
