// Runs a rank's program: every instruction of every item in order, operations through the binder of
// their op. It does nothing that is not in the program. From the trial it reads only what no
// instruction holds: numbers of the model and of the recipe, and how tokens lie in the tables.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/data/token_source.h"
#include "engine/exec/observers.h"
#include "engine/model/parameters.h"
#include "engine/plan/program.h"
#include "engine/plan/route.h"
#include "engine/run_op.h"

namespace moetune::engine {

/// The buffers of one layer, or of the end of a virtual stage, for one micro-batch.
struct BufferFrame {
  std::array<Tensor, static_cast<size_t>(plan::Buf::count)> tensors{};
  int num_live = 0;
  plan::Route route;
  std::vector<int32_t> gathered_counts;  ///< as fetched, until the route is made of them
  // Index lists of the route, until they are on the device.
  std::vector<int32_t> row_maps;
  std::vector<int32_t> offsets;

  [[nodiscard]] Tensor& operator[](plan::Buf id) { return tensors[static_cast<size_t>(id)]; }
};

/// What the host puts into a step and takes from it.
struct StepValues {
  const StepTokens* tokens = nullptr;
  int64_t num_updates = 0;  ///< of the weights so far
  double lr = 0;
  double grad_norm = 0;            ///< before clipping
  std::array<double, 3> losses{};  ///< sums: cross-entropy, load balance, z
  /// Whether the norm is NaN or infinite. Then the update runs, but changes nothing.
  [[nodiscard]] bool is_skipped() const;
  /// After gradients are zeroed.
  std::function<void()> on_zeroed;
  /// After gradients are reduced and before the update; the current stream has them.
  std::function<void()> on_gradients;
};

/// Throws base::Error for what only plans know of: they have more operations, parameters and passes
/// than the engine.
void check_runs(const plan::StepProgram& program);

class Executor {
 public:
  Executor(RankContext& rank, const plan::StepProgram& program, Parameters& params,
           const Observers& observers);

  /// Makes what lives from start to end. Parameters have no values yet. Throws base::Error for a
  /// program with an operation or a parameter that only plans know.
  void set_up();
  void run_step(StepValues& values);

  // For the binders.
  [[nodiscard]] RankContext& rank() { return rank_; }
  [[nodiscard]] Parameters& params() { return params_; }
  [[nodiscard]] const StepValues& values() const { return *values_; }
  [[nodiscard]] const plan::Segment& segment() const { return *segment_; }
  [[nodiscard]] const plan::Item& item() const { return item_; }

 private:
  void run_item(const plan::Item& item);
  void run(const plan::Instr& instr, size_t index);
  void run_launch(const plan::Instr& instr, const plan::Sharing& sharing);
  void communicate(const plan::Instr& instr, const plan::Sharing& sharing);
  void allocate(const plan::Instr& instr);
  void release(const plan::Instr& instr);
  void fetch(const plan::Instr& instr);
  void upload(const plan::Instr& instr);
  void work_on_host(const plan::Instr& instr);
  void mark(const plan::Instr& instr, size_t index);
  void look_at_logits(const Tensor& logits, int64_t first_token);
  void open_graph(const plan::Instr& instr, size_t index);

  BufferFrame& frame_of(plan::Space space);
  Tensor base_of(const plan::Ref& ref);
  Tensor resolve(const plan::Ref& ref, const plan::Instr& instr);
  std::vector<Tensor> resolve_all(const plan::Instr& instr);
  [[nodiscard]] plan::OpCost cost_of(const plan::Instr& instr);
  plan::LayerDims bound_dims();

  RankContext& rank_;
  const plan::StepProgram& program_;
  Parameters& params_;
  Observers observers_;
  std::map<std::pair<int32_t, int32_t>, BufferFrame> frames_;  ///< by frame number, micro-batch
  BufferFrame scratch_;
  std::array<Tensor, static_cast<size_t>(plan::Table::count)> tables_{};
  std::map<std::pair<int64_t, uint8_t>, Tensor> slots_;  ///< [count, message] by Ref's row and id
  StepValues* values_ = nullptr;
  // Of the item that runs.
  plan::Item item_;
  const plan::Segment* segment_ = nullptr;
  BufferFrame* own_ = nullptr;
  BufferFrame* next_ = nullptr;
  BufferFrame* edge_ = nullptr;
  std::vector<Event> events_;
};

}  // namespace moetune::engine
