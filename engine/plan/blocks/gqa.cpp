// The block of a layer's attention half: grouped-query attention over tensor and context ranks.
#include <algorithm>

#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/declare.h"
#include "engine/plan/blocks/qkv_parts.h"

namespace moetune::plan {
namespace {

int64_t qkv(D d) { return d.q + 2 * d.kv; }
int64_t head_dim(D d) { return d.head_dim; }
int64_t block_if_qk_norm(D d) { return d.has_qk_norm ? d.block_tokens : 0; }
bool has_qk_norm(const ModelSpec& model, D) { return model.has_qk_norm; }

constexpr ParamRow kParams[] = {
    {ParamKind::attn_norm, "attn_norm", dim::one, dim::hidden, Split::whole, Sync::replicated},
    {ParamKind::qkv, "qkv", qkv, dim::hidden, Split::projections, Sync::sharded},
    {ParamKind::qkv_bias, "qkv_bias", qkv, dim::one, Split::projections, Sync::sharded,
     [](const ModelSpec& m, D) { return m.has_attention_bias; }},
    {ParamKind::q_norm, "q_norm", dim::one, head_dim, Split::whole, Sync::replicated, has_qk_norm},
    {ParamKind::k_norm, "k_norm", dim::one, head_dim, Split::whole, Sync::replicated, has_qk_norm},
    {ParamKind::o_proj, "o_proj", dim::hidden, [](D d) { return d.q; }, Split::cols, Sync::sharded},
    {ParamKind::o_bias, "o_bias", dim::one, dim::hidden, Split::whole, Sync::replicated,
     [](const ModelSpec& m, D) { return m.has_attention_output_bias; }}};

constexpr BufferRow kBuffers[] = {
    {Buf::attn_gathered, "attn_gathered", Part::attn, Keep::wire, kKept, kElement, dim::block_if_tp,
     dim::hidden},
    {Buf::attn_partial, "attn_partial", Part::attn, Keep::wire, kKept, kElement, dim::block_if_tp,
     dim::hidden},
    {Buf::attn_norm_out, "attn_norm_out", Part::attn, Keep::saved, RecomputeModule::norm, kElement,
     dim::tokens, dim::hidden},
    {Buf::attn_norm_rstd, "attn_norm_rstd", Part::attn, Keep::saved, kKept, kStat, dim::tokens,
     dim::one},
    {Buf::qkv, "qkv", Part::attn, Keep::saved, kKept, kElement, dim::block, qkv},
    {Buf::q_rstd, "q_rstd", Part::attn, Keep::saved, kKept, kStat, block_if_qk_norm,
     [](D d) { return d.heads; }},
    {Buf::k_rstd, "k_rstd", Part::attn, Keep::saved, kKept, kStat, block_if_qk_norm,
     [](D d) { return d.kv_heads; }},
    {Buf::q_rot, "q_rot", Part::attn, Keep::saved, kKept, kElement, block_if_qk_norm,
     [](D d) { return d.q; }},
    {Buf::k_rot, "k_rot", Part::attn, Keep::saved, kKept, kElement, block_if_qk_norm,
     [](D d) { return d.kv; }},
    {Buf::d_attn_out, "d_attn_out", Part::attn, Keep::backward, kKept, kElement, dim::block,
     [](D d) { return d.q; }},
    {Buf::d_qkv, "d_qkv", Part::attn, Keep::backward, kKept, kElement, dim::block, qkv},
    {Buf::d_attn_norm, "d_attn_norm", Part::attn, Keep::backward, kKept, kElement, dim::tokens,
     dim::hidden}};

using spec::GraphScope;

void rope(SegmentWriter& w, const Ref& x) {
  w.op(Op::rope, {inout(x), by_token(table(Table::rope_cos)), by_token(table(Table::rope_sin)),
                  table(Table::positions)});
}

Segment forward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::gqa, false);
  const LayerDims& d = w.dims();
  const spec::ModelSpec& model = w.model();
  w.begin(Part::input, Space::next);
  w.begin(Part::block);
  w.begin(Part::attn);
  w.acquire();
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
  w.release();
  w.end(Part::attn);
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
  w.release();
  w.end(Part::attn);
  std::vector<Part> behind = parts_of(block_of(halves_of(d).second));
  std::ranges::reverse(behind);
  for (const Part part : behind) w.end_saved(part);
  for (const Part part : {Part::attn, Part::block, Part::input}) w.end_saved(part);
  return w.finish();
}

}  // namespace

Block gqa() {
  return {BlockKind::gqa, forward, backward, {kParams}, {kBuffers, core_attention_buffers()}};
}

}  // namespace moetune::plan
