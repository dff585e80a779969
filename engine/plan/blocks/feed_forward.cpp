// What every feed-forward half has, whatever it is made of: its norm.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/declare.h"

namespace moetune::plan {
namespace {

int64_t block_if_mlp_tp(D d) { return !d.is_moe || d.shared_ffn > 0 ? dim::block_if_tp(d) : 0; }

constexpr ParamRow kParams[] = {
    {ParamKind::mlp_norm, "mlp_norm", dim::one, dim::hidden, Split::whole, Sync::replicated},
    {ParamKind::mlp_norm_bias, "mlp_norm_bias", dim::one, dim::hidden, Split::whole,
     Sync::replicated, has_layer_norm}};

constexpr BufferRow kBuffers[] = {{Buf::mlp_gathered, "mlp_gathered", Part::route, Keep::wire,
                                   kKept, kElement, block_if_mlp_tp, dim::hidden},
                                  {Buf::mlp_partial, "mlp_partial", Part::route, Keep::wire, kKept,
                                   kElement, block_if_mlp_tp, dim::hidden},
                                  {Buf::mlp_norm_out, "mlp_norm_out", Part::route, Keep::saved,
                                   RecomputeModule::norm, kElement, dim::tokens, dim::hidden},
                                  {Buf::mlp_norm_rstd, "mlp_norm_rstd", Part::route, Keep::saved,
                                   kKept, kStat, dim::tokens, dim::stats, spec::Offload::mlp_norm},
                                  {Buf::d_mlp_norm, "d_mlp_norm", Part::route, Keep::backward,
                                   kKept, kElement, dim::tokens, dim::hidden}};

}  // namespace

std::span<const ParamRow> feed_forward_params() { return kParams; }
std::span<const BufferRow> feed_forward_buffers() { return kBuffers; }

void feed_forward_norm(SegmentWriter& w) {
  w.norm(Op::mlp_norm, feed_forward_input(w.dims()), ParamKind::mlp_norm, ParamKind::mlp_norm_bias,
         in(Buf::mlp_norm_out), in(Buf::mlp_norm_rstd));
}

void feed_forward_norm_backward(SegmentWriter& w) {
  w.norm_backward(Op::mlp_norm, feed_forward_input(w.dims()), ParamKind::mlp_norm,
                  ParamKind::mlp_norm_bias, in(Buf::mlp_norm_rstd), in(Buf::d_mlp_norm),
                  inout(in(Space::edge, Buf::d_hidden)))
      .accumulate = true;
}

}  // namespace moetune::plan
