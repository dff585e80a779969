// Multi-token prediction. Each depth goes on from the end of the stream before it,
// where its first buffers lie: the model's own, or that of the depth before.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/declare.h"

namespace moetune::plan {
namespace {

int64_t hidden2(D d) { return 2 * d.hidden; }
/// Of the projection's rows those of one tensor-parallel rank.
int64_t split(D d) { return d.hidden / d.tp; }

constexpr ParamRow kParams[] = {
    {ParamKind::mtp_embed_norm, "mtp_embed_norm", dim::one, dim::hidden, Split::whole,
     Sync::replicated},
    {ParamKind::mtp_embed_norm_bias, "mtp_embed_norm_bias", dim::one, dim::hidden, Split::whole,
     Sync::replicated, has_layer_norm},
    {ParamKind::mtp_hidden_norm, "mtp_hidden_norm", dim::one, dim::hidden, Split::whole,
     Sync::replicated},
    {ParamKind::mtp_hidden_norm_bias, "mtp_hidden_norm_bias", dim::one, dim::hidden, Split::whole,
     Sync::replicated, has_layer_norm},
    {ParamKind::mtp_proj, "mtp_proj", split, hidden2, Split::rows, Sync::sharded}};

constexpr ParamRow kHeadParams[] = {
    {ParamKind::mtp_final_norm, "mtp_final_norm", dim::one, dim::hidden, Split::whole,
     Sync::replicated},
    {ParamKind::mtp_final_norm_bias, "mtp_final_norm_bias", dim::one, dim::hidden, Split::whole,
     Sync::replicated, has_layer_norm}};

constexpr BufferRow kBuffers[] = {
    {Buf::mtp_embed_partial, "mtp_embed_partial", Part::mtp, Keep::wire, kKept, kElement,
     dim::block_if_tp, dim::hidden},
    {Buf::mtp_embed, "mtp_embed", Part::mtp, Keep::saved, kKept, kElement, dim::tokens,
     dim::hidden},
    {Buf::mtp_embed_rstd, "mtp_embed_rstd", Part::mtp, Keep::saved, kKept, kStat, dim::tokens,
     dim::stats},
    {Buf::mtp_hidden_rstd, "mtp_hidden_rstd", Part::mtp, Keep::saved, kKept, kStat, dim::tokens,
     dim::stats},
    {Buf::mtp_concat, "mtp_concat", Part::mtp, Keep::saved, kKept, kElement, dim::tokens, hidden2},
    {Buf::mtp_gathered, "mtp_gathered", Part::mtp, Keep::wire, kKept, kElement, dim::block_if_tp,
     hidden2},
    {Buf::mtp_split, "mtp_split", Part::mtp, Keep::wire, kKept, kElement, dim::block_if_tp, split},
    {Buf::mtp_joined, "mtp_joined", Part::mtp, Keep::wire, kKept, kElement, dim::block_if_tp,
     dim::hidden},
    {Buf::mtp_partial, "mtp_partial", Part::mtp, Keep::backward_wire, kKept, kElement,
     dim::block_if_tp, hidden2},
    {Buf::d_mtp_concat, "d_mtp_concat", Part::mtp, Keep::backward, kKept, kElement, dim::tokens,
     hidden2},
    {Buf::d_mtp_embed, "d_mtp_embed", Part::mtp, Keep::backward, kKept, kElement, dim::tokens,
     dim::hidden}};

using spec::CollectiveKind;

/// The embedding's table, or the head where that is its copy.
ParamKind embedding_kind(const BlockContext& context) {
  const bool is_copy = context.model.ties_embeddings && context.dims.has_own_head;
  return is_copy ? ParamKind::head : ParamKind::embedding;
}

std::span<const ParamRow> row_of(ParamKind kind) { return {&param_row(kind), 1}; }

/// The tokens that a depth predicts are further by one than those of the depth before, where the
/// model itself is the first.
Ref predicted(const LayerDims& d, int64_t depth) {
  if (depth == 0) return tokens_of(Table::targets, 0, d.block_tokens);
  return cols(tokens_of(Table::mtp_targets, 0, d.block_tokens), depth - 1, 1);
}

Ref embed_half(D d, Buf concat) { return cols(in(concat), 0, d.hidden); }
Ref hidden_half(D d, Buf concat) { return cols(in(concat), d.hidden, d.hidden); }

/// The projection of both halves, of which each tensor-parallel rank has some columns of all
/// tokens, as the layers' input: all columns of the rank's own tokens.
void project(SegmentWriter& w, const BlockContext& context, const Ref& output) {
  const LayerDims& d = w.dims();
  SegmentWriter::Gathered x = w.gather(in(Buf::mtp_concat), in(Buf::mtp_gathered), hidden2(d));
  const Ref all = w.arrived(x);
  if (!w.is_tensor_parallel()) {
    w.linear(Op::mtp_proj, all, ParamKind::mtp_proj, out(output));
    return;
  }
  w.linear(Op::mtp_proj, all, ParamKind::mtp_proj, out(Buf::mtp_split));
  w.join(Stream::tensor, Stream::compute);
  w.comm(Op::tp_gather, CollectiveKind::all_gather,
         d.block_tokens * d.hidden * base::size_of(context.precision.element),
         {in(Buf::mtp_split), out(Buf::mtp_joined)});
  w.join(Stream::compute, Stream::tensor);
  w.op(Op::mtp_slice, {rows(in(Buf::mtp_joined), d.tp_rank * d.tokens, d.tokens), out(output)});
}

}  // namespace

Segment mtp_forward(const BlockContext& context, const MtpDepth& depth) {
  SegmentWriter w(context, BlockKind::mtp, false);
  const LayerDims& d = w.dims();
  const ParamKind embedding = embedding_kind(context);
  const bool is_split = w.is_tensor_parallel();
  w.begin(Part::input, Space::next);
  w.begin(Part::mtp);
  w.acquire(row_of(embedding));
  w.op(Op::embed, {by_token(weight(embedding)), predicted(d, depth.number),
                   out(is_split ? Buf::mtp_embed_partial : Buf::mtp_embed)});
  if (is_split) w.scatter(in(Buf::mtp_embed_partial), in(Buf::mtp_embed));
  w.norm(Op::mtp_norm, in(Buf::input), ParamKind::mtp_hidden_norm, ParamKind::mtp_hidden_norm_bias,
         hidden_half(d, Buf::mtp_concat), in(Buf::mtp_hidden_rstd));
  if (is_split) w.join(Stream::compute, Stream::tensor);
  w.norm(Op::mtp_norm, in(Buf::mtp_embed), ParamKind::mtp_embed_norm,
         ParamKind::mtp_embed_norm_bias, embed_half(d, Buf::mtp_concat), in(Buf::mtp_embed_rstd));
  project(w, context, in(Space::next, Buf::input));
  w.release(row_of(embedding));
  w.end(Part::mtp);
  return w.finish();
}

Segment mtp_backward(const BlockContext& context, const MtpDepth& depth) {
  SegmentWriter w(context, BlockKind::mtp, true);
  const LayerDims& d = w.dims();
  const ParamKind embedding = embedding_kind(context);
  const Ref d_output = in(Space::edge, Buf::d_hidden);
  w.begin(Part::mtp);
  w.acquire(row_of(embedding));
  SegmentWriter::Gathered dy = w.gather(d_output, in(Buf::mtp_joined));
  SegmentWriter::Gathered x = w.gather(in(Buf::mtp_concat), in(Buf::mtp_gathered), hidden2(d));
  Ref own_cols = w.arrived(dy);
  if (w.is_tensor_parallel()) own_cols = cols(own_cols, d.tp_rank * split(d), split(d));
  w.column_parallel_backward(Op::mtp_proj, Op::mtp_proj, x, ParamKind::mtp_proj, own_cols,
                             in(Buf::mtp_partial), out(Buf::d_mtp_concat), nothing(), hidden2(d));
  w.norm_backward(Op::mtp_norm, in(Buf::mtp_embed), ParamKind::mtp_embed_norm,
                  ParamKind::mtp_embed_norm_bias, in(Buf::mtp_embed_rstd),
                  embed_half(d, Buf::d_mtp_concat), out(Buf::d_mtp_embed));
  SegmentWriter::Gathered d_embed = w.gather(in(Buf::d_mtp_embed), in(Buf::mtp_embed_partial));
  // The stream goes on from here, and its own head has begun its gradient.
  w.norm_backward(Op::mtp_norm, in(Buf::input), ParamKind::mtp_hidden_norm,
                  ParamKind::mtp_hidden_norm_bias, in(Buf::mtp_hidden_rstd),
                  hidden_half(d, Buf::d_mtp_concat), inout(Buf::d_hidden))
      .accumulate = true;
  w.op(Op::embed, {by_token(grad(embedding)), predicted(d, depth.number), w.arrived(d_embed)});
  w.release(row_of(embedding));
  w.end(Part::mtp);
  w.end_saved(Part::mtp);
  w.end_saved(Part::input);
  w.end_saved(Part::grad, Space::edge);
  return w.finish();
}

Segment mtp_head_forward(const BlockContext& context, const MtpDepth& depth) {
  SegmentWriter w(context, BlockKind::mtp_head, false);
  head_and_loss(w, context,
                {ParamKind::mtp_final_norm, ParamKind::mtp_final_norm_bias,
                 predicted(w.dims(), depth.number + 1), !depth.is_last});
  return w.finish();
}

Block mtp() { return {BlockKind::mtp, nullptr, nullptr, {kParams}, {kBuffers}}; }

Block mtp_head() {
  return {BlockKind::mtp_head, nullptr, nullptr, {kHeadParams, head_params()}, {head_buffers()}};
}

}  // namespace moetune::plan
