// Multi-head latent attention (DeepSeek-AI 2024, arXiv 2405.04434, section 2.1). The
// projections to the latents are whole on every tensor-parallel rank and made of its own tokens;
// what is gathered are the latents, which are narrower than the hidden state. Keys are made for all
// heads, as in training nothing is gained by keeping the latents instead.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/declare.h"
#include "engine/plan/blocks/qkv_parts.h"

namespace moetune::plan {
namespace {

int64_t tokens_if_q_latent(D d) { return d.q_lora > 0 ? d.tokens : 0; }
int64_t block_if_q_latent_tp(D d) { return d.q_lora > 0 ? dim::block_if_tp(d) : 0; }
int64_t q(D d) { return d.q; }
int64_t kv(D d) { return d.kv; }
int64_t v(D d) { return d.v; }
int64_t q_lora(D d) { return d.q_lora; }
int64_t kv_lora(D d) { return d.kv_lora; }
/// What queries are made from.
int64_t q_from(D d) { return d.q_lora > 0 ? d.q_lora : d.hidden; }
/// The latent of keys and values beside the part of a key that is rotated.
int64_t kv_down(D d) { return d.kv_lora + d.rope_dim; }
/// By head, a key's own part and the value.
int64_t kv_up(D d) { return d.kv - d.heads * d.rope_dim + d.v; }
bool has_q_latent(const ModelSpec&, D d) { return d.q_lora > 0; }
int64_t index_q(D d) { return d.index_heads * d.index_dim; }
int64_t index_dim(D d) { return d.index_dim; }
/// Attention reads them by heads.
bool are_sent(D d) { return d.exchanges_heads; }
bool has_indexer(const ModelSpec&, D d) { return d.index_heads > 0; }

constexpr ParamRow kParams[] = {
    {ParamKind::mla_q_down, "mla_q_down", q_lora, dim::hidden, Split::whole, Sync::replicated,
     has_q_latent},
    {ParamKind::mla_q_norm, "mla_q_norm", dim::one, q_lora, Split::whole, Sync::replicated,
     has_q_latent},
    {ParamKind::mla_q_up, "mla_q_up", q, q_from, Split::rows, Sync::sharded},
    {ParamKind::mla_kv_down, "mla_kv_down", kv_down, dim::hidden, Split::whole, Sync::replicated},
    {ParamKind::mla_kv_norm, "mla_kv_norm", dim::one, kv_lora, Split::whole, Sync::replicated},
    {ParamKind::mla_kv_up, "mla_kv_up", kv_up, kv_lora, Split::rows, Sync::sharded},
    // Attention runs over all keys: the indexer is memory and no work.
    {ParamKind::index_q, "index_q", index_q, q_from, Split::whole, Sync::replicated, has_indexer},
    {ParamKind::index_k, "index_k", index_dim, dim::hidden, Split::whole, Sync::replicated,
     has_indexer},
    {ParamKind::index_norm, "index_norm", dim::one, index_dim, Split::whole, Sync::replicated,
     has_indexer},
    {ParamKind::index_norm_bias, "index_norm_bias", dim::one, index_dim, Split::whole,
     Sync::replicated, has_indexer},
    {ParamKind::index_weights, "index_weights", [](D d) { return d.index_heads; }, dim::hidden,
     Split::whole, Sync::replicated, has_indexer}};

constexpr BufferRow kBuffers[] = {
    {Buf::mla_q_down, "mla_q_down", Part::mla, Keep::saved, kKept, kElement, tokens_if_q_latent,
     q_lora},
    {Buf::mla_q_rstd, "mla_q_rstd", Part::mla, Keep::saved, kKept, kStat, tokens_if_q_latent,
     dim::one},
    {Buf::mla_q_latent, "mla_q_latent", Part::mla, Keep::saved, kKept, kElement, tokens_if_q_latent,
     q_lora},
    {Buf::mla_q_gathered, "mla_q_gathered", Part::mla, Keep::wire, kKept, kElement,
     block_if_q_latent_tp, q_lora},
    {Buf::mla_kv_down, "mla_kv_down", Part::mla, Keep::saved, kKept, kElement, dim::tokens,
     kv_down},
    {Buf::mla_kv_rstd, "mla_kv_rstd", Part::mla, Keep::saved, kKept, kStat, dim::tokens, dim::one},
    {Buf::mla_kv_latent, "mla_kv_latent", Part::mla, Keep::saved, kKept, kElement, dim::tokens,
     kv_down},
    {Buf::mla_kv_gathered, "mla_kv_gathered", Part::mla, Keep::wire, kKept, kElement,
     dim::block_if_tp, kv_down},
    {Buf::mla_kv, "mla_kv", Part::mla, Keep::forward, kKept, kElement, dim::block, kv_up},
    {Buf::mla_q, "mla_q", Part::mla, Keep::saved, kKept, kElement, dim::block, q,
     spec::Offload::core_attn, are_sent},
    {Buf::mla_k, "mla_k", Part::mla, Keep::saved, kKept, kElement, dim::block, kv,
     spec::Offload::core_attn, are_sent},
    {Buf::mla_v, "mla_v", Part::mla, Keep::saved, kKept, kElement, dim::block, v,
     spec::Offload::core_attn, are_sent},
    {Buf::mla_q_partial, "mla_q_partial", Part::mla, Keep::backward_wire, kKept, kElement,
     block_if_q_latent_tp, q_lora},
    {Buf::mla_kv_partial, "mla_kv_partial", Part::mla, Keep::backward_wire, kKept, kElement,
     dim::block_if_tp, kv_down},
    {Buf::d_mla_q, "d_mla_q", Part::mla, Keep::backward, kKept, kElement, dim::block, q},
    {Buf::d_mla_k, "d_mla_k", Part::mla, Keep::backward, kKept, kElement, dim::block, kv},
    {Buf::d_mla_v, "d_mla_v", Part::mla, Keep::backward, kKept, kElement, dim::block, v},
    {Buf::d_mla_kv, "d_mla_kv", Part::mla, Keep::backward, kKept, kElement, dim::block, kv_up},
    {Buf::d_mla_q_latent, "d_mla_q_latent", Part::mla, Keep::backward, kKept, kElement,
     tokens_if_q_latent, q_lora},
    {Buf::d_mla_kv_latent, "d_mla_kv_latent", Part::mla, Keep::backward, kKept, kElement,
     dim::tokens, kv_down}};

using spec::GraphScope;

Ref latent_of(D d, const Ref& kv) { return cols(kv, 0, d.kv_lora); }
Ref rotated_of(D d, const Ref& kv) { return cols(kv, d.kv_lora, d.rope_dim); }

void rope(SegmentWriter& w, const Ref& x) {
  w.op(Op::rope, {inout(x), by_token(table(Table::rope_cos)), by_token(table(Table::rope_sin)),
                  table(Table::positions)});
}

void normalize(SegmentWriter& w, const Ref& x, ParamKind kind, const Ref& y, Buf rstd) {
  w.op(Op::mla_latent_norm, {x, weight(kind), out(y), out(rstd)});
}
/// The gradient takes the place of the one that it is made from.
void normalize_backward(SegmentWriter& w, const Ref& x, ParamKind kind, Buf rstd, const Ref& d_y) {
  w.op(Op::mla_latent_norm, {x, weight(kind), in(rstd), d_y, inout(d_y), grad(kind)});
}

/// What queries are made from, on its way from other ranks.
SegmentWriter::Gathered gather_q(SegmentWriter& w) {
  const LayerDims& d = w.dims();
  if (d.q_lora == 0) return w.gather(in(Buf::attn_norm_out), in(Buf::attn_gathered));
  return w.gather(in(Buf::mla_q_latent), in(Buf::mla_q_gathered), d.q_lora);
}
SegmentWriter::Gathered gather_kv(SegmentWriter& w) {
  return w.gather(in(Buf::mla_kv_latent), in(Buf::mla_kv_gathered), kv_down(w.dims()));
}

Segment forward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::mla, false);
  const LayerDims& d = w.dims();
  begin_layer(w);
  w.begin(Part::attn);
  w.begin(Part::mla);
  w.acquire();
  w.open(GraphScope::attn);
  mixer_norm(w);
  if (d.q_lora > 0) {
    w.linear(Op::mla_q_down, in(Buf::attn_norm_out), ParamKind::mla_q_down, out(Buf::mla_q_down));
    normalize(w, in(Buf::mla_q_down), ParamKind::mla_q_norm, in(Buf::mla_q_latent),
              Buf::mla_q_rstd);
  }
  SegmentWriter::Gathered q_input = gather_q(w);
  w.linear(Op::mla_kv_down, in(Buf::attn_norm_out), ParamKind::mla_kv_down, out(Buf::mla_kv_down));
  normalize(w, latent_of(d, in(Buf::mla_kv_down)), ParamKind::mla_kv_norm,
            latent_of(d, in(Buf::mla_kv_latent)), Buf::mla_kv_rstd);
  w.op(Op::kv_pack,
       {rotated_of(d, in(Buf::mla_kv_down)), out(rotated_of(d, in(Buf::mla_kv_latent)))});
  SegmentWriter::Gathered kv_input = gather_kv(w);
  w.linear(Op::mla_q_up, w.arrived(q_input), ParamKind::mla_q_up, out(Buf::mla_q));
  rope(w, in(Buf::mla_q));
  const Ref latents = w.arrived(kv_input);
  w.linear(Op::mla_kv_up, latent_of(d, latents), ParamKind::mla_kv_up, out(Buf::mla_kv));
  rope(w, rotated_of(d, latents));
  w.op(Op::mla_pack, {in(Buf::mla_kv), rotated_of(d, latents), out(Buf::mla_k), out(Buf::mla_v)});
  core_attention_forward(w, context);
  w.row_parallel(Op::o_proj, in(Buf::attn_out), ParamKind::o_proj, in(Buf::attn_partial),
                 mixer_output(d), {Op::attn_residual, in(Buf::input)},
                 w.model().has_attention_output_bias ? weight(ParamKind::o_bias) : nothing());
  w.close(GraphScope::attn);
  w.release();
  w.end(Part::mla);
  w.end(Part::attn);
  end_layer(w);
  return w.finish();
}

