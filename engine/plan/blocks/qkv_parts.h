// Where queries, keys and values lie among attention's buffers.
#pragma once

#include "engine/plan/segment_writer.h"

namespace moetune::plan {

inline Ref q_of(const LayerDims& d, Buf qkv) { return cols(in(qkv), 0, d.q); }
inline Ref k_of(const LayerDims& d, Buf qkv) { return cols(in(qkv), d.q, d.kv); }
inline Ref v_of(const LayerDims& d, Buf qkv) { return cols(in(qkv), d.q + d.kv, d.kv); }

/// Queries and keys as rope left them.
inline Ref rotated_q(const LayerDims& d) {
  return d.has_qk_norm ? in(Buf::q_rot) : q_of(d, Buf::qkv);
}
inline Ref rotated_k(const LayerDims& d) {
  return d.has_qk_norm ? in(Buf::k_rot) : k_of(d, Buf::qkv);
}

}  // namespace moetune::plan
