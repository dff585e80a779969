// The block that ends the model: final norm, head and loss, in chunks of tokens.
#include <algorithm>

#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/declare.h"

namespace moetune::plan {

namespace {

constexpr int64_t kCeStats = 3;  // kernels::CrossEntropyStatsArgs
int64_t ce_stats_if_tp(D d) { return d.tp > 1 ? d.ce_chunk : 0; }

constexpr ParamRow kParams[] = {
    {ParamKind::final_norm, "final_norm", dim::one, dim::hidden, Split::whole, Sync::replicated},
    {ParamKind::final_norm_bias, "final_norm_bias", dim::one, dim::hidden, Split::whole,
     Sync::replicated, has_layer_norm}};
constexpr ParamRow kHeadParams[] = {{ParamKind::head, "head", dim::vocab, dim::hidden, Split::rows,
                                     Sync::sharded,
                                     [](const ModelSpec&, D d) { return d.has_own_head; }}};

constexpr BufferRow kBuffers[] = {
    {Buf::final_norm_out, "final_norm_out", Part::head, Keep::forward, kKept, kElement, dim::tokens,
     dim::hidden},
    {Buf::final_norm_rstd, "final_norm_rstd", Part::head, Keep::forward, kKept, kStat, dim::tokens,
     dim::stats},
    {Buf::head_gathered, "head_gathered", Part::head, Keep::wire, kKept, kElement, dim::block_if_tp,
     dim::hidden},
    {Buf::head_partial, "head_partial", Part::head, Keep::wire, kKept, kElement, dim::block_if_tp,
     dim::hidden},
    {Buf::ce_stats, "ce_stats", Part::head, Keep::wire, kKept, kStat, ce_stats_if_tp,
     [](D) { return kCeStats; }},
    {Buf::ce_all_stats, "ce_all_stats", Part::head, Keep::wire, kKept, kStat,
     [](D d) { return d.tp * ce_stats_if_tp(d); }, [](D) { return kCeStats; }},
    {Buf::logits, "logits", Part::head, Keep::forward, kKept, kElement,
     [](D d) { return d.ce_chunk; }, [](D d) { return d.vocab; }}};

/// What the softmax over the whole vocabulary needs to know of the shards of other ranks (Shoeybi
/// et al. 2019, section 3): a few numbers a row instead of the logits.
Ref stats_of_all(SegmentWriter& w, const BlockContext& context, const Ref& logits,
                 const Ref& targets) {
  if (!w.is_tensor_parallel()) return nothing();
  const Ref own = rows(in(Space::edge, Buf::ce_stats), 0, logits.num_rows);
  const Ref all = rows(in(Space::edge, Buf::ce_all_stats), 0, w.dims().tp * logits.num_rows);
  w.op(Op::cross_entropy_stats, Pass::forward, {logits, targets, out(own)});
  w.join(Stream::tensor, Stream::compute);
  w.comm(Op::vocab_gather, spec::CollectiveKind::all_gather,
         all.num_rows * buffer_row(Buf::ce_stats).cols(w.dims()) *
             base::size_of(context.precision.stat),
         {own, out(all)});
  w.join(Stream::compute, Stream::tensor);
  return all;
}

Segment forward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::head, false);
  head_and_loss(
      w, context,
      {ParamKind::final_norm, ParamKind::final_norm_bias,
       tokens_of(Table::targets, 0, context.dims.block_tokens), context.dims.mtp_depth > 0});
  return w.finish();
}

}  // namespace

std::span<const ParamRow> head_params() { return kHeadParams; }
std::span<const BufferRow> head_buffers() { return kBuffers; }

// Linear cross-entropy: logits exist for one chunk of tokens at a time, and the gradients with
// respect to the hidden states and the head are taken from them at once, so that nothing of size
// tokens x vocabulary is ever kept.
void head_and_loss(SegmentWriter& w, const BlockContext& context, const HeadParts& parts) {
  const LayerDims& d = w.dims();
  const auto edge = [](Buf buf) { return in(Space::edge, buf); };
  // A tied head on the stage that has the embedding is the embedding.
  const ParamKind head = d.has_own_head ? ParamKind::head : ParamKind::embedding;
  const std::span<const ParamRow> tied =
      d.has_own_head ? std::span<const ParamRow>{} : block_of(BlockKind::embedding).params.front();
  w.begin(Part::head, Space::edge);
  w.begin(Part::grad, Space::edge);
  w.acquire(tied);
  w.norm(Op::final_norm, edge(Buf::input), parts.norm, parts.norm_bias, edge(Buf::final_norm_out),
         edge(Buf::final_norm_rstd));
  SegmentWriter::Gathered hidden = w.gather(edge(Buf::final_norm_out), edge(Buf::head_gathered));
  const Ref all_x = w.arrived(hidden);
  const Ref all_dx = edge(w.is_tensor_parallel() ? Buf::head_partial : Buf::d_hidden);
  for (int64_t begin = 0; begin < d.block_tokens; begin += d.ce_chunk) {
    const int64_t count = std::min(d.ce_chunk, d.block_tokens - begin);
    const Ref x = rows(all_x, begin, count);
    const Ref dx = rows(all_dx, begin, count);
    const Ref logits = rows(edge(Buf::logits), 0, count);
    Ref targets = parts.targets;
    targets.row = begin;
    targets.num_rows = count;
    w.op(Op::lm_head, Pass::forward, {x, weight(head), out(logits)});
    w.mark(Mark::observe_logits).refs = {logits, targets};
    w.op(Op::cross_entropy, Pass::forward,
         {inout(logits), targets, scalar(Scalar::loss), stats_of_all(w, context, logits, targets)});
    w.op(Op::lm_head, Pass::backward, {logits, weight(head), out(dx)});
    w.op(Op::lm_head, Pass::wgrad, {logits, x, grad(head)}).accumulate = true;
  }
  if (w.is_tensor_parallel()) {
    w.scatter(all_dx, edge(Buf::d_hidden));
    w.join(Stream::compute, Stream::tensor);
  }
  w.norm_backward(Op::final_norm, edge(Buf::input), parts.norm, parts.norm_bias,
                  edge(Buf::final_norm_rstd), edge(Buf::d_hidden), inout(edge(Buf::d_hidden)));
  w.release(tied);
  w.end(Part::head, Space::edge);
  if (!parts.is_joined) w.end_saved(Part::input, Space::edge);
}

Block head() { return {BlockKind::head, forward, nullptr, {kParams, kHeadParams}, {kBuffers}}; }

}  // namespace moetune::plan
