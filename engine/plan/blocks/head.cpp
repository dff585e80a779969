// Final norm, head and loss; see blocks.h.
#include <algorithm>

#include "engine/plan/blocks/blocks.h"

namespace moetune::plan {

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
  for (int64_t begin = 0; begin < d.tokens; begin += d.ce_chunk) {
    const int64_t count = std::min(d.ce_chunk, d.tokens - begin);
    const Ref x = rows(edge(Buf::final_norm_out), begin, count);
    const Ref dx = rows(edge(Buf::d_hidden), begin, count);
    const Ref logits = rows(edge(Buf::logits), 0, count);
    w.op(Op::lm_head, Pass::forward, {x, weight(head), out(logits)});
    w.mark(Mark::observe_logits).refs = {logits, tokens_of(Table::targets, begin, count)};
    w.op(Op::cross_entropy, Pass::forward,
         {inout(logits), tokens_of(Table::targets, begin, count), scalar(Scalar::loss)});
    w.op(Op::lm_head, Pass::backward, {logits, weight(head), out(dx)});
    w.op(Op::lm_head, Pass::wgrad, {logits, x, grad(head)}).accumulate = true;
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
