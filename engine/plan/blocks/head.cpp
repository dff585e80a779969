// Final norm, head and loss; see blocks.h.
#include <algorithm>

#include "engine/plan/blocks/blocks.h"

namespace moetune::plan {

namespace {

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

}  // namespace

// Linear cross-entropy: logits exist for one chunk of tokens at a time, and the gradients with
// respect to the hidden states and the head are taken from them at once, so that nothing of size
// tokens x vocabulary is ever kept.
Segment head_forward(const BlockContext& context) {
  SegmentWriter w(context, BlockKind::head, false);
  const LayerDims& d = w.dims();
  const auto edge = [](Buf buf) { return in(Space::edge, buf); };
  // A tied head on the stage that has the embedding is the embedding.
  const ParamKind head = d.has_own_head ? ParamKind::head : ParamKind::embedding;
  w.begin(Part::head, Space::edge);
  w.begin(Part::grad, Space::edge);
  w.acquire({ParamKind::final_norm, head});
  w.op(Op::final_norm, {edge(Buf::input), weight(ParamKind::final_norm),
                        out(edge(Buf::final_norm_out)), out(edge(Buf::final_norm_rstd))});
  SegmentWriter::Gathered hidden = w.gather(edge(Buf::final_norm_out), edge(Buf::head_gathered));
  const Ref all_x = w.arrived(hidden);
  const Ref all_dx = edge(w.is_tensor_parallel() ? Buf::head_partial : Buf::d_hidden);
  for (int64_t begin = 0; begin < d.block_tokens; begin += d.ce_chunk) {
    const int64_t count = std::min(d.ce_chunk, d.block_tokens - begin);
    const Ref x = rows(all_x, begin, count);
    const Ref dx = rows(all_dx, begin, count);
    const Ref logits = rows(edge(Buf::logits), 0, count);
    const Ref targets = tokens_of(Table::targets, begin, count);
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
  w.op(Op::final_norm, Pass::backward,
       {edge(Buf::input), weight(ParamKind::final_norm), edge(Buf::final_norm_rstd),
        edge(Buf::d_hidden), inout(edge(Buf::d_hidden)), grad(ParamKind::final_norm)});
  w.release({ParamKind::final_norm, head});
  w.end(Part::head, Space::edge);
  w.end_saved(Part::input, Space::edge);
  return w.finish();
}

}  // namespace moetune::plan
