// How one attention call becomes graphs of a library: the key that a graph is kept under, and the
// order in which a backward pass over several segments fills and adds up dk and dv. Free of any
// library, so that it can be tested without a card.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/attention_segments.h"

namespace moetune::kernels::cuda {

/// major.minor.patch of cuDNN's number for its version.
inline std::string cudnn_version_text(int64_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

/// Why that version of cuDNN is not asked for attention; empty when it is. Up to 9.15
/// cudnn-frontend works around an error of the library by a padding mask, wherever the number of
/// keys is not a multiple of 128 (scaled_dot_product_flash_attention.h,
/// has_workaround_padding_mask). Graphs that contain it are known to access illegal memory when
/// they are replayed.
inline std::string why_not_cudnn(int64_t version) {
  constexpr int64_t kFewest = 91600;
  if (version >= kFewest) return {};
  return fmt::format("cuDNN {} is older than {}, which CUDA graphs need",
                     cudnn_version_text(version), cudnn_version_text(kFewest));
}

/// Parts of a workspace begin at multiples of this many bytes.
inline constexpr int64_t kWorkspaceAlignment = 256;

inline int64_t align_workspace(int64_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

/// Everything a graph depends on; the strides are those of rows, in elements.
struct AttentionGraphKey {
  bool is_backward = false;
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t width = 0;  ///< of one head
  int64_t num_queries = 0;
  int64_t num_keys = 0;
  int64_t queries_per_sequence = 0;
  int64_t keys_per_sequence = 0;
  int64_t window = 0;
  double scale = 1.0;
  int64_t ld_q = 0;
  int64_t ld_k = 0;
  int64_t ld_v = 0;
  int64_t ld_out = 0;
  int64_t ld_dout = 0;
  int64_t ld_dq = 0;
  int64_t ld_dk = 0;  ///< dk and dv of a second segment go to packed memory first
  int64_t ld_dv = 0;
  int64_t dk_per_sequence = 0;

  auto operator<=>(const AttentionGraphKey&) const = default;
};

inline AttentionGraphKey graph_key_of(const AttentionArgs& args, const AttentionSegment& segment) {
  return {.batch = args.batch,
          .heads = args.heads,
          .kv_heads = args.kv_heads,
          .width = args.q.cols / args.heads,
          .num_queries = segment.num_rows,
          .num_keys = segment.end_position(),
          .queries_per_sequence = args.q.rows / args.batch,
          .keys_per_sequence = args.k.rows / args.batch,
          .window = args.window >= segment.end_position() ? 0 : args.window,
          .scale = args.scale,
          .ld_q = args.q.ld,
          .ld_k = args.k.ld,
          .ld_v = args.v.ld,
          .ld_out = args.out.ld};
}

/// A backward pass over one segment: the graph's key, and whether dk and dv have to be added to
/// what an earlier segment left there.
struct AttentionBackwardPart {
  AttentionSegment segment;
  AttentionGraphKey key;
  bool is_added = false;

  /// Packed dk (or dv) of the keys this segment sees, over all sequences.
  [[nodiscard]] int64_t packed_bytes() const {
    return is_added ? align_workspace(key.batch * key.num_keys * key.kv_heads * key.width * 2) : 0;
  }
};

/// The segment that sees most keys comes first and writes dk and dv; the others are added.
inline std::vector<AttentionBackwardPart> backward_parts(
    const AttentionBackwardArgs& args, std::span<const AttentionSegment> segments) {
  std::vector<AttentionSegment> ordered(segments.begin(), segments.end());
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return a.end_position() > b.end_position();
  });
  std::vector<AttentionBackwardPart> parts;
  for (const AttentionSegment& segment : ordered) {
    AttentionBackwardPart part{segment, graph_key_of(args.forward, segment), !parts.empty()};
    part.key.is_backward = true;
    part.key.ld_dout = args.dout.ld;
    part.key.ld_dq = args.dq.ld;
    part.key.ld_dk = part.is_added ? part.key.kv_heads * part.key.width : args.dk.ld;
    part.key.ld_dv = part.is_added ? part.key.kv_heads * part.key.width : args.dv.ld;
    part.key.dk_per_sequence = part.is_added ? part.key.num_keys : part.key.keys_per_sequence;
    parts.push_back(part);
  }
  return parts;
}

/// The row statistics in the library's order.
inline int64_t stats_bytes(const AttentionGraphKey& key) {
  return align_workspace(key.batch * key.heads * key.num_queries * int64_t{sizeof(float)});
}

}  // namespace moetune::kernels::cuda
