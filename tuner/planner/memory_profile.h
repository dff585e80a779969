// What Megatron-Core with Transformer Engine holds in device memory: the profile of memory that
// plans are priced by for runs of other engines. (What our own engine holds is its program's
// allocations: tuner/memory_model.h.) Terms and their sources: docs/planner.md. Where torchtitan
// differs: titan_memory.h. Figures of what is no saved tensor: memory_rows.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tuner/planner/layer_sizes.h"
#include "tuner/planner/pipeline_outline.h"
#include "tuner/planner/work_cache.h"

namespace moetune::tuner::planner {

/// Where a term comes from.
enum class Evidence : uint8_t {
  source,    ///< read in the source of the engine
  measured,  ///< leaving it out makes predictions of published runs worse
  assumed,   ///< no published run tells
};

/// One tensor, or some alike, that a layer keeps from its forward to its backward pass.
struct SavedTerm {
  std::string_view name;
  Evidence evidence = Evidence::source;
  bool (*is_there)(const LayerSizes&, const spec::PlanKnobs&) = nullptr;  ///< null: in every layer
  double (*bytes)(const LayerSizes&, const spec::PlanKnobs&) = nullptr;
  spec::PlanRecomputeSet dropped_by;  ///< any of these modules; full drops all
  /// What stays where it is dropped; null: nothing.
  double (*left)(const LayerSizes&, const spec::PlanKnobs&) = nullptr;
  spec::OffloadSet offloaded_by;
};

/// In the order of a layer: first what its mixer keeps.
std::span<const SavedTerm> saved_terms();
/// The first of those behind the mixer.
inline constexpr std::string_view kFirstBehindMixer = "input of the MLP's norm";
inline constexpr std::string_view kScores = "attention's scores";

/// Bytes of a device at some moment, or of some part of it.
struct MemoryParts {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;
  double narrow_weights = 0;   ///< copies of the weights in 8 bits or less
  double dummy_gradients = 0;  ///< placeholders that autograd is given instead of gradients
  double workspaces = 0;
  double gathered = 0;          ///< units that FSDP has gathered
  double exchange_buffers = 0;  ///< the dispatcher's own, beside PyTorch's allocator
  double activations = 0;       ///< kept for backward, all micro-batches in flight
  double transient = 0;         ///< what comes on top at the worst moment

  [[nodiscard]] double total() const {
    return weights + gradients + optimizer + narrow_weights + dummy_gradients + workspaces +
           gathered + exchange_buffers + activations + transient;
  }
};

/// When a peak is.
inline constexpr std::string_view kMomentOfLoss = "loss";
inline constexpr std::string_view kMomentOfHead = "backward of the head";
inline constexpr std::string_view kMomentOfForward = "forward of a layer";
inline constexpr std::string_view kMomentOfLayer = "backward of a layer";
inline constexpr std::string_view kMomentOfLastLayer = "end of the backward pass";
inline constexpr std::string_view kMomentOfUpdate = "update";

/// Of the ranks of one pipeline stage.
struct StageMemory {
  int stage = 0;
  MemoryParts peak;
  double at_start = 0;  ///< before the first step: weights and gradients
  /// Allocated at most in the first step, in which the optimizer's state appears.
  double first_step = 0;
  std::string_view moment;  ///< when the peak is: one of those above
  /// Of the peak what lies in the pool of graphs, which PyTorch does not call allocated: tensors
  /// of captured attention, where no step ran without graphs before.
  double in_graphs = 0;

  /// What PyTorch calls allocated: without the pool of graphs and the dispatcher's own buffers.
  [[nodiscard]] double allocated() const {
    return peak.total() - in_graphs - peak.exchange_buffers;
  }
};

struct MemoryPrediction {
  std::vector<StageMemory> stages;
  int worst_stage = 0;

  [[nodiscard]] const StageMemory& worst() const {
    return stages[static_cast<size_t>(worst_stage)];
  }
  /// Largest peak of all stages, graph pools and buffers of the dispatcher included: what has to
  /// fit. Bytes.
  [[nodiscard]] double peak_bytes() const { return worst().peak.total(); }
  /// What PyTorch calls allocated of that peak: what is told as a run's peak.
  [[nodiscard]] double allocated_bytes() const { return worst().allocated(); }
};

/// The pipeline of a run whose sizes are known: what its ranks hold under any choice that changes
/// no size (recomputation, types, sharding of state, loss, overlap).
class PreparedMemory {
 public:
  /// Of what `run` refers to, model and machine have to outlive it.
  explicit PreparedMemory(const PlanRun& run);
  /// As above, with what is outlined of its stages, and with parameters from `works`: both have to
  /// outlive this.
  PreparedMemory(const PlanRun& run, const PipelineOutline& outline, WorkCache& works);

  /// `knobs` with the sizes of the run.
  [[nodiscard]] MemoryPrediction predict(const spec::PlanKnobs& knobs, double load) const;
  /// Its worst rank's peak alone, in bytes.
  [[nodiscard]] double peak_bytes(const spec::PlanKnobs& knobs, double load) const;

