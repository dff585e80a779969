// The experts that every token passes: a gated MLP beside the routed ones, with the layer's
// residual.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/declare.h"

namespace moetune::plan {
namespace {

int64_t block_if_shared(D d) { return d.is_moe && d.shared_ffn > 0 ? d.block_tokens : 0; }
int64_t tokens_if_gated(D d) { return d.has_shared_gate && block_if_shared(d) > 0 ? d.tokens : 0; }
int64_t fc1(D d) { return d.fc1_halves * d.shared_ffn; }
bool has_shared(const ModelSpec& model, D) { return model.shared_ffn_size > 0; }
bool has_gate(const ModelSpec& model, D d) { return has_shared(model, d) && d.has_shared_gate; }

constexpr ParamRow kParams[] = {
    {ParamKind::shared_fc1, "shared_fc1", fc1, dim::hidden, Split::halves, Sync::sharded,
     has_shared},
    {ParamKind::shared_fc2, "shared_fc2", dim::hidden, [](D d) { return d.shared_ffn; },
     Split::cols, Sync::sharded, has_shared},
    {ParamKind::shared_gate, "shared_gate", dim::one, dim::hidden, Split::whole, Sync::replicated,
     has_gate}};

constexpr BufferRow kBuffers[] = {
    {Buf::shared_fc1, "shared_fc1", Part::route, Keep::saved, kKept, kElement, block_if_shared,
     fc1},
    {Buf::shared_act, "shared_act", Part::route, Keep::saved, RecomputeModule::moe_act, kElement,
     block_if_shared, [](D d) { return d.shared_ffn; }},
    {Buf::shared_out, "shared_out", Part::route, Keep::saved, kKept, kElement, tokens_if_gated,
     dim::hidden},
    {Buf::shared_gate, "shared_gate", Part::route, Keep::saved, kKept, kElement, tokens_if_gated,
     dim::one},
    {Buf::d_shared_gate, "d_shared_gate", Part::route, Keep::backward, kKept, kElement,
     tokens_if_gated, dim::one},
    {Buf::d_shared_out, "d_shared_out", Part::route, Keep::backward, kKept, kElement,
     tokens_if_gated, dim::hidden},
    {Buf::d_shared_act, "d_shared_act", Part::route, Keep::backward, kKept, kElement,
     block_if_shared, [](D d) { return d.shared_ffn; }},
    {Buf::d_shared_fc1, "d_shared_fc1", Part::route, Keep::backward, kKept, kElement,
     block_if_shared, fc1}};

/// The experts' output by itself, and the layer's from it.
void write_gated(SegmentWriter& w) {
  const Ref partial = w.is_tensor_parallel() ? in(Buf::mlp_partial) : in(Buf::shared_out);
  w.linear(Op::shared_fc2, in(Buf::shared_act), ParamKind::shared_fc2, out(partial));
  if (w.is_tensor_parallel()) w.scatter(partial, in(Buf::shared_out));
  w.linear(Op::shared_gate, in(Buf::mlp_norm_out), ParamKind::shared_gate, out(Buf::shared_gate));
  if (w.is_tensor_parallel()) w.join(Stream::compute, Stream::tensor);
  const Ref output = in(Space::next, Buf::input);
  w.op(Op::ffn_residual, {feed_forward_input(w.dims()), out(output)});
  w.op(Op::shared_scale, {in(Buf::shared_out), in(Buf::shared_gate), inout(output)});
}

}  // namespace

std::span<const ParamRow> shared_experts_params() { return kParams; }
std::span<const BufferRow> shared_experts_buffers() { return kBuffers; }

void shared_experts_forward(SegmentWriter& w) {
  SegmentWriter::Gathered x = w.gather(in(Buf::mlp_norm_out), in(Buf::mlp_gathered));
  w.linear(Op::shared_fc1, w.arrived(x), ParamKind::shared_fc1, out(Buf::shared_fc1));
  w.op(Op::shared_act, {in(Buf::shared_fc1), out(Buf::shared_act)});
  if (w.dims().has_shared_gate) return write_gated(w);
  w.row_parallel(Op::shared_fc2, in(Buf::shared_act), ParamKind::shared_fc2, in(Buf::mlp_partial),
                 in(Space::next, Buf::input), {Op::ffn_residual, feed_forward_input(w.dims())});
}

void shared_experts_backward(SegmentWriter& w) {
  const bool has_gate = w.dims().has_shared_gate;
  const Ref d_hidden = in(Space::edge, Buf::d_hidden);
  const Ref d_out = has_gate ? in(Buf::d_shared_out) : d_hidden;
  if (has_gate) {
    w.op(Op::shared_scale, {d_hidden, in(Buf::shared_out), in(Buf::shared_gate),
                            out(Buf::d_shared_out), out(Buf::d_shared_gate)});
  }
  SegmentWriter::Gathered dy = w.gather(d_out, in(Buf::mlp_partial));
  SegmentWriter::Gathered x = w.gather(in(Buf::mlp_norm_out), in(Buf::mlp_gathered));
  w.remake({Buf::shared_act});
  w.row_parallel_backward(Op::shared_fc2, Op::shared_fc2, in(Buf::shared_act),
                          ParamKind::shared_fc2, d_out, dy, out(Buf::d_shared_act));
  w.op(Op::shared_act, {in(Buf::shared_fc1), in(Buf::d_shared_act), out(Buf::d_shared_fc1)});
  w.column_parallel_backward(Op::shared_fc1, Op::shared_fc1, x, ParamKind::shared_fc1,
                             in(Buf::d_shared_fc1), in(Buf::mlp_partial), inout(Buf::d_mlp_norm));
  if (has_gate) {
    w.linear_backward(Op::shared_gate, Op::shared_gate, in(Buf::mlp_norm_out),
                      ParamKind::shared_gate, in(Buf::d_shared_gate), inout(Buf::d_mlp_norm));
  }
}

}  // namespace moetune::plan
