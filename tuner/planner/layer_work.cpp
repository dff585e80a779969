// Segments of blocks, summed up.
#include "tuner/planner/layer_work.h"

#include <algorithm>

#include "engine/plan/blocks/blocks.h"
#include "engine/plan/passes/passes.h"
#include "tuner/planner/layer_sizes.h"

namespace moetune::tuner::planner {

namespace {

using plan::BlockKind;
using plan::Instr;
using plan::Verb;

/// Mixed precision as the products' operands are at least: what is narrower is the price's matter.
plan::Precision precision_of(const PlanRun& run) {
  plan::Precision precision;
  if (run.knobs.precision != spec::PrecisionRecipe::fp32) precision.element = base::DType::bf16;
  return precision;
}

class Summer {
 public:
  Summer(const PlanRun& run, const plan::LayerDims& dims)
      : training_{.global_batch_size = run.global_batch_size, .seq_length = run.seq_length},
        context_{*run.model, training_, precision_of(run), dims, 0},
        rows_(f64(dims.received_rows) * expert_rows_ratio(run)),
        send_rows_(f64(dims.tokens * dims.slots_per_token())) {}

  void add(BlockKind block, LayerWork& work) {
    const plan::Block& declared = plan::block_of(block);
    plan::Segment forward = declared.forward(context_);
    if (declared.backward != nullptr) {
      plan::Segment backward = declared.backward(context_);
      // What only recomputation needs goes.
      plan::recompute(backward, forward, {});
      add(std::move(backward), work);
    }
    add(std::move(forward), work);
  }

 private:
  void add(plan::Segment segment, LayerWork& work) {
    plan::prices(segment, training_, context_.precision);
    for (const Instr& instr : segment.code) {
      if (instr.verb == Verb::op) {
        add_op(instr, work);
      } else if (instr.verb == Verb::comm) {
        add_comm(instr, work);
      } else {
        continue;
      }
      ++work.num_launches;
    }
  }

  void add_op(const Instr& instr, LayerWork& work) {
    const double rows = instr.is_routed ? rows_ : 0;
    OpWork op;
    op.op = instr.op;
    op.pass = instr.pass;
    op.work = plan::op_row(instr.op).work;
    op.flops = instr.cost.all_flops() + f64(instr.cost_per_row.flops) * rows;
    op.bytes = f64(instr.cost.bytes) + f64(instr.cost_per_row.bytes) * rows;
    op.row_flops = f64(instr.cost.row_flops);
    if (op.work == spec::Work::grouped) {
      op.matrices = std::max(1.0, f64(context_.dims.local_experts));
      // Without rows only the weights are left of the bytes.
      op.weight_bytes = f64(instr.cost.bytes);
    }
    work.ops.push_back(op);
  }

  void add_comm(const Instr& instr, LayerWork& work) {
    CommWork comm;
    comm.op = instr.op;
    comm.pass = instr.pass;
    comm.group = instr.group;
    comm.kind = instr.kind;
    comm.bytes = f64(instr.cost.bytes);
    // A routed exchange moves what its rows weigh, to the experts and back alike.
    if (instr.is_routed) comm.bytes += f64(instr.cost_per_row.bytes) * send_rows_;
    work.comms.push_back(comm);
  }

  spec::TrainingSpec training_;
  plan::BlockContext context_;
  double rows_;
  double send_rows_;
};

}  // namespace

LayerWork layer_work(const PlanRun& run, spec::LayerKind kind, int64_t window) {
  const plan::LayerDims dims = dims_of(run, kind, window, run.seq_length);
  Summer summer(run, dims);
  LayerWork work;
  for (const BlockKind half : plan::halves_of(dims)) summer.add(half, work);
  return work;
}

LayerWork head_work(const PlanRun& run) {
  LayerWork work;
  Summer(run, dims_of(run, run.model->kind_of(0), 0, run.seq_length)).add(BlockKind::head, work);
  return work;
}

}  // namespace moetune::tuner::planner
