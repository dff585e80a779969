// Softmax attention of the rank's queries, whoever has the keys: the rank itself, or the ranks of
// its context-parallel group, gathered or passed around a ring. Or these ranks exchange heads, and
// each has all queries and keys of some.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/declare.h"
#include "engine/plan/blocks/qkv_parts.h"

namespace moetune::plan {
namespace {

int64_t keys_and_values(D d) { return d.kv + d.v; }
int64_t heads(D d) { return d.heads; }
int64_t context_if_gathered(D d) { return d.is_gathered() ? d.context_tokens : 0; }
int64_t block_if_ring(D d) { return d.is_ring ? d.block_tokens : 0; }
int64_t block_if_keys_travel(D d) { return d.is_gathered() || d.is_ring ? d.block_tokens : 0; }
int64_t block_if_exchanged(D d) { return d.exchanges_heads ? d.block_tokens : 0; }
int64_t context_if_exchanged(D d) { return d.exchanges_heads ? d.context_tokens : 0; }
int64_t qkv(D d) { return d.q + d.kv + d.v; }
int64_t own_qkv(D d) { return d.own_columns(qkv(d)); }
int64_t own_attn(D d) { return d.own_columns(d.attn); }
/// Queries of a rank, and how many heads each has there.
int64_t queries(D d) { return d.exchanges_heads ? d.context_tokens : d.block_tokens; }
int64_t heads_of_query(D d) { return d.exchanges_heads ? d.own_columns(d.heads) : d.heads; }

constexpr BufferRow kBuffers[] = {
    {Buf::kv_local, "kv_local", Part::attn, Keep::wire, kKept, kElement, block_if_keys_travel,
     keys_and_values},
    {Buf::kv_gathered, "kv_gathered", Part::attn, Keep::wire, kKept, kElement, context_if_gathered,
     keys_and_values},
    {Buf::kv_full, "kv_full", Part::attn, Keep::both, kKept, kElement, context_if_gathered,
     keys_and_values},
    {Buf::kv_ring, "kv_ring", Part::attn, Keep::wire, kKept, kElement, block_if_ring,
     keys_and_values},
    {Buf::d_kv_local, "d_kv_local", Part::attn, Keep::backward_wire, kKept, kElement, block_if_ring,
     keys_and_values},
    {Buf::d_kv_ring, "d_kv_ring", Part::attn, Keep::backward_wire, kKept, kElement, block_if_ring,
     keys_and_values},
    {Buf::part_out, "part_out", Part::attn, Keep::both, kKept, kElement, block_if_ring, dim::attn},
    {Buf::part_lse, "part_lse", Part::attn, Keep::both, kKept, kStat, block_if_ring, heads},
    {Buf::by_tokens, "by_tokens", Part::attn, Keep::wire, kKept, kElement, block_if_exchanged, qkv},
    {Buf::by_heads, "by_heads", Part::attn, Keep::wire, kKept, kElement, context_if_exchanged,
     own_qkv},
    {Buf::qkv_heads, "qkv_heads", Part::attn, Keep::saved, kKept, kElement, context_if_exchanged,
     own_qkv, spec::Offload::core_attn},
    {Buf::attn_out_heads, "attn_out_heads", Part::attn, Keep::saved, RecomputeModule::core_attn,
     kElement, context_if_exchanged, own_attn},
    {Buf::d_attn_out_heads, "d_attn_out_heads", Part::attn, Keep::backward, kKept, kElement,
     context_if_exchanged, own_attn},
    {Buf::d_qkv_heads, "d_qkv_heads", Part::attn, Keep::backward, kKept, kElement,
     context_if_exchanged, own_qkv},
    {Buf::attn_out, "attn_out", Part::attn, Keep::saved, RecomputeModule::core_attn, kElement,
     dim::block, dim::attn, spec::Offload::attn_proj},
    {Buf::attn_lse, "attn_lse", Part::attn, Keep::saved, RecomputeModule::core_attn, kStat, queries,
     heads_of_query},
    {Buf::d_attn_out, "d_attn_out", Part::attn, Keep::backward, kKept, kElement, dim::block,
     dim::attn}};

constexpr ParamRow kOutputParams[] = {
    {ParamKind::o_proj, "o_proj", dim::hidden, dim::attn, Split::cols, Sync::sharded},
    {ParamKind::o_bias, "o_bias", dim::one, dim::hidden, Split::whole, Sync::replicated,
     [](const ModelSpec& m, D) { return m.has_attention_output_bias; }}};

using spec::CollectiveKind;

/// Sinks take part once, also where keys come block by block.
void add_sinks(const SegmentWriter& w, Instr& instr, const Ref& sinks) {
  if (!w.model().has_attention_sinks || has_latents(w.dims())) return;
  // A ring's keys are told by the last operand.
  instr.refs.insert(instr.refs.end() - 1, sinks);
}

/// Where each query of a sequence sits.
Ref positions_of(const LayerDims& d) {
  return rows(table(Table::positions), 0, d.block_tokens / d.sequences);
}

void pack_kv(SegmentWriter& w) {
  const LayerDims& d = w.dims();
  w.op(Op::kv_pack, {rotated_k(d), out(cols(in(Buf::kv_local), 0, d.kv))});
  w.op(Op::kv_pack, {local_v(d), out(cols(in(Buf::kv_local), d.kv, d.v))});
}

void unpack_d_kv(SegmentWriter& w, Buf from) {
  const LayerDims& d = w.dims();
  w.op(Op::kv_pack, {cols(in(from), 0, d.kv), out(d_k(d))});
  w.op(Op::kv_pack, {cols(in(from), d.kv, d.v), out(d_v(d))});
}

/// Bytes of keys and values of so many tokens.
int64_t kv_bytes(const BlockContext& context, int64_t tokens) {
  return tokens * keys_and_values(context.dims) * base::size_of(context.precision.element);
}

// Gathered: rows of a context-parallel rank lie sequence by sequence; gathered they lie rank by
// rank and are brought into position order, so that causal attention sees contiguous keys.
void gather_kv(SegmentWriter& w, const BlockContext& context) {
  pack_kv(w);
  w.join(Stream::context, Stream::compute);
  w.comm(Op::kv_gather, CollectiveKind::all_gather, kv_bytes(context, context.dims.context_tokens),
         {in(Buf::kv_local), out(Buf::kv_gathered)});
  w.join(Stream::compute, Stream::context);
  w.op(Op::kv_reorder, {in(Buf::kv_gathered), table(Table::kv_order), out(Buf::kv_full)});
}

Ref keys_of(const LayerDims& d) {
  return d.is_gathered() ? cols(in(Buf::kv_full), 0, d.kv) : rotated_k(d);
}
Ref values_of(const LayerDims& d) {
  return d.is_gathered() ? cols(in(Buf::kv_full), d.kv, d.v) : local_v(d);
}

// Ring attention (Liu et al. 2023): at step s the rank has the keys of the rank s places before it,
// and while attention runs on them they travel on to the next one. Two blocks are there at a time.
Buf kv_block(int64_t step) { return step % 2 == 0 ? Buf::kv_local : Buf::kv_ring; }
Buf d_kv_block(int64_t step) { return step % 2 == 0 ? Buf::d_kv_local : Buf::d_kv_ring; }

/// Where the keys that have come by step `step` sit.
Ref key_positions(const LayerDims& d, int64_t step) {
  return index_row(table(Table::ring_positions), (d.cp_rank + d.cp - step) % d.cp);
}

void shift(SegmentWriter& w, const BlockContext& context, Buf from, Buf to) {
  w.join(Stream::context, Stream::compute);
  w.comm(Op::kv_shift, CollectiveKind::ring_shift, kv_bytes(context, context.dims.block_tokens),
         {in(from), out(to)});
}

void ring_forward(SegmentWriter& w, const BlockContext& context) {
  const LayerDims& d = w.dims();
  pack_kv(w);
  for (int64_t step = 0; step < d.cp; ++step) {
    const Ref block = in(kv_block(step));
    if (step > 0) w.join(Stream::compute, Stream::context);
    if (step + 1 < d.cp) shift(w, context, kv_block(step), kv_block(step + 1));
    Instr& part = w.op(Op::core_attn, {rotated_q(d), cols(block, 0, d.kv), cols(block, d.kv, d.v),
                                       out(step == 0 ? Buf::attn_out : Buf::part_out),
                                       out(step == 0 ? Buf::attn_lse : Buf::part_lse),
                                       positions_of(d), key_positions(d, step)});
    if (step == 0) {
      add_sinks(w, part, weight(ParamKind::attn_sinks));
      continue;
    }
    w.op(Op::attn_merge,
         {inout(Buf::attn_out), inout(Buf::attn_lse), in(Buf::part_out), in(Buf::part_lse)});
  }
}

/// A block's gradients travel with it: each rank adds its part, and after the last step they come
/// home.
void ring_backward(SegmentWriter& w, const BlockContext& context) {
  const LayerDims& d = w.dims();
  pack_kv(w);
  for (int64_t step = 0; step < d.cp; ++step) {
    const bool is_first = step == 0;
    const Ref block = in(kv_block(step));
    const Ref d_block = in(d_kv_block(step));
    const auto changed = [&](const Ref& ref) { return is_first ? out(ref) : inout(ref); };
    if (!is_first) w.join(Stream::compute, Stream::context);
    if (step + 1 < d.cp) shift(w, context, kv_block(step), kv_block(step + 1));
    Instr& part =
        w.op(Op::core_attn, {rotated_q(d), cols(block, 0, d.kv), cols(block, d.kv, d.v),
                             in(Buf::attn_out), in(Buf::attn_lse), positions_of(d),
                             in(Buf::d_attn_out), changed(d_q(d)), changed(cols(d_block, 0, d.kv)),
                             changed(cols(d_block, d.kv, d.v)), key_positions(d, step)});
    part.accumulate = !is_first;
    if (is_first) add_sinks(w, part, grad(ParamKind::attn_sinks));
    shift(w, context, d_kv_block(step), d_kv_block(step + 1));
  }
  w.join(Stream::compute, Stream::context);
  unpack_d_kv(w, d_kv_block(d.cp));
}

// Heads exchanged (DeepSpeed-Ulysses, Jacobs et al. 2023, arXiv 2309.14509): what a rank has of its
// own tokens goes to those who have the heads, and attention's output comes back. What arrives lies
// rank by rank and is brought into position order, as gathered keys are.
void to_heads(SegmentWriter& w, int64_t columns, const Ref& ordered) {
  const LayerDims& d = w.dims();
  const Ref arrived = cols(in(Buf::by_heads), 0, d.own_columns(columns));
  w.exchange(Op::head_exchange, columns, cols(in(Buf::by_tokens), 0, columns), arrived);
  w.op(Op::kv_reorder, {arrived, table(Table::kv_order), out(ordered)});
}
void to_tokens(SegmentWriter& w, int64_t columns, const Ref& ordered) {
  const LayerDims& d = w.dims();
  const Ref leaving = cols(in(Buf::by_heads), 0, d.own_columns(columns));
  w.op(Op::kv_reorder, {ordered, table(Table::kv_inverse), out(leaving)});
  w.exchange(Op::head_exchange, columns, leaving, cols(in(Buf::by_tokens), 0, columns));
}

/// Queries, keys or values of the rank's heads.
struct OfHeads {
  Ref q, k, v;
};
OfHeads of_heads(const LayerDims& d, Buf qkv) {
  const int64_t q = d.own_columns(d.q);
  const int64_t k = d.own_columns(d.kv);
  return {cols(in(qkv), 0, q), cols(in(qkv), q, k), cols(in(qkv), q + k, d.own_columns(d.v))};
}

/// From what all of its tokens have of the rank's heads to what the rank's tokens have of all
/// heads.
void attend_by_heads(SegmentWriter& w) {
  const LayerDims& d = w.dims();
  const auto [q, k, v] = of_heads(d, Buf::qkv_heads);
  Instr& attention =
      w.op(Op::core_attn, {q, k, v, out(Buf::attn_out_heads), out(Buf::attn_lse), nothing()});
  add_sinks(w, attention, weight(ParamKind::attn_sinks));
  to_tokens(w, d.attn, in(Buf::attn_out_heads));
  w.op(Op::kv_pack, {cols(in(Buf::by_tokens), 0, d.attn), out(Buf::attn_out)});
}

void exchanged_forward(SegmentWriter& w) {
  const LayerDims& d = w.dims();
  w.op(Op::kv_pack, {rotated_q(d), out(cols(in(Buf::by_tokens), 0, d.q))});
  w.op(Op::kv_pack, {rotated_k(d), out(cols(in(Buf::by_tokens), d.q, d.kv))});
  w.op(Op::kv_pack, {local_v(d), out(cols(in(Buf::by_tokens), d.q + d.kv, d.v))});
  to_heads(w, qkv(d), in(Buf::qkv_heads));
  attend_by_heads(w);
}

void exchanged_backward(SegmentWriter& w) {
  const LayerDims& d = w.dims();
  w.op(Op::kv_pack, {in(Buf::d_attn_out), out(cols(in(Buf::by_tokens), 0, d.attn))});
  to_heads(w, d.attn, in(Buf::d_attn_out_heads));
  const auto [q, k, v] = of_heads(d, Buf::qkv_heads);
  const auto [dq, dk, dv] = of_heads(d, Buf::d_qkv_heads);
  Instr& attention =
      w.op(Op::core_attn, {q, k, v, in(Buf::attn_out_heads), in(Buf::attn_lse), nothing(),
                           in(Buf::d_attn_out_heads), out(dq), out(dk), out(dv)});
  add_sinks(w, attention, grad(ParamKind::attn_sinks));
  to_tokens(w, qkv(d), in(Buf::d_qkv_heads));
  w.op(Op::kv_pack, {cols(in(Buf::by_tokens), 0, d.q), out(d_q(d))});
  w.op(Op::kv_pack, {cols(in(Buf::by_tokens), d.q, d.kv), out(d_k(d))});
  w.op(Op::kv_pack, {cols(in(Buf::by_tokens), d.q + d.kv, d.v), out(d_v(d))});
}

}  // namespace

std::span<const BufferRow> core_attention_buffers() { return kBuffers; }
std::span<const ParamRow> attention_output_params() { return kOutputParams; }

void core_attention_forward(SegmentWriter& w, const BlockContext& context) {
  const LayerDims& d = w.dims();
  if (d.is_ring) return ring_forward(w, context);
  if (d.exchanges_heads) return exchanged_forward(w);
  if (d.is_gathered()) gather_kv(w, context);
  Instr& attention = w.op(Op::core_attn, {rotated_q(d), keys_of(d), values_of(d),
                                          out(Buf::attn_out), out(Buf::attn_lse), positions_of(d)});
  add_sinks(w, attention, weight(ParamKind::attn_sinks));
}

void core_attention_remake(SegmentWriter& w, const BlockContext& context) {
  if (w.dims().is_ring) {
    w.begin_remake(Buf::attn_out);
    ring_forward(w, context);
    w.end_remake();
    return;
  }
  if (w.dims().exchanges_heads) {
    w.begin_remake(Buf::attn_out);
    attend_by_heads(w);
    w.end_remake();
    return;
  }
  if (w.dims().is_gathered()) gather_kv(w, context);
  w.remake({Buf::attn_out});
}

void core_attention_backward(SegmentWriter& w, const BlockContext& context) {
  const LayerDims& d = w.dims();
  if (d.is_ring) return ring_backward(w, context);
  if (d.exchanges_heads) return exchanged_backward(w);
  // The gradients of all keys go where the gathered keys have been.
  const bool is_gathered = d.is_gathered();
  Instr& attention =
      w.op(Op::core_attn, {rotated_q(d), keys_of(d), values_of(d), in(Buf::attn_out),
                           in(Buf::attn_lse), positions_of(d), in(Buf::d_attn_out), out(d_q(d)),
                           out(is_gathered ? cols(in(Buf::kv_gathered), 0, d.kv) : d_k(d)),
                           out(is_gathered ? cols(in(Buf::kv_gathered), d.kv, d.v) : d_v(d))});
  add_sinks(w, attention, grad(ParamKind::attn_sinks));
  if (!is_gathered) return;
  w.op(Op::kv_reorder, {in(Buf::kv_gathered), table(Table::kv_inverse), out(Buf::kv_full)});
  w.join(Stream::context, Stream::compute);
  w.comm(Op::kv_gather, CollectiveKind::reduce_scatter,
         kv_bytes(context, context.dims.context_tokens), {in(Buf::kv_full), out(Buf::kv_local)});
  w.join(Stream::compute, Stream::context);
  unpack_d_kv(w, Buf::kv_local);
}

}  // namespace moetune::plan
