// Adapters of LoRA (Hu et al. 2021, arXiv 2106.09685) beside frozen matrices: which matrices have
// one, how large it is on a rank, and what its products take.
#pragma once

#include <optional>
#include <vector>

#include "engine/plan/ops.h"
#include "engine/plan/params.h"
#include "tuner/planner/rates.h"
#include "tuner/planner/run.h"

namespace moetune::tuner::planner {

/// Whether adapters alone are trained.
inline bool has_adapters(const spec::PlanKnobs& knobs) {
  return knobs.task == spec::TrainingTask::lora;
}

/// Of one matrix on one tensor-parallel rank: its first half leads from the matrix's input to
/// PlanKnobs::lora_rank columns, the second from there to the matrix's output. Tensor parallelism
/// cuts both: the one whose matrix is whole there along its rank or its output.
struct Adapter {
  plan::Op op = plan::Op::count;  ///< the product that it stands beside
  bool is_expert = false;         ///< one for all experts of a rank
  double read = 0;                ///< columns of the input that the first half reads
  double inputs = 0;              ///< elements of the first half for each unit of the rank
  double outputs = 0;             ///< and of the second; columns of its output
};

/// None beside what Megatron-Bridge does not adapt by default: it does queries, keys and values in
/// one matrix, attention's output, and both matrices of an MLP, of experts and of shared experts.
std::optional<Adapter> adapter_of(const plan::ParamRow& row, const plan::LayerDims& dims);

/// Seconds of a micro-batch.
struct AdapterSeconds {
  double products = 0;
  double memory = 0;  ///< scaling, and sums with what the frozen matrix gives
};

struct AdapterTime {
  plan::Op op = plan::Op::count;
  AdapterSeconds forward;
  AdapterSeconds backward;
};

/// Of each adapter of a layer. They compute in 16 bits whatever the frozen products do. A product
/// is bound by its FLOPs or, as it mostly is, by its bytes: the three tensors that it touches.
std::vector<AdapterTime> adapter_times(const PlanRun& run, spec::LayerKind kind,
                                       const Rates& rates);

}  // namespace moetune::tuner::planner
