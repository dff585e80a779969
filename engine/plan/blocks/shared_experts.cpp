// The experts that every token passes: a gated MLP beside the routed ones, with the layer's
// residual.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/declare.h"

namespace moetune::plan {
namespace {

int64_t block_if_shared(D d) { return d.is_moe && d.shared_ffn > 0 ? d.block_tokens : 0; }
bool has_shared(const ModelSpec& model, D) { return model.shared_ffn_size > 0; }

constexpr ParamRow kParams[] = {
    {ParamKind::shared_fc1, "shared_fc1", [](D d) { return 2 * d.shared_ffn; }, dim::hidden,
     Split::halves, Sync::sharded, has_shared},
    {ParamKind::shared_fc2, "shared_fc2", dim::hidden, [](D d) { return d.shared_ffn; },
     Split::cols, Sync::sharded, has_shared}};

constexpr BufferRow kBuffers[] = {
    {Buf::shared_fc1, "shared_fc1", Part::route, Keep::saved, kKept, kElement, block_if_shared,
     [](D d) { return 2 * d.shared_ffn; }},
    {Buf::shared_act, "shared_act", Part::route, Keep::saved, RecomputeModule::moe_act, kElement,
     block_if_shared, [](D d) { return d.shared_ffn; }},
    {Buf::d_shared_act, "d_shared_act", Part::route, Keep::backward, kKept, kElement,
     block_if_shared, [](D d) { return d.shared_ffn; }},
    {Buf::d_shared_fc1, "d_shared_fc1", Part::route, Keep::backward, kKept, kElement,
     block_if_shared, [](D d) { return 2 * d.shared_ffn; }}};

}  // namespace

std::span<const ParamRow> shared_experts_params() { return kParams; }
std::span<const BufferRow> shared_experts_buffers() { return kBuffers; }

void shared_experts_forward(SegmentWriter& w) {
  SegmentWriter::Gathered x = w.gather(in(Buf::mlp_norm_out), in(Buf::mlp_gathered));
  w.linear(Op::shared_fc1, w.arrived(x), ParamKind::shared_fc1, out(Buf::shared_fc1));
  w.op(Op::shared_act, {in(Buf::shared_fc1), out(Buf::shared_act)});
  w.row_parallel(Op::shared_fc2, in(Buf::shared_act), ParamKind::shared_fc2, in(Buf::mlp_partial),
                 in(Space::next, Buf::input), {Op::ffn_residual, in(Buf::mid)});
}

void shared_experts_backward(SegmentWriter& w) {
  const Ref d_hidden = in(Space::edge, Buf::d_hidden);
  SegmentWriter::Gathered dy = w.gather(d_hidden, in(Buf::mlp_partial));
  SegmentWriter::Gathered x = w.gather(in(Buf::mlp_norm_out), in(Buf::mlp_gathered));
  w.remake({Buf::shared_act});
  w.row_parallel_backward(Op::shared_fc2, Op::shared_fc2, in(Buf::shared_act),
                          ParamKind::shared_fc2, d_hidden, dy, out(Buf::d_shared_act));
  w.op(Op::shared_act, {in(Buf::shared_fc1), in(Buf::d_shared_act), out(Buf::d_shared_fc1)});
  w.column_parallel_backward(Op::shared_fc1, Op::shared_fc1, x, ParamKind::shared_fc1,
                             in(Buf::d_shared_fc1), in(Buf::mlp_partial), inout(Buf::d_mlp_norm));
}

}  // namespace moetune::plan
