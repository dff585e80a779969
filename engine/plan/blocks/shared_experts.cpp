// Experts that every token passes, as a gated MLP on the rank's own tokens; see blocks.h.
#include "engine/plan/blocks/blocks.h"

namespace moetune::plan {

void shared_experts_forward(SegmentWriter& w) {
  w.linear(Op::shared_fc1, in(Buf::mlp_norm_out), ParamKind::shared_fc1, out(Buf::shared_fc1));
  w.op(Op::shared_act, {in(Buf::shared_fc1), out(Buf::shared_act)});
  w.linear(Op::shared_fc2, in(Buf::shared_act), ParamKind::shared_fc2,
           inout(in(Space::next, Buf::input)))
      .accumulate = true;
}

void shared_experts_backward(SegmentWriter& w) {
  w.remake({Buf::shared_act});
  w.linear_backward(Op::shared_fc2, Op::shared_fc2, in(Buf::shared_act), ParamKind::shared_fc2,
                    in(Space::edge, Buf::d_hidden), out(Buf::d_shared_act));
  w.op(Op::shared_act, {in(Buf::shared_fc1), in(Buf::d_shared_act), out(Buf::d_shared_fc1)});
  w.linear_backward(Op::shared_fc1, Op::shared_fc1, in(Buf::mlp_norm_out), ParamKind::shared_fc1,
                    in(Buf::d_shared_fc1), inout(Buf::d_mlp_norm));
}

}  // namespace moetune::plan