void q_backward(SegmentWriter& w, SegmentWriter::Gathered& input) {
  const LayerDims& d = w.dims();
  rope(w, in(Buf::d_mla_q));
  if (d.q_lora == 0) {
    w.column_parallel_backward(Op::mla_q_up, Op::mla_q_up, input, ParamKind::mla_q_up,
                               in(Buf::d_mla_q), in(Buf::attn_partial), out(Buf::d_attn_norm));
    return;
  }
  w.column_parallel_backward(Op::mla_q_up, Op::mla_q_up, input, ParamKind::mla_q_up,
                             in(Buf::d_mla_q), in(Buf::mla_q_partial), out(Buf::d_mla_q_latent),
                             nothing(), d.q_lora);
  normalize_backward(w, in(Buf::mla_q_down), ParamKind::mla_q_norm, Buf::mla_q_rstd,
                     in(Buf::d_mla_q_latent));
  w.linear_backward(Op::mla_q_down, Op::mla_q_down, in(Buf::attn_norm_out), ParamKind::mla_q_down,
                    in(Buf::d_mla_q_latent), out(Buf::d_attn_norm));
}

/// The latent's gradient and that of the rotated part, which all heads share, travel together.
void kv_backward(SegmentWriter& w, SegmentWriter::Gathered& input) {
  const LayerDims& d = w.dims();
  const bool is_split = w.is_tensor_parallel();
  const Ref own = in(Buf::d_mla_kv_latent);
  const Ref share = is_split ? in(Buf::mla_kv_partial) : own;
  w.op(Op::mla_pack,
       {in(Buf::d_mla_k), in(Buf::d_mla_v), out(Buf::d_mla_kv), out(rotated_of(d, share))});
  rope(w, rotated_of(d, share));
  w.op(Op::mla_kv_up, {in(Buf::d_mla_kv), weight(ParamKind::mla_kv_up), out(latent_of(d, share))});
  if (is_split) w.scatter(share, own, kv_down(d));
  w.op(Op::mla_kv_up, Pass::wgrad,
       {in(Buf::d_mla_kv), latent_of(d, w.arrived(input)), grad(ParamKind::mla_kv_up)})
      .accumulate = true;
  if (is_split) w.join(Stream::compute, Stream::tensor);
  normalize_backward(w, latent_of(d, in(Buf::mla_kv_down)), ParamKind::mla_kv_norm,
                     Buf::mla_kv_rstd, latent_of(d, own));
  w.linear_backward(Op::mla_kv_down, Op::mla_kv_down, in(Buf::attn_norm_out),
                    ParamKind::mla_kv_down, own, inout(Buf::d_attn_norm));
}

