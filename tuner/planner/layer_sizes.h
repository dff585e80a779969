// Sizes of a layer on one rank, as the terms of memory and time need them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/buffers.h"
#include "tuner/planner/run.h"

namespace moetune::tuner::planner {

/// Sizes are multiplied as floating-point numbers.
inline double f64(int64_t value) { return static_cast<double>(value); }

/// Bytes of a 32-bit number: of statistics, indices and what else is wide in every recipe.
constexpr double kWide = 4;

/// Of one kind of layer and one configuration. Counts as floating-point numbers, since they are
/// only multiplied.
struct LayerSizes {
  const spec::ModelSpec* model = nullptr;
  spec::LayerKind kind;
  double seq = 0;         ///< tokens of a sequence
  double context = 0;     ///< keys that a query sees at most: the sequence, or its window
  double tokens = 0;      ///< T: of a micro-batch on a context-parallel rank
  double own_tokens = 0;  ///< Ts: kept between the matrices, T / tp with sequence parallelism
  double rows = 0;        ///< R: that this rank's experts receive, with the run's load
  double chunk_rows = 0;  ///< rows that are held at once: one chunk's under full recomputation
  double tp = 1;
  double etp = 1;
  double ep = 1;
  double hidden = 0;
  double element = 2;      ///< bytes of an activation
  double operand = 2;      ///< bytes of a product's saved operand: 1 in FP8
  bool is_narrow = false;  ///< products in 8 bits or less
};

/// Rows of the busiest rank's experts over their balanced share: its load, of which a capacity
/// drops what is beyond. Padded experts have as many as their capacity, whatever they receive.
double expert_rows_ratio(const PlanRun& run);

/// Of a layer of this kind whose attention sees `window` keys (0 or less: the whole sequence).
LayerSizes sizes_of(const PlanRun& run, spec::LayerKind kind, int64_t window);

/// Parameters of some kind on one rank, in elements.
struct Weights {
  double split = 0;       ///< of matrices that tensor parallelism cuts
  double replicated = 0;  ///< the same on all tensor-parallel ranks: norms, routers
  double experts = 0;
  double products = 0;  ///< of all of these, the ones in matrices of the layers' GEMMs
  /// Of LoRA, for each unit of its rank (adapters.h). Those of experts are shared by the experts of
  /// a rank, also Megatron-Bridge's default.
  double adapters = 0;
  double expert_adapters = 0;
  /// Matrices of the layers' GEMMs: rows, columns.
  struct Shape {
    int64_t rows = 0;
    int64_t cols = 0;
    auto operator<=>(const Shape&) const = default;
  };
  std::vector<Shape> shapes;
  bool operator==(const Weights&) const = default;

  [[nodiscard]] double total() const { return split + replicated + experts; }
  void add(const Weights& other, double times = 1);
};

/// Of one layer: what the blocks of engine/plan declare for it.
Weights layer_weights(const PlanRun& run, spec::LayerKind kind);
Weights embedding_weights(const PlanRun& run);
/// Final norm and head; only the norm where the embedding on the same stage is the head.
Weights head_weights(const PlanRun& run, bool has_embedding_beside);
/// All depths of multi-token prediction. Without `has_embedding_beside` a copy of the embedding's
/// table comes with them.
Weights mtp_weights(const PlanRun& run, bool has_embedding_beside);

using spec::is_product_narrow;
/// Of one element.
double bytes_of_type(spec::StateType type);
/// Whether activations and parameters have 32 bits: without mixed precision.
bool has_wide_elements(const spec::PlanKnobs& knobs);
/// Whether the layers' matrices are kept in 8 bits alone, without copies of 16. Beside PyTorch's
/// FSDP Megatron-LM turns fp8_param_gather off, with Transformer Engine 2 and later.
bool has_narrow_weights(const spec::PlanKnobs& knobs);

/// Where a layer's window does not matter, as for its parameters.
inline constexpr int64_t kAnyWindow = -1;
/// What engine/plan knows of a layer of that kind and window; of one that only multi-token
/// prediction has, too.
plan::LayerDims dims_of(const PlanRun& run, spec::LayerKind kind, int64_t window,
                        int64_t seq_length);

/// What engine/plan calls the sizes of the run.
spec::Knobs sizes_as_knobs(const spec::PlanKnobs& knobs);

}  // namespace moetune::tuner::planner
