// The attention half of a layer; see blocks.h.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/qkv_parts.h"

namespace moetune::plan {
namespace {

using spec::GraphScope;

void rope(SegmentWriter& w, const Ref& x) {
  w.op(Op::rope, {inout(x), by_token(table(Table::rope_cos)), by_token(table(Table::rope_sin)),
                  table(Table::positions)});
}

const std::initializer_list<ParamKind> kParams = {
    ParamKind::attn_norm, ParamKind::qkv,    ParamKind::qkv_bias, ParamKind::q_norm,
    ParamKind::k_norm,    ParamKind::o_proj, ParamKind::o_bias};

}  // namespace

Segment gqa_forward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::gqa, false);
  const LayerDims& d = w.dims();
  const spec::ModelSpec& model = w.model();
  w.begin(Part::input, Space::next);
  w.begin(Part::block);
  w.begin(Part::attn);
  w.acquire(kParams);
  w.open(GraphScope::attn);
  w.op(Op::attn_norm, {in(Buf::input), weight(ParamKind::attn_norm), out(Buf::attn_norm_out),
                       out(Buf::attn_norm_rstd)});
  SegmentWriter::Gathered x = w.gather(in(Buf::attn_norm_out), in(Buf::attn_gathered));
  w.linear(Op::qkv_proj, w.arrived(x), ParamKind::qkv, out(Buf::qkv),
           model.has_attention_bias ? weight(ParamKind::qkv_bias) : nothing());
  if (d.has_qk_norm) {
    w.op(Op::qk_norm,
         {q_of(d, Buf::qkv), weight(ParamKind::q_norm), out(Buf::q_rot), out(Buf::q_rstd)});
    w.op(Op::qk_norm,
         {k_of(d, Buf::qkv), weight(ParamKind::k_norm), out(Buf::k_rot), out(Buf::k_rstd)});
  }
  rope(w, rotated_q(d));
  rope(w, rotated_k(d));
  core_attention_forward(w, context);
  w.row_parallel(Op::o_proj, in(Buf::attn_out), ParamKind::o_proj, in(Buf::attn_partial),
                 in(Buf::mid), {Op::attn_residual, in(Buf::input)},
                 model.has_attention_output_bias ? weight(ParamKind::o_bias) : nothing());
  w.close(GraphScope::attn);
  w.release(kParams);
  w.end(Part::attn);
  return w.finish();
}

Segment gqa_backward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::gqa, true);
  const LayerDims& d = w.dims();
  const spec::ModelSpec& model = w.model();
  const Ref d_hidden = in(Space::edge, Buf::d_hidden);
  w.begin(Part::attn);
  w.acquire(kParams);
  w.open(GraphScope::attn);
  w.remake({Buf::attn_norm_out});
  SegmentWriter::Gathered dy = w.gather(d_hidden, in(Buf::attn_partial));
  SegmentWriter::Gathered x = w.gather(in(Buf::attn_norm_out), in(Buf::attn_gathered));
  core_attention_remake(w, context);
  w.row_parallel_backward(Op::o_proj, Op::o_bias, in(Buf::attn_out), ParamKind::o_proj, d_hidden,
                          dy, out(Buf::d_attn_out),
                          model.has_attention_output_bias ? grad(ParamKind::o_bias) : nothing());
  core_attention_backward(w, context);
  const Ref dq = q_of(d, Buf::d_qkv);
  const Ref dk = k_of(d, Buf::d_qkv);
  rope(w, dq);
  rope(w, dk);
  if (d.has_qk_norm) {
    w.op(Op::qk_norm, {q_of(d, Buf::qkv), weight(ParamKind::q_norm), in(Buf::q_rstd), dq, inout(dq),
                       grad(ParamKind::q_norm)});
    w.op(Op::qk_norm, {k_of(d, Buf::qkv), weight(ParamKind::k_norm), in(Buf::k_rstd), dk, inout(dk),
                       grad(ParamKind::k_norm)});
  }
  w.column_parallel_backward(Op::qkv_proj, Op::qkv_bias, x, ParamKind::qkv, in(Buf::d_qkv),
                             in(Buf::attn_partial), out(Buf::d_attn_norm),
                             model.has_attention_bias ? grad(ParamKind::qkv_bias) : nothing());
  w.op(Op::attn_norm, {in(Buf::input), weight(ParamKind::attn_norm), in(Buf::attn_norm_rstd),
                       in(Buf::d_attn_norm), inout(d_hidden), grad(ParamKind::attn_norm)})
      .accumulate = true;
  w.close(GraphScope::attn);
  w.release(kParams);
  w.end(Part::attn);
  for (const Part part :
       {d.is_moe ? Part::experts : Part::mlp, Part::route, Part::attn, Part::block, Part::input}) {
    w.end_saved(part);
  }
  return w.finish();
}

}  // namespace moetune::plan
