// The block of a layer's attention half: grouped-query attention over tensor and context ranks.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/declare.h"
#include "engine/plan/blocks/qkv_parts.h"

namespace moetune::plan {
namespace {

std::vector<int64_t> projections(D d) {
  std::vector<int64_t> rows = {d.q, d.kv, d.v};
  if (d.gate > 0) rows.push_back(d.gate);
  return rows;
}
int64_t qkv(D d) { return d.q + d.kv + d.v + d.gate; }
int64_t head_dim(D d) { return d.head_dim; }
int64_t gate(D d) { return d.gate; }
int64_t block_if_gqa(D d) { return d.mixer == spec::Mixer::gqa ? d.block_tokens : 0; }
int64_t block_if_qk_norm(D d) { return d.has_qk_norm ? d.block_tokens : 0; }
bool has_qk_norm(const ModelSpec& model, D) { return model.has_qk_norm; }
/// Attention reads them by heads; the norms and the gate read what was projected.
bool are_sent(D d) { return d.exchanges_heads; }
bool is_read_by_heads_only(D d) { return d.exchanges_heads && !d.has_qk_norm && d.gate == 0; }

constexpr ParamRow kParams[] = {
    {ParamKind::qkv, "qkv", qkv, dim::hidden, Split::projections, Sync::sharded, nullptr,
     projections},
    {ParamKind::qkv_bias, "qkv_bias", qkv, dim::one, Split::projections, Sync::sharded,
     [](const ModelSpec& m, D) { return m.has_attention_bias; }, projections},
    {ParamKind::q_norm, "q_norm", dim::one, head_dim, Split::whole, Sync::replicated, has_qk_norm},
    {ParamKind::k_norm, "k_norm", dim::one, head_dim, Split::whole, Sync::replicated, has_qk_norm},
    {ParamKind::attn_sinks, "attn_sinks", [](D d) { return d.heads; }, dim::one, Split::rows,
     Sync::sharded, [](const ModelSpec& m, D) { return m.has_attention_sinks; }}};

constexpr BufferRow kBuffers[] = {
    {Buf::qkv, "qkv", Part::attn, Keep::saved, kKept, kElement, block_if_gqa, qkv,
     spec::Offload::core_attn, is_read_by_heads_only},
    // Queries and keys on both sides of their norm are offloaded, one with the projections and one
    // with attention.
    {Buf::q_rstd, "q_rstd", Part::attn, Keep::saved, kKept, kStat, block_if_qk_norm,
     [](D d) { return d.heads; }, spec::Offload::qkv_linear},
    {Buf::k_rstd, "k_rstd", Part::attn, Keep::saved, kKept, kStat, block_if_qk_norm,
     [](D d) { return d.kv_heads; }, spec::Offload::qkv_linear},
    {Buf::q_rot, "q_rot", Part::attn, Keep::saved, kKept, kElement, block_if_qk_norm,
     [](D d) { return d.q; }, spec::Offload::qkv_linear, are_sent},
    {Buf::k_rot, "k_rot", Part::attn, Keep::saved, kKept, kElement, block_if_qk_norm,
     [](D d) { return d.kv; }, spec::Offload::qkv_linear, are_sent},
    {Buf::gated_out, "gated_out", Part::attn, Keep::saved, kKept, kElement, dim::block, gate},
    {Buf::d_gated_out, "d_gated_out", Part::attn, Keep::backward, kKept, kElement, dim::block,
     gate},
    {Buf::d_qkv, "d_qkv", Part::attn, Keep::backward, kKept, kElement, block_if_gqa, qkv}};

using spec::GraphScope;

/// What the output projection reads.
Ref gated(D d) { return in(d.gate > 0 ? Buf::gated_out : Buf::attn_out); }

void rope(SegmentWriter& w, const Ref& x) {
  if (w.model().has_learned_positions) return;
  w.op(Op::rope, {inout(x), by_token(table(Table::rope_cos)), by_token(table(Table::rope_sin)),
                  table(Table::positions)});
}

Segment forward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::gqa, false);
  const LayerDims& d = w.dims();
  const spec::ModelSpec& model = w.model();
  begin_layer(w);
  w.begin(Part::attn);
  w.acquire();
  w.open(GraphScope::attn);
  mixer_norm(w);
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
  if (d.gate > 0) {
    w.op(Op::attn_gate, {in(Buf::attn_out), gate_of(d, Buf::qkv), out(Buf::gated_out)});
  }
  w.row_parallel(Op::o_proj, gated(d), ParamKind::o_proj, in(Buf::attn_partial), mixer_output(d),
                 {Op::attn_residual, in(Buf::input)},
                 model.has_attention_output_bias ? weight(ParamKind::o_bias) : nothing());
  w.close(GraphScope::attn);
  w.release();
  w.end(Part::attn);
  end_layer(w);
  return w.finish();
}

Segment backward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::gqa, true);
  const LayerDims& d = w.dims();
  const spec::ModelSpec& model = w.model();
  const Ref d_hidden = in(Space::edge, Buf::d_hidden);
  w.begin(Part::attn);
  w.acquire();
  w.open(GraphScope::attn);
  w.remake({Buf::attn_norm_out});
  SegmentWriter::Gathered dy = w.gather(d_hidden, in(Buf::attn_partial));
  SegmentWriter::Gathered x = w.gather(in(Buf::attn_norm_out), in(Buf::attn_gathered));
  core_attention_remake(w, context);
  w.row_parallel_backward(Op::o_proj, Op::o_bias, gated(d), ParamKind::o_proj, d_hidden, dy,
                          out(d.gate > 0 ? Buf::d_gated_out : Buf::d_attn_out),
                          model.has_attention_output_bias ? grad(ParamKind::o_bias) : nothing());
  if (d.gate > 0) {
    w.op(Op::attn_gate, {in(Buf::attn_out), gate_of(d, Buf::qkv), in(Buf::d_gated_out),
                         out(Buf::d_attn_out), out(gate_of(d, Buf::d_qkv))});
  }
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
  mixer_norm_backward(w);
  w.close(GraphScope::attn);
  w.release();
  w.end(Part::attn);
  end_layer_backward(w);
  return w.finish();
}

}  // namespace

Block gqa() {
  return {BlockKind::gqa,
          forward,
          backward,
          {mixer_params(), kParams, attention_output_params()},
          {mixer_buffers(), kBuffers, core_attention_buffers()}};
}

}  // namespace moetune::plan
