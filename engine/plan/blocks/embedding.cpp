// The block at the borders of a virtual stage: tokens or received rows go in, rows to send come
// out.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/declare.h"

namespace moetune::plan {
namespace {

int64_t tokens_between_halves(D d) {
  return d.mixer != spec::Mixer::none && d.has_feed_forward ? d.tokens : 0;
}

constexpr ParamRow kParams[] = {
    {ParamKind::embedding, "embedding", dim::vocab, dim::hidden, Split::rows, Sync::sharded}};
constexpr ParamRow kPositionParams[] = {
    {ParamKind::position_embedding, "position_embedding", [](D d) { return d.learned_positions; },
     dim::hidden, Split::whole, Sync::replicated,
     [](const ModelSpec& m, D) { return m.has_learned_positions; }}};

constexpr BufferRow kBuffers[] = {{Buf::embed_partial, "embed_partial", Part::embed, Keep::wire,
                                   kKept, kElement, dim::block_if_tp, dim::hidden}};

// The residual stream at the borders of layers and stages.
constexpr BufferRow kBorderBuffers[] = {
    {Buf::input, "input", Part::input, Keep::saved, kKept, kElement, dim::tokens, dim::hidden,
     spec::Offload::attn_norm},
    {Buf::mid, "mid", Part::block, Keep::saved, kKept, kElement, tokens_between_halves, dim::hidden,
     spec::Offload::mlp_norm},
    {Buf::d_hidden, "d_hidden", Part::grad, Keep::saved, kKept, kElement, dim::tokens,
     dim::hidden}};

Ref d_hidden() { return in(Space::edge, Buf::d_hidden); }
Ref output() { return in(Space::edge, Buf::input); }
int16_t tag_of(const Border& border, bool is_backward) {
  return static_cast<int16_t>(2 * border.number + (is_backward ? 1 : 0));
}
Ref tokens(const LayerDims& d) { return tokens_of(Table::tokens, 0, d.block_tokens); }
/// Of the rank's own tokens.
Ref positions(const LayerDims& d) { return rows(table(Table::positions), 0, d.tokens); }

Segment forward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::embedding, false);
  w.begin(Part::input);
  w.begin(Part::embed);
  w.acquire();
  const bool is_split = w.is_tensor_parallel();
  w.op(Op::embed, {by_token(weight(ParamKind::embedding)), tokens(w.dims()),
                   out(is_split ? in(Buf::embed_partial) : in(Buf::input))});
  if (is_split) {
    w.scatter(in(Buf::embed_partial), in(Buf::input));
    w.join(Stream::compute, Stream::tensor);
  }
  if (w.model().has_learned_positions) {
    w.op(Op::embed_positions,
         {by_token(weight(ParamKind::position_embedding)), positions(w.dims()), inout(Buf::input)});
  }
  w.release();
  w.end(Part::embed);
  return w.finish();
}

Segment backward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::embedding, true);
  w.begin(Part::embed, Space::edge);
  w.acquire();
  SegmentWriter::Gathered dy = w.gather(d_hidden(), in(Space::edge, Buf::embed_partial));
  w.op(Op::embed, {by_token(grad(ParamKind::embedding)), tokens(w.dims()), w.arrived(dy)});
  if (w.model().has_learned_positions) {
    w.op(Op::embed_positions,
         {by_token(grad(ParamKind::position_embedding)), positions(w.dims()), d_hidden()});
  }
  w.release();
  w.end(Part::embed, Space::edge);
  w.end_saved(Part::grad, Space::edge);
  return w.finish();
}

}  // namespace

Block embedding() {
  return {BlockKind::embedding, forward, backward, {kParams, kPositionParams}, {kBuffers}};
}

Block residual() { return {BlockKind::stage, nullptr, nullptr, {}, {kBorderBuffers}}; }

Segment receive_forward(const BlockContext& context, const Border& border) {
  SegmentWriter w(context, BlockKind::stage, false);
  w.begin(Part::input);
  w.join_for_reuse(Stream::pipeline_recv, Stream::compute);
  w.message(Verb::recv, Op::pp_recv, border.peer, out(Buf::input)).tag = tag_of(border, false);
  w.join(Stream::compute, Stream::pipeline_recv);
  return w.finish();
}

Segment send_forward(const BlockContext& context, const Border& border) {
  SegmentWriter w(context, BlockKind::stage, false);
  w.join(Stream::pipeline_send, Stream::compute);
  w.message(Verb::send, Op::pp_send, border.peer, output()).tag = tag_of(border, false);
  w.join_for_slot(Stream::compute, Stream::pipeline_send);
  w.end_saved(Part::input, Space::edge);
  return w.finish();
}

Segment receive_backward(const BlockContext& context, const Border& border) {
  SegmentWriter w(context, BlockKind::stage, true);
  w.begin(Part::grad, Space::edge);
  w.join_for_reuse(Stream::pipeline_recv, Stream::compute);
  w.message(Verb::recv, Op::pp_recv, border.peer, out(d_hidden())).tag = tag_of(border, true);
  w.join(Stream::compute, Stream::pipeline_recv);
  return w.finish();
}

Segment send_backward(const BlockContext& context, const Border& border) {
  SegmentWriter w(context, BlockKind::stage, true);
  w.join(Stream::pipeline_send, Stream::compute);
  w.message(Verb::send, Op::pp_send, border.peer, d_hidden()).tag = tag_of(border, true);
  w.join_for_slot(Stream::compute, Stream::pipeline_send);
  w.end_saved(Part::grad, Space::edge);
  return w.finish();
}

}  // namespace moetune::plan
