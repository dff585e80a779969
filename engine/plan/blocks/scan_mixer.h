// What Gated DeltaNet and Mamba-2 have in common: projections, a causal convolution along the
// sequence, a scan that carries a state, a gated norm, an output projection. Each of the two blocks
// has its own names in it.
#pragma once

#include <algorithm>
#include <span>

#include "engine/plan/blocks/declare.h"

namespace moetune::plan {

/// The names of one of the two.
struct ScanMixer {
  BlockKind block;
  Part part;
  struct {
    Op in_proj, conv, gates, scan, norm, out_proj;
  } op;
  struct {
    ParamKind in_proj, conv, decay, dt_bias, norm, out_proj;
  } param;
  std::span<const ParamKind> conv_bias;  ///< of the convolution, or none
  std::span<const ParamKind> skip;       ///< what the scan adds of its input, or none
  struct {
    Buf wire, proj, conv_out, gates, states, scan_out, norm_rstd, norm_wire, norm_out;
    Buf d_norm_out, d_scan_out, d_gates, d_conv_out, d_proj;
  } buf;
  std::span<const Buf> chunks;  ///< what the scan keeps of each chunk, or nothing
  /// Where the columns lie in the projections, one tensor-parallel rank's: what the convolution
  /// reads, the output's gate, what the scan's gates are made of.
  int64_t (*conv_at)(const LayerDims&);
  int64_t (*z_at)(const LayerDims&);
  int64_t (*gates_at)(const LayerDims&);
  int64_t (*num_gates)(const LayerDims&);
  int64_t (*proj_cols)(const LayerDims&);
  /// Of the convolution's output: where values begin, and keys and queries.
  int64_t (*values_at)(const LayerDims&);
  int64_t (*keys_at)(const LayerDims&);
};

Segment scan_mixer_forward(const BlockContext& context, const ScanMixer& mixer);
Segment scan_mixer_backward(const BlockContext& context, const ScanMixer& mixer);

/// Sizes of rows, each of one tensor-parallel rank. Between the projections context-parallel ranks
/// have all tokens and a share of the heads.
namespace scan {
inline int64_t keys(D d) { return d.scan_keys; }
inline int64_t values(D d) { return d.scan_values; }
inline int64_t heads(D d) { return d.scan_heads; }
inline int64_t conv(D d) { return 2 * d.scan_keys + d.scan_values; }
inline int64_t taps(D d) { return d.conv_kernel; }
inline int64_t own_values(D d) { return d.own_columns(d.scan_values); }
inline int64_t own_heads(D d) { return d.own_columns(d.scan_heads); }
inline int64_t own_conv(D d) { return d.own_columns(conv(d)); }
inline int64_t all_tokens(D d) { return d.context_tokens; }
inline int64_t block_if_cp(D d) { return d.is_shared() ? d.block_tokens : 0; }
inline int64_t all_tokens_if_cp(D d) { return d.is_shared() ? d.context_tokens : 0; }
/// Chunks of that many tokens, those of each sequence rounded up.
inline int64_t num_chunks(D d, int64_t tokens) {
  const int64_t seq_length = d.context_tokens / std::max<int64_t>(d.sequences, 1);
  return d.sequences * ((seq_length + tokens - 1) / tokens);
}
inline int64_t own_state(D d) { return own_values(d) * d.scan_state; }
}  // namespace scan

}  // namespace moetune::plan
