// Which layers the virtual stages of a pipeline have: what runs of a model with the same stages
// share, whatever their other sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tuner/planner/run.h"

namespace moetune::tuner::planner {

struct PipelineOutline {
  /// Layers that hold the same.
  struct Alike {
    spec::LayerKind kind;
    int64_t window = 0;
  };
  /// A virtual stage: how many layers of each kind, and what it has beside.
  struct Part {
    std::vector<double> layers;
    std::vector<double> behind;  ///< of each kind: layers behind its last one
    std::vector<int> order;      ///< the kind of each layer
    std::vector<size_t> kinds;   ///< each once, as they come
    int last = 0;                ///< kind of its last layer
    bool has_head = false;
    bool has_mtp = false;
    bool has_embedding = false;

    bool operator==(const Part&) const = default;
  };
  struct Stage {
    std::vector<Part> parts;
    bool has_embedding = false;
    bool has_head = false;
    bool has_experts = false;
    size_t first_same = 0;  ///< of the stages that have the same, itself included
    /// Earlier stages that hold as much of a micro-batch, if they have as many parameters.
    std::vector<size_t> like;
  };

  std::vector<Alike> alike;
  std::vector<Stage> stages;  ///< of each pipeline rank

  /// The place of those layers in `alike`, or its size.
  [[nodiscard]] size_t find(spec::LayerKind kind, int64_t window) const;
};

/// Of the run's stages, and of which layers it recomputes the method and the number.
PipelineOutline outline_of(const PlanRun& run);

}  // namespace moetune::tuner::planner
