// Experts that every token passes, as a gated MLP with the layer's residual; see blocks.h.
#include "engine/plan/blocks/blocks.h"

namespace moetune::plan {

void shared_experts_forward(SegmentWriter& w) {
  SegmentWriter::Gathered x = w.gather(in(Buf::mlp_norm_out), in(Buf::mlp_gathered));
  w.linear(Op::shared_fc1, w.arrived(x), ParamKind::shared_fc1, out(Buf::shared_fc1));
  w.op(Op::shared_act, {in(Buf::shared_fc1), out(Buf::shared_act)});
  w.row_parallel(Op::shared_fc2, in(Buf::shared_act), ParamKind::shared_fc2, in(Buf::mlp_partial),
                 in(Space::next, Buf::input), {Op::ffn_residual, in(Buf::mid)});
}

void shared_experts_backward(SegmentWriter& w) {
  const Ref d_hidden = in(Space::edge, Buf::d_hidden);
  SegmentWriter::Gathered dy = w.gather(d_hidden, in(Buf::mlp_partial));
  SegmentWriter::Gathered x = w.gather(in(Buf::mlp_norm_out), in(Buf::mlp_gathered));
  w.remake({Buf::shared_act});
  w.row_parallel_backward(Op::shared_fc2, Op::shared_fc2, in(Buf::shared_act),
                          ParamKind::shared_fc2, d_hidden, dy, out(Buf::d_shared_act));
  w.op(Op::shared_act, {in(Buf::shared_fc1), in(Buf::d_shared_act), out(Buf::d_shared_fc1)});
  w.column_parallel_backward(Op::shared_fc1, Op::shared_fc1, x, ParamKind::shared_fc1,
                             in(Buf::d_shared_fc1), in(Buf::mlp_partial), inout(Buf::d_mlp_norm));
}

}  // namespace moetune::plan
