// Prices and waits of a stage's ops; see stage_program.h.
#include "tuner/stage_program.h"

#include <algorithm>

#include "engine/spec/params.h"

namespace moetune::tuner {
namespace {

using spec::CollectiveKind;
using spec::GraphScope;
using spec::Group;
using spec::Op;
using spec::OpInstance;
using spec::Pass;
using Role = PricedOp::Role;

class Pricer {
 public:
  Pricer(const spec::TrialSpec& spec, const Calibration& calibration, int stage)
      : spec_(spec),
        calibration_(calibration),
        layout_(spec::layout_of(spec.knobs)),
        plane_(layout_.dp * layout_.cp),
        rank_(stage * plane_),
        program_(spec::op_list(spec.model, spec.training, spec.knobs, rank_)),
        precision_(spec::precision_of(spec.dtype)),
        element_bytes_(base::size_of(precision_.element)) {
    plan_reductions();
  }

  StageOps price() {
    StageOps ops;
    ops.forward = price_pass(program_.forward, true, false);
    ops.backward = price_pass(program_.backward, false, false);
    ops.last_backward =
        spec_.knobs.overlap_grad_reduce ? price_pass(program_.backward, false, true) : ops.backward;
    price_update(ops);
    return ops;
  }

 private:
  struct Reduction {
    int64_t layer = -1;
    int64_t numel = 0;  ///< of the whole bucket
    Group group = Group::dp_cp;
  };

  void plan_reductions() {
    for (const spec::BucketDesc& bucket :
         spec::make_param_plan(spec_.model, spec_.knobs, rank_).buckets) {
      const int size = bucket.group == Group::edp ? layout_.edp() : plane_;
      if (size == 1) continue;
      reductions_.push_back({bucket.layer, bucket.numel, bucket.group});
    }
  }

  [[nodiscard]] bool has_whole_graph() const {
    return spec::has_graph(spec_.knobs, GraphScope::full_iteration);
  }

  [[nodiscard]] bool is_captured(const OpInstance& op, bool is_forward) const {
    if (has_whole_graph()) return true;
    const GraphScope scope = spec::op_row(op.op).graph_scope;
    if (scope == GraphScope::none || !spec::has_graph(spec_.knobs, scope)) return false;
    if (scope == GraphScope::attn) return true;
    // Router and preprocessing are captured in the forward pass of MoE layers only.
    return is_forward && op.layer >= 0 && spec_.model.is_moe_layer[static_cast<size_t>(op.layer)];
  }

  [[nodiscard]] int64_t collective(CollectiveKind kind, Group group, int64_t bytes) const {
    return spec::collective_ns(spec_.hardware, kind, layout_.group_ranks(group, rank_), bytes);
  }

  /// All-to-all with the same number of bytes for every peer.
  [[nodiscard]] int64_t all_to_all(int64_t sent_bytes) const {
    const std::vector<int> ranks = layout_.group_ranks(Group::ep, rank_);
    const size_t n = ranks.size();
    if (n < 2) return 0;
    const std::vector<int64_t> bytes(n * n, sent_bytes / static_cast<int64_t>(n - 1));
    return spec::all_to_all_ns(spec_.hardware, ranks, bytes);
  }

  [[nodiscard]] int64_t transfer_ns(const OpInstance& op) const {
    // An op's bytes are what this rank sends; the gathered payload is cp / (cp - 1) of it.
    switch (op.op) {
      case Op::kv_gather: {
        const int64_t payload = layout_.cp > 1 ? op.cost.bytes / (layout_.cp - 1) * layout_.cp : 0;
        return collective(
            op.pass == Pass::backward ? CollectiveKind::reduce_scatter : CollectiveKind::all_gather,
            Group::cp, payload);
      }
      case Op::count_exchange: {
        const int64_t payload = layout_.ep > 1 ? op.cost.bytes / (layout_.ep - 1) * layout_.ep : 0;
        return collective(CollectiveKind::all_gather, Group::ep, payload);
      }
      case Op::aux_loss_reduce:
        return collective(CollectiveKind::all_reduce, Group::cp, op.cost.bytes);
      case Op::embedding_grad_reduce:
        return collective(CollectiveKind::all_reduce, Group::embedding, op.cost.bytes);
      case Op::norm_reduce:
      case Op::loss_reduce:
        return collective(CollectiveKind::all_reduce, Group::world, op.cost.bytes);
      default:
        return all_to_all(op.cost.bytes);
    }
  }

