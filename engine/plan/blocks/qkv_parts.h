// Where queries, keys and values lie among attention's buffers.
#pragma once

#include "engine/plan/segment_writer.h"

namespace moetune::plan {

inline Ref q_of(const LayerDims& d, Buf qkv) { return cols(in(qkv), 0, d.q); }
inline Ref k_of(const LayerDims& d, Buf qkv) { return cols(in(qkv), d.q, d.kv); }
inline Ref v_of(const LayerDims& d, Buf qkv) { return cols(in(qkv), d.q + d.kv, d.v); }
inline Ref gate_of(const LayerDims& d, Buf qkv) { return cols(in(qkv), d.q + d.kv + d.v, d.gate); }
inline bool has_latents(const LayerDims& d) { return d.mixer == spec::Mixer::mla; }

/// Queries and keys as rope left them, and values.
inline Ref rotated_q(const LayerDims& d) {
  if (has_latents(d)) return in(Buf::mla_q);
  return d.has_qk_norm ? in(Buf::q_rot) : q_of(d, Buf::qkv);
}
inline Ref rotated_k(const LayerDims& d) {
  if (has_latents(d)) return in(Buf::mla_k);
  return d.has_qk_norm ? in(Buf::k_rot) : k_of(d, Buf::qkv);
}
inline Ref local_v(const LayerDims& d) {
  return has_latents(d) ? in(Buf::mla_v) : v_of(d, Buf::qkv);
}

/// Their gradients.
inline Ref d_q(const LayerDims& d) {
  return has_latents(d) ? in(Buf::d_mla_q) : q_of(d, Buf::d_qkv);
}
inline Ref d_k(const LayerDims& d) {
  return has_latents(d) ? in(Buf::d_mla_k) : k_of(d, Buf::d_qkv);
}
inline Ref d_v(const LayerDims& d) {
  return has_latents(d) ? in(Buf::d_mla_v) : v_of(d, Buf::d_qkv);
}

}  // namespace moetune::plan