Segment backward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::mla, true);
  const Ref d_hidden = in(Space::edge, Buf::d_hidden);
  w.begin(Part::attn);
  w.begin(Part::mla);
  w.acquire();
  w.open(GraphScope::attn);
  w.remake({Buf::attn_norm_out});
  SegmentWriter::Gathered dy = w.gather(d_hidden, in(Buf::attn_partial));
  SegmentWriter::Gathered q_input = gather_q(w);
  SegmentWriter::Gathered kv_input = gather_kv(w);
  core_attention_remake(w, context);
  w.row_parallel_backward(
      Op::o_proj, Op::o_bias, in(Buf::attn_out), ParamKind::o_proj, d_hidden, dy,
      out(Buf::d_attn_out),
      w.model().has_attention_output_bias ? grad(ParamKind::o_bias) : nothing());
  core_attention_backward(w, context);
  q_backward(w, q_input);
  kv_backward(w, kv_input);
  mixer_norm_backward(w);
  w.close(GraphScope::attn);
  w.release();
  w.end(Part::mla);
  w.end(Part::attn);
  end_layer_backward(w);
  return w.finish();
}

}  // namespace

Block mla() {
  return {BlockKind::mla,
          forward,
          backward,
          {mixer_params(), kParams, attention_output_params()},
          {mixer_buffers(), kBuffers, core_attention_buffers()}};
}

}  // namespace moetune::plan
