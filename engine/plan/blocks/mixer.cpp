// What the half of a layer that mixes tokens has whatever it is made of: the norm of its input; see
// blocks.h.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/declare.h"

namespace moetune::plan {
namespace {

/// Latents are gathered instead of what they are made from.
int64_t block_if_gathered(D d) { return d.q_lora > 0 ? 0 : dim::block_if_tp(d); }

constexpr ParamRow kParams[] = {
    {ParamKind::attn_norm, "attn_norm", dim::one, dim::hidden, Split::whole, Sync::replicated},
    {ParamKind::attn_norm_bias, "attn_norm_bias", dim::one, dim::hidden, Split::whole,
     Sync::replicated, has_layer_norm}};

constexpr BufferRow kBuffers[] = {
    {Buf::attn_gathered, "attn_gathered", Part::attn, Keep::wire, kKept, kElement,
     block_if_gathered, dim::hidden},
    {Buf::attn_partial, "attn_partial", Part::attn, Keep::wire, kKept, kElement, dim::block_if_tp,
     dim::hidden},
    {Buf::attn_norm_out, "attn_norm_out", Part::attn, Keep::saved, RecomputeModule::norm, kElement,
     dim::tokens, dim::hidden, spec::Offload::qkv_linear},
    {Buf::attn_norm_rstd, "attn_norm_rstd", Part::attn, Keep::saved, kKept, kStat, dim::tokens,
     dim::stats, spec::Offload::attn_norm},
    {Buf::d_attn_norm, "d_attn_norm", Part::attn, Keep::backward, kKept, kElement, dim::tokens,
     dim::hidden}};

}  // namespace

std::span<const ParamRow> mixer_params() { return kParams; }
std::span<const BufferRow> mixer_buffers() { return kBuffers; }

void mixer_norm(SegmentWriter& w) {
  w.norm(Op::attn_norm, in(Buf::input), ParamKind::attn_norm, ParamKind::attn_norm_bias,
         in(Buf::attn_norm_out), in(Buf::attn_norm_rstd));
}

void mixer_norm_backward(SegmentWriter& w) {
  w.norm_backward(Op::attn_norm, in(Buf::input), ParamKind::attn_norm, ParamKind::attn_norm_bias,
                  in(Buf::attn_norm_rstd), in(Buf::d_attn_norm),
                  inout(in(Space::edge, Buf::d_hidden)))
      .accumulate = true;
}

}  // namespace moetune::plan