  struct LayerMemory {
    double saved = 0;       ///< from forward to backward
    double of_mixer = 0;    ///< part of that
    double offloaded = 0;   ///< that is in the host's memory meanwhile
    double scores = 0;      ///< of plain attention, one copy
    double forward = 0;     ///< on top, in the layer's forward
    double overlapped = 0;  ///< kept after it where exchanges overlap
    double transient = 0;   ///< on top, in the layer's backward
    double recomputed = 0;  ///< part of that: its tensors, there again under full recomputation
  };

 private:
  friend class ChoicePeaks;

  /// Of stages that have the same.
  struct Parameters {
    Weights weights;
    double largest_layer = 0;  ///< parameters, of embedding and head, too
    /// Parameters that FSDP gathers, unless experts have no replicas: of the largest layer, of
    /// embedding and head, of all.
    double largest_unit = 0;
    double root_unit = 0;
    double all_units = 0;
    double shapes_elements = 0;  ///< of all different matrices
  };
  /// Of the layers of each kind under a run's choices; `kept`, where full recomputation may leave
  /// layers out: of those.
  struct Layers {
    std::vector<LayerMemory> all;
    std::vector<LayerMemory> kept;
  };
  /// What a stage's layers hold at the end of the forward passes and in the first backward.
  struct OfLayers {
    double activations = 0;
    double at_loss = 0;     ///< the same when the loss is computed
    double of_mixers = 0;   ///< part of the first
    double last_saved = 0;  ///< of one micro-batch of the last layer
    double last_forward = 0;
    double last_transient = 0;
    double scores = 0;       ///< of plain attention in a layer, one copy
    double on_its_way = 0;   ///< of what is offloaded, that stays here
    double loaded_back = 0;  ///< of that, for the next backward
    double num_layers = 0;   ///< whose order counts
    bool is_last_recomputed = false;
  };

  /// Weights of units of FSDP and their gradients. Bytes.
  struct GatheredUnits {
    double at_loss = 0;
    double in_forward = 0;
    double in_backward = 0;
    double in_update = 0;
  };

  void prepare(WorkCache& works);
  [[nodiscard]] static GatheredUnits gathered_units(const PlanRun& run, const Parameters& own,
                                                    const OfLayers& layers, bool has_head);
  [[nodiscard]] Parameters parameters_of(const PipelineOutline::Stage& stage,
                                         const std::vector<const Weights*>& of_kinds,
                                         WorkCache& works) const;
  [[nodiscard]] const Parameters& parameters(size_t number) const {
    return parameters_[outline_->stages[number].first_same];
  }
  /// Micro-batches in flight of each virtual stage of a rank.
  [[nodiscard]] std::span<const int64_t> in_flight(size_t number, bool has_overlap) const;
  [[nodiscard]] OfLayers of_layers(size_t number, const PlanRun& run, const Layers& layers) const;
  [[nodiscard]] StageMemory stage_memory(size_t number, const PlanRun& run,
                                         const OfLayers& layers) const;
  [[nodiscard]] std::vector<LayerMemory> layer_memories(const PlanRun& run) const;
  [[nodiscard]] Layers layers_of(const PlanRun& run) const;
  /// What multi-token prediction keeps of a micro-batch.
  [[nodiscard]] double mtp_bytes(const PlanRun& run, const std::vector<LayerMemory>& layers) const;
  [[nodiscard]] PlanRun with(const spec::PlanKnobs& knobs, double load) const;

  PlanRun run_;                                         ///< without its stages: see below
  std::shared_ptr<const PipelineOutline> own_outline_;  ///< without one from the caller
  const PipelineOutline* outline_ = nullptr;
  std::vector<Parameters> parameters_;  ///< by stage, of the first of those that have the same
  /// By stage and virtual stage, and behind them the same with one more, as overlap of exchanges
  /// needs.
  std::vector<int64_t> in_flight_;
  std::vector<size_t> different_;  ///< the stages to look at: others are like one or hold less
};

/// Peak by stage, graph pools and buffers of the dispatcher included. Fragmentation, communicators
/// and the CUDA context come on top: reserved_bytes, device_bytes.
MemoryPrediction predict_memory(const PlanRun& run);

/// What ranks with experts hold for the run's dispatcher and for no other: tokens that it gathers,
/// and its own buffers. `run` with computed_knobs.
double dispatcher_bytes(const PlanRun& run);

/// What is used at least of a device at a peak of so many bytes (peak_bytes()): what fits.
double device_bytes(double peak_bytes);
/// What the caching allocator holds for so many allocated bytes and a pool of graphs, on a device
/// that has `capacity_bytes` beside buffers of the dispatcher (0: without limit). With room it
/// keeps blocks that it may use again; without it gives them back, so that at a peak that fits no
/// more is reserved than there is. Both by the published runs that state more than one of the three
/// (docs/planner.md).
double reserved_bytes(double allocated_bytes, double pool_bytes, double capacity_bytes);
/// What a device of `capacity_bytes` has beside the dispatcher's own buffers (0: without limit).
double capacity_beside_buffers(const StageMemory& memory, double capacity_bytes);

/// Micro-batches (or, of virtual stages, each one's) whose forward a pipeline rank holds at most.
/// One entry for each of its virtual stages.
std::vector<int64_t> micro_batches_in_flight(const PlanRun& run, int stage);
/// The same into `in_flight`, with or without overlap of the experts' exchanges.
void count_in_flight(const PlanRun& run, int stage, bool has_overlap, std::span<int64_t> in_flight);

}  // namespace moetune::tuner::planner
