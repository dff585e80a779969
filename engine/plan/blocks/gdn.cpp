// Gated DeltaNet (Yang, Kautz & Hatamizadeh 2024, arXiv 2412.06464), in the form of Qwen3-Next; see
// scan_mixer.h. A key head serves several value heads.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/scan_mixer.h"

namespace moetune::plan {
namespace {

constexpr int64_t kChunk = 64;  ///< tokens, of flash-linear-attention's kernels

int64_t num_gates(D d) { return 2 * d.scan_heads; }
int64_t proj(D d) { return 2 * d.scan_keys + 2 * d.scan_values + num_gates(d); }
int64_t own_proj(D d) { return d.own_columns(proj(d)); }
int64_t own_gates(D d) { return d.own_columns(num_gates(d)); }
int64_t head_dim(D d) { return d.scan_head_dim; }
int64_t chunks(D d) { return scan::num_chunks(d, kChunk); }

constexpr ParamRow kParams[] = {
    {ParamKind::gdn_in_proj, "gdn_in_proj", proj, dim::hidden, Split::projections, Sync::sharded,
     nullptr,
     [](D d) -> std::vector<int64_t> {
       return {d.scan_keys, d.scan_keys, d.scan_values, d.scan_values, d.scan_heads, d.scan_heads};
     }},
    {ParamKind::gdn_conv, "gdn_conv", scan::conv, scan::taps, Split::projections, Sync::sharded,
     nullptr,
     [](D d) -> std::vector<int64_t> {
       return {d.scan_keys, d.scan_keys, d.scan_values};
     }},
    {ParamKind::gdn_decay, "gdn_decay", scan::heads, dim::one, Split::rows, Sync::sharded},
    {ParamKind::gdn_dt_bias, "gdn_dt_bias", scan::heads, dim::one, Split::rows, Sync::sharded},
    {ParamKind::gdn_norm, "gdn_norm", dim::one, head_dim, Split::whole, Sync::replicated},
    {ParamKind::gdn_out_proj, "gdn_out_proj", dim::hidden, scan::values, Split::cols,
     Sync::sharded}};

constexpr BufferRow kBuffers[] = {
    {Buf::gdn_wire, "gdn_wire", Part::gdn, Keep::wire, kKept, kElement, scan::block_if_cp, proj},
    {Buf::gdn_proj, "gdn_proj", Part::gdn, Keep::saved, kKept, kElement, scan::all_tokens,
     own_proj},
    {Buf::gdn_conv_out, "gdn_conv_out", Part::gdn, Keep::saved, kKept, kElement, scan::all_tokens,
     scan::own_conv},
    {Buf::gdn_gates, "gdn_gates", Part::gdn, Keep::saved, kKept, kStat, scan::all_tokens,
     own_gates},
    {Buf::gdn_chunks, "gdn_chunks", Part::gdn, Keep::saved, kKept, kElement, scan::all_tokens,
     [](D d) { return kChunk * scan::own_heads(d); }},
    {Buf::gdn_states, "gdn_states", Part::gdn, Keep::both, kKept, kElement, chunks,
     scan::own_state},
    {Buf::gdn_scan_out, "gdn_scan_out", Part::gdn, Keep::saved, kKept, kElement, scan::all_tokens,
     scan::own_values},
    {Buf::gdn_norm_rstd, "gdn_norm_rstd", Part::gdn, Keep::saved, kKept, kStat, scan::all_tokens,
     scan::own_heads},
    {Buf::gdn_norm_wire, "gdn_norm_wire", Part::gdn, Keep::wire, kKept, kElement,
     scan::all_tokens_if_cp, scan::own_values},
    {Buf::gdn_norm_out, "gdn_norm_out", Part::gdn, Keep::saved, RecomputeModule::norm, kElement,
     dim::block, scan::values},
    {Buf::d_gdn_norm_out, "d_gdn_norm_out", Part::gdn, Keep::backward, kKept, kElement, dim::block,
     scan::values},
    {Buf::d_gdn_scan_out, "d_gdn_scan_out", Part::gdn, Keep::backward, kKept, kElement,
     scan::all_tokens, scan::own_values},
    {Buf::d_gdn_gates, "d_gdn_gates", Part::gdn, Keep::backward, kKept, kStat, scan::all_tokens,
     own_gates},
    {Buf::d_gdn_conv_out, "d_gdn_conv_out", Part::gdn, Keep::backward, kKept, kElement,
     scan::all_tokens, scan::own_conv},
    {Buf::d_gdn_proj, "d_gdn_proj", Part::gdn, Keep::backward, kKept, kElement, scan::all_tokens,
     own_proj}};

constexpr Buf kChunks[] = {Buf::gdn_chunks};

const ScanMixer& names() {
  static const ScanMixer kNames = {
      .block = BlockKind::gdn,
      .part = Part::gdn,
      .op = {Op::gdn_in_proj, Op::gdn_conv, Op::gdn_gates, Op::gdn_scan, Op::gdn_norm,
             Op::gdn_out_proj},
      .param = {ParamKind::gdn_in_proj, ParamKind::gdn_conv, ParamKind::gdn_decay,
                ParamKind::gdn_dt_bias, ParamKind::gdn_norm, ParamKind::gdn_out_proj},
      .conv_bias = {},
      .skip = {},
      .buf = {Buf::gdn_wire, Buf::gdn_proj, Buf::gdn_conv_out, Buf::gdn_gates, Buf::gdn_states,
              Buf::gdn_scan_out, Buf::gdn_norm_rstd, Buf::gdn_norm_wire, Buf::gdn_norm_out,
              Buf::d_gdn_norm_out, Buf::d_gdn_scan_out, Buf::d_gdn_gates, Buf::d_gdn_conv_out,
              Buf::d_gdn_proj},
      .chunks = kChunks,
      .conv_at = [](D) { return int64_t{0}; },
      .z_at = scan::conv,
      .gates_at = [](D d) { return scan::conv(d) + d.scan_values; },
      .num_gates = num_gates,
      .proj_cols = proj,
      .values_at = [](D d) { return 2 * d.scan_keys; },
      .keys_at = [](D) { return int64_t{0}; }};
  return kNames;
}

Segment forward(const BlockContext& context) { return scan_mixer_forward(context, names()); }
Segment backward(const BlockContext& context) { return scan_mixer_backward(context, names()); }

}  // namespace

Block gdn() {
  return {
      BlockKind::gdn, forward, backward, {mixer_params(), kParams}, {mixer_buffers(), kBuffers}};
}

}  // namespace moetune::plan