  PricedOp priced(const OpInstance& op) {
    PricedOp made;
    made.stream = op.stream;
    made.chunk = std::max<int64_t>(op.chunk, 0);
    made.is_recompute = op.pass == Pass::recompute;
    made.host_ns = spec_.hardware.launch_ns;
    const bool is_backward = op.pass == Pass::backward;
    switch (spec::op_row(op.op).kind) {
      case spec::OpKind::host:
        made.role = Role::host_sync;
        made.stream = op.pass == Pass::update ? spec::Stream::data : spec::Stream::expert;
        made.host_ns = spec_.hardware.sync_ns;
        return made;
      case spec::OpKind::p2p: {
        const bool is_send = op.op == Op::pp_send;
        made.role = is_send ? Role::send : Role::recv;
        made.wait = is_send ? Wait::compute : Wait::none;
        made.joins_compute = !is_send;
        const bool is_up = is_send != is_backward;
        made.duration_ns = spec::p2p_ns(spec_.hardware, rank_,
                                        is_up ? rank_ + plane_ : rank_ - plane_, op.cost.bytes);
        return made;
      }
      case spec::OpKind::collective: {
        made.duration_ns = transfer_ns(op);
        made.joins_compute = op.op == Op::kv_gather || op.op == Op::aux_loss_reduce;
        made.marks_arrival = op.op == (is_backward ? Op::combine : Op::dispatch);
        // Later chunks were packed together with the first one.
        const bool is_packed = made.marks_arrival && made.chunk > 0;
        made.wait = is_packed ? Wait::none : Wait::compute;
        if (op.op == Op::norm_reduce || op.op == Op::loss_reduce) made.role = Role::meet_world;
        return made;
      }
      default:
        break;
    }
    made.duration_ns = calibration_.duration_ns(spec_.hardware, op.op, op.pass, op.cost);
    if (op.op == Op::expert_fc1 && op.pass == Pass::wgrad) has_expert_wgrad_ = true;
    if (layout_.ep == 1) return made;
    if (op.op == (is_backward ? Op::unsort_rows : Op::sort_rows)) {
      made.wait = Wait::arrival;
    } else if (op.op == Op::unpermute && !is_backward) {
      made.wait = Wait::expert;
    } else if (op.op == Op::permute && is_backward && has_expert_wgrad_) {
      made.wait = Wait::expert;
    } else if (op.op == Op::unpermute) {
      has_expert_wgrad_ = false;
    }
    return made;
  }

  std::vector<PricedOp> price_pass(const std::vector<OpInstance>& program, bool is_forward,
                                   bool overlaps_reduction) {
    std::vector<PricedOp> ops;
    GraphScope open = GraphScope::none;
    int64_t layer = -1;
    for (const OpInstance& op : program) {
      if (overlaps_reduction && layer >= 0 && op.layer != layer) add_reductions(layer, ops);
      layer = op.layer;
      PricedOp made = priced(op);
      const bool captured = is_captured(op, is_forward);
      const GraphScope scope = captured ? spec::op_row(op.op).graph_scope : GraphScope::none;
      if (has_whole_graph()) {
        made.host_ns = 0;  // one launch for the whole step, booked with its beginning
      } else if (captured) {
        made.host_ns = scope == open ? 0 : spec_.hardware.graph_launch_ns;
      }
      open = scope;
      ops.push_back(made);
    }
    return ops;
  }

  [[nodiscard]] PricedOp on_data_stream(int64_t duration_ns) const {
    PricedOp op;
    op.stream = spec::Stream::data;
    op.wait = Wait::compute;
    op.host_ns = spec_.hardware.launch_ns;
    op.duration_ns = duration_ns;
    return op;
  }

  void add_reduction(const Reduction& reduction, std::vector<PricedOp>& ops) const {
    ops.push_back(on_data_stream(
        collective(spec_.knobs.use_distributed_optimizer ? CollectiveKind::reduce_scatter
                                                         : CollectiveKind::all_reduce,
                   reduction.group, reduction.numel * base::size_of(precision_.stat))));
  }

  void add_reductions(int64_t layer, std::vector<PricedOp>& ops) const {
    for (const Reduction& reduction : reductions_) {
      if (reduction.layer != layer) continue;
      add_reduction(reduction, ops);
      if (has_whole_graph()) ops.back().host_ns = 0;
    }
  }

  void price_update(StageOps& ops) {
    bool has_reduced = false;
    for (const OpInstance& op : program_.update) {
      if (op.op == Op::grad_reduce || op.op == Op::param_gather) continue;
      if (op.op == Op::zero_grads) {
        ops.begin.push_back(priced(op));
        if (has_whole_graph()) ops.begin.back().host_ns += spec_.hardware.graph_launch_ns;
        continue;
      }
      if (op.op == Op::grad_norm && !has_reduced) {
        has_reduced = true;
        for (const Reduction& reduction : reductions_) {
          if (spec_.knobs.overlap_grad_reduce && reduction.layer >= 0) continue;
          add_reduction(reduction, ops.tail);
        }
      }
      PricedOp made = priced(op);
      if (op.op == Op::grad_norm) made.wait = Wait::data;
      ops.tail.push_back(made);
      if (op.op != Op::adamw || !spec_.knobs.use_distributed_optimizer) continue;
      for (const Reduction& gather : reductions_) {
        ops.tail.push_back(
            on_data_stream(collective(CollectiveKind::all_gather, gather.group,
                                      gather.numel * base::size_of(precision_.element))));
      }
    }
  }

  const spec::TrialSpec& spec_;
  const Calibration& calibration_;
  spec::Layout layout_;
  int plane_;
  int rank_;
  spec::StageProgram program_;
  spec::Precision precision_;
  int64_t element_bytes_;
  std::vector<Reduction> reductions_;
  bool has_expert_wgrad_ = false;
};

}  // namespace

StageOps stage_ops(const spec::TrialSpec& spec, const Calibration& calibration, int stage) {
  return Pricer(spec, calibration, stage).price();
}

}  // namespace moetune::tuner
