// Mamba-2 (Dao & Gu 2024, arXiv 2405.21060). Heads of a group share keys and
// queries (B and C), and the norm is of a group's columns.
#include "engine/plan/blocks/blocks.h"
#include "engine/plan/blocks/scan_mixer.h"

namespace moetune::plan {
namespace {

constexpr int64_t kChunk = 128;  ///< tokens, of Megatron-LM's mixer

int64_t proj(D d) { return 2 * d.scan_values + 2 * d.scan_keys + d.scan_heads; }
int64_t own_proj(D d) { return d.own_columns(proj(d)); }
int64_t own_groups(D d) { return d.scan_state > 0 ? d.own_columns(d.scan_keys / d.scan_state) : 0; }
int64_t chunks(D d) { return scan::num_chunks(d, kChunk); }
std::vector<int64_t> conv_parts(D d) { return {d.scan_values, d.scan_keys, d.scan_keys}; }

constexpr ParamRow kParams[] = {
    {ParamKind::mamba_in_proj, "mamba_in_proj", proj, dim::hidden, Split::projections,
     Sync::sharded, nullptr,
     [](D d) -> std::vector<int64_t> {
       return {d.scan_values, d.scan_values, d.scan_keys, d.scan_keys, d.scan_heads};
     }},
    {ParamKind::mamba_conv, "mamba_conv", scan::conv, scan::taps, Split::projections, Sync::sharded,
     nullptr, conv_parts},
    {ParamKind::mamba_conv_bias, "mamba_conv_bias", scan::conv, dim::one, Split::projections,
     Sync::sharded, nullptr, conv_parts},
    {ParamKind::mamba_decay, "mamba_decay", scan::heads, dim::one, Split::rows, Sync::sharded},
    {ParamKind::mamba_dt_bias, "mamba_dt_bias", scan::heads, dim::one, Split::rows, Sync::sharded},
    {ParamKind::mamba_skip, "mamba_skip", scan::heads, dim::one, Split::rows, Sync::sharded},
    {ParamKind::mamba_norm, "mamba_norm", dim::one, scan::values, Split::cols, Sync::sharded},
    {ParamKind::mamba_out_proj, "mamba_out_proj", dim::hidden, scan::values, Split::cols,
     Sync::sharded}};

constexpr BufferRow kBuffers[] = {
    {Buf::mamba_wire, "mamba_wire", Part::mamba, Keep::wire, kKept, kElement, scan::block_if_cp,
     proj},
    {Buf::mamba_proj, "mamba_proj", Part::mamba, Keep::saved, kKept, kElement, scan::all_tokens,
     own_proj},
    {Buf::mamba_conv_out, "mamba_conv_out", Part::mamba, Keep::saved, kKept, kElement,
     scan::all_tokens, scan::own_conv},
    {Buf::mamba_gates, "mamba_gates", Part::mamba, Keep::saved, kKept, kStat, scan::all_tokens,
     scan::own_heads},
    {Buf::mamba_states, "mamba_states", Part::mamba, Keep::both, kKept, kStat, chunks,
     scan::own_state},
    {Buf::mamba_scan_out, "mamba_scan_out", Part::mamba, Keep::saved, kKept, kElement,
     scan::all_tokens, scan::own_values},
    {Buf::mamba_norm_rstd, "mamba_norm_rstd", Part::mamba, Keep::saved, kKept, kStat,
     scan::all_tokens, own_groups},
    {Buf::mamba_norm_wire, "mamba_norm_wire", Part::mamba, Keep::wire, kKept, kElement,
     scan::all_tokens_if_cp, scan::own_values},
    {Buf::mamba_norm_out, "mamba_norm_out", Part::mamba, Keep::saved, RecomputeModule::norm,
     kElement, dim::block, scan::values},
    {Buf::d_mamba_norm_out, "d_mamba_norm_out", Part::mamba, Keep::backward, kKept, kElement,
     dim::block, scan::values},
    {Buf::d_mamba_scan_out, "d_mamba_scan_out", Part::mamba, Keep::backward, kKept, kElement,
     scan::all_tokens, scan::own_values},
    {Buf::d_mamba_gates, "d_mamba_gates", Part::mamba, Keep::backward, kKept, kStat,
     scan::all_tokens, scan::own_heads},
    {Buf::d_mamba_conv_out, "d_mamba_conv_out", Part::mamba, Keep::backward, kKept, kElement,
     scan::all_tokens, scan::own_conv},
    {Buf::d_mamba_proj, "d_mamba_proj", Part::mamba, Keep::backward, kKept, kElement,
     scan::all_tokens, own_proj}};

constexpr ParamKind kConvBias[] = {ParamKind::mamba_conv_bias};
constexpr ParamKind kSkip[] = {ParamKind::mamba_skip};

const ScanMixer& names() {
  static const ScanMixer kNames = {
      .block = BlockKind::mamba,
      .part = Part::mamba,
      .op = {Op::mamba_in_proj, Op::mamba_conv, Op::mamba_gates, Op::mamba_scan, Op::mamba_norm,
             Op::mamba_out_proj},
      .param = {ParamKind::mamba_in_proj, ParamKind::mamba_conv, ParamKind::mamba_decay,
                ParamKind::mamba_dt_bias, ParamKind::mamba_norm, ParamKind::mamba_out_proj},
      .conv_bias = kConvBias,
      .skip = kSkip,
      .buf = {Buf::mamba_wire, Buf::mamba_proj, Buf::mamba_conv_out, Buf::mamba_gates,
              Buf::mamba_states, Buf::mamba_scan_out, Buf::mamba_norm_rstd, Buf::mamba_norm_wire,
              Buf::mamba_norm_out, Buf::d_mamba_norm_out, Buf::d_mamba_scan_out, Buf::d_mamba_gates,
              Buf::d_mamba_conv_out, Buf::d_mamba_proj},
      .chunks = {},
      .conv_at = scan::values,
      .z_at = [](D) { return int64_t{0}; },
      .gates_at = [](D d) { return scan::conv(d) + d.scan_values; },
      .num_gates = scan::heads,
      .proj_cols = proj,
      .values_at = [](D) { return int64_t{0}; },
      .keys_at = scan::values};
  return kNames;
}

Segment forward(const BlockContext& context) { return scan_mixer_forward(context, names()); }
Segment backward(const BlockContext& context) { return scan_mixer_backward(context, names()); }

}  // namespace

Block mamba() {
  return {
      BlockKind::mamba, forward, backward, {mixer_params(), kParams}, {mixer_buffers(), kBuffers}};
}

}  // namespace moetune::plan
