// The block of a layer's dense feed-forward half: a gated MLP.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/declare.h"

namespace moetune::plan {
namespace {

int64_t ffn(D d) { return d.ffn; }
int64_t fc1(D d) { return d.fc1_halves * d.ffn; }
bool has_mlp_bias(const ModelSpec& model, D) { return model.has_mlp_bias; }

constexpr ParamRow kParams[] = {
    {ParamKind::mlp_fc1, "mlp_fc1", fc1, dim::hidden, Split::halves, Sync::sharded},
    {ParamKind::mlp_fc1_bias, "mlp_fc1_bias", fc1, dim::one, Split::halves, Sync::sharded,
     has_mlp_bias},
    {ParamKind::mlp_fc2, "mlp_fc2", dim::hidden, ffn, Split::cols, Sync::sharded},
    {ParamKind::mlp_fc2_bias, "mlp_fc2_bias", dim::one, dim::hidden, Split::whole, Sync::replicated,
     has_mlp_bias}};

constexpr BufferRow kBuffers[] = {
    {Buf::mlp_fc1, "mlp_fc1", Part::mlp, Keep::saved, kKept, kElement, dim::block, fc1},
    {Buf::mlp_act, "mlp_act", Part::mlp, Keep::saved, kKept, kElement, dim::block, ffn},
    {Buf::d_mlp_act, "d_mlp_act", Part::mlp, Keep::backward, kKept, kElement, dim::block, ffn},
    {Buf::d_mlp_fc1, "d_mlp_fc1", Part::mlp, Keep::backward, kKept, kElement, dim::block, fc1}};

Segment forward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::dense_mlp, false);
  const bool has_bias = w.model().has_mlp_bias;
  const Ref output = in(Space::next, Buf::input);
  begin_layer(w);
  w.begin(Part::route);
  w.begin(Part::mlp);
  w.acquire();
  feed_forward_norm(w);
  SegmentWriter::Gathered x = w.gather(in(Buf::mlp_norm_out), in(Buf::mlp_gathered));
  w.linear(Op::mlp_fc1, w.arrived(x), ParamKind::mlp_fc1, out(Buf::mlp_fc1),
           has_bias ? weight(ParamKind::mlp_fc1_bias) : nothing());
  w.op(Op::mlp_act, {in(Buf::mlp_fc1), out(Buf::mlp_act)});
  w.row_parallel(Op::mlp_fc2, in(Buf::mlp_act), ParamKind::mlp_fc2, in(Buf::mlp_partial), output,
                 {Op::ffn_residual, feed_forward_input(w.dims())},
                 has_bias ? weight(ParamKind::mlp_fc2_bias) : nothing());
  w.release();
  w.end(Part::mlp);
  w.end(Part::route);
  end_layer(w);
  return w.finish();
}

Segment backward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::dense_mlp, true);
  const bool has_bias = w.model().has_mlp_bias;
  const Ref d_hidden = in(Space::edge, Buf::d_hidden);
  w.begin(Part::route);
  w.begin(Part::mlp);
  w.acquire();
  w.remake({Buf::mlp_norm_out});
  SegmentWriter::Gathered dy = w.gather(d_hidden, in(Buf::mlp_partial));
  SegmentWriter::Gathered x = w.gather(in(Buf::mlp_norm_out), in(Buf::mlp_gathered));
  w.row_parallel_backward(Op::mlp_fc2, Op::mlp_bias, in(Buf::mlp_act), ParamKind::mlp_fc2, d_hidden,
                          dy, out(Buf::d_mlp_act),
                          has_bias ? grad(ParamKind::mlp_fc2_bias) : nothing());
  w.op(Op::mlp_act, {in(Buf::mlp_fc1), in(Buf::d_mlp_act), out(Buf::d_mlp_fc1)});
  w.column_parallel_backward(Op::mlp_fc1, Op::mlp_bias, x, ParamKind::mlp_fc1, in(Buf::d_mlp_fc1),
                             in(Buf::mlp_partial), out(Buf::d_mlp_norm),
                             has_bias ? grad(ParamKind::mlp_fc1_bias) : nothing());
  feed_forward_norm_backward(w);
  w.release();
  w.end(Part::mlp);
  w.end(Part::route);
  end_layer_backward(w);
  return w.finish();
}

}  // namespace

Block dense_mlp() {
  return {BlockKind::dense_mlp,
          forward,
          backward,
          {feed_forward_params(), kParams},
          {feed_forward_buffers(), kBuffers}};
}

}  // namespace moetune::plan
