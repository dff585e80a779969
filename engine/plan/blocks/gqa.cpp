// The attention half of a layer; see blocks.h.
#include "engine/plan/blocks/blocks.h"

namespace moetune::plan {
namespace {

using spec::CollectiveKind;
using spec::GraphScope;

Ref q_of(const LayerDims& d, Space space, Buf qkv) { return cols(in(space, qkv), 0, d.q); }
Ref k_of(const LayerDims& d, Buf qkv) { return cols(in(qkv), d.q, d.kv); }
Ref v_of(const LayerDims& d, Buf qkv) { return cols(in(qkv), d.q + d.kv, d.kv); }

/// Queries and keys as rope left them.
Ref rotated_q(const LayerDims& d) {
  return d.has_qk_norm ? in(Buf::q_rot) : q_of(d, Space::frame, Buf::qkv);
}
Ref rotated_k(const LayerDims& d) { return d.has_qk_norm ? in(Buf::k_rot) : k_of(d, Buf::qkv); }

int64_t gathered_kv_bytes(const SegmentWriter& w, const BlockContext& context) {
  return w.dims().context_tokens * 2 * w.dims().kv * base::size_of(context.precision.element);
}

// Rows of a context-parallel rank lie sequence by sequence; gathered they lie rank by rank and are
// brought into position order, so that causal attention sees contiguous keys.
void gather_kv(SegmentWriter& w, const BlockContext& context) {
  const LayerDims& d = w.dims();
  if (d.cp == 1) return;
  w.op(Op::kv_pack, {rotated_k(d), out(cols(in(Buf::kv_local), 0, d.kv))});
  w.op(Op::kv_pack, {v_of(d, Buf::qkv), out(cols(in(Buf::kv_local), d.kv, d.kv))});
  w.join(Stream::context, Stream::compute);
  w.comm(Op::kv_gather, CollectiveKind::all_gather, gathered_kv_bytes(w, context),
         {in(Buf::kv_local), out(Buf::kv_gathered)});
  w.join(Stream::compute, Stream::context);
  w.op(Op::kv_reorder, {in(Buf::kv_gathered), table(Table::kv_order), out(Buf::kv_full)});
}

Ref keys_of(const LayerDims& d) {
  return d.cp > 1 ? cols(in(Buf::kv_full), 0, d.kv) : rotated_k(d);
}
Ref values_of(const LayerDims& d) {
  return d.cp > 1 ? cols(in(Buf::kv_full), d.kv, d.kv) : v_of(d, Buf::qkv);
}

Ref positions_of(const LayerDims& d) {
  return rows(table(Table::positions), 0, d.block_tokens / d.sequences);
}

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
    w.op(Op::qk_norm, {q_of(d, Space::frame, Buf::qkv), weight(ParamKind::q_norm), out(Buf::q_rot),
                       out(Buf::q_rstd)});
    w.op(Op::qk_norm,
         {k_of(d, Buf::qkv), weight(ParamKind::k_norm), out(Buf::k_rot), out(Buf::k_rstd)});
  }
  rope(w, rotated_q(d));
  rope(w, rotated_k(d));
  gather_kv(w, context);
  w.op(Op::core_attn, {rotated_q(d), keys_of(d), values_of(d), out(Buf::attn_out),
                       out(Buf::attn_lse), positions_of(d)});
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
  gather_kv(w, context);
  w.remake({Buf::attn_out});
  w.row_parallel_backward(Op::o_proj, Op::o_bias, in(Buf::attn_out), ParamKind::o_proj, d_hidden,
                          dy, out(Buf::d_attn_out),
                          model.has_attention_output_bias ? grad(ParamKind::o_bias) : nothing());
  const Ref dq = q_of(d, Space::frame, Buf::d_qkv);
  const Ref dk = k_of(d, Buf::d_qkv);
  const Ref dv = v_of(d, Buf::d_qkv);
  // With context parallelism the gradients of all keys go where the gathered keys have been.
  const bool is_gathered = d.cp > 1;
  w.op(Op::core_attn, {rotated_q(d), keys_of(d), values_of(d), in(Buf::attn_out), in(Buf::attn_lse),
                       positions_of(d), in(Buf::d_attn_out), out(dq),
                       out(is_gathered ? cols(in(Buf::kv_gathered), 0, d.kv) : dk),
                       out(is_gathered ? cols(in(Buf::kv_gathered), d.kv, d.kv) : dv)});
  if (is_gathered) {
    w.op(Op::kv_reorder, {in(Buf::kv_gathered), table(Table::kv_inverse), out(Buf::kv_full)});
    w.join(Stream::context, Stream::compute);
    w.comm(Op::kv_gather, CollectiveKind::reduce_scatter, gathered_kv_bytes(w, context),
           {in(Buf::kv_full), out(Buf::kv_local)});
    w.join(Stream::compute, Stream::context);
    w.op(Op::kv_pack, {cols(in(Buf::kv_local), 0, d.kv), out(dk)});
    w.op(Op::kv_pack, {cols(in(Buf::kv_local), d.kv, d.kv), out(dv)});
  }
  rope(w, dq);
  rope(w, dk);
  if (d.has_qk_norm) {
    w.op(Op::qk_norm, {q_of(d, Space::frame, Buf::qkv), weight(ParamKind::q_norm), in(Buf::q_rstd),
                       dq, inout(dq), grad(ParamKind::q_norm)});
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
