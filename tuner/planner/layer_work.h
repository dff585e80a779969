// The work of one layer on one rank: what the blocks of engine/plan say that its forward and
// backward passes run, as sums that a closed form can price.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/plan/ops.h"
#include "tuner/planner/run.h"

namespace moetune::tuner::planner {

/// An operation of a layer: its work in one micro-batch.
struct OpWork {
  plan::Op op = plan::Op::count;
  plan::Pass pass = plan::Pass::forward;
  plan::Work work = plan::Work::none;
  double flops = 0;
  double bytes = 0;
  double row_flops = 0;     ///< plan::OpCost::row_flops
  double matrices = 1;      ///< number of matrices that share the rows: a rank's experts
  double weight_bytes = 0;  ///< of `bytes`, the parameters that are read
};

/// A collective of a layer, in one micro-batch.
struct CommWork {
  plan::Op op = plan::Op::count;
  plan::Pass pass = plan::Pass::forward;
  plan::Group group = plan::Group::world;
  spec::CollectiveKind kind = spec::CollectiveKind::all_gather;
  double bytes = 0;  ///< the payload that spec::collective_ns takes
};

struct LayerWork {
  std::vector<OpWork> ops;
  std::vector<CommWork> comms;
  int num_launches = 0;  ///< kernels and collectives, forward and backward
};

/// Of a layer of this kind and window, forward and backward, without recomputation. The balanced
/// number of rows, times the run's load.
LayerWork layer_work(const PlanRun& run, spec::LayerKind kind, int64_t window);
/// What the last stage has besides layers: final norm, head, loss.
LayerWork head_work(const PlanRun& run);

}  // namespace moetune::tuner::planner
