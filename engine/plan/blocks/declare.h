// The words in which blocks declare their parameters and buffers.
#pragma once

#include <optional>

#include "engine/plan/blocks/blocks.h"

namespace moetune::plan {

constexpr std::optional<RecomputeModule> kKept = std::nullopt;
constexpr auto kElement = Content::element;
constexpr auto kStat = Content::stat;
constexpr auto kIndex = Content::index;

using D = const LayerDims&;

/// Sizes that rows of several blocks have.
namespace dim {
inline int64_t one(D) { return 1; }
inline int64_t tokens(D d) { return d.tokens; }
inline int64_t block(D d) { return d.block_tokens; }
inline int64_t block_if_tp(D d) { return d.tp > 1 ? d.block_tokens : 0; }
inline int64_t hidden(D d) { return d.hidden; }
inline int64_t attn(D d) { return d.attn; }
/// What a norm keeps of each row: one over its deviation, and with LayerNorm its mean.
inline int64_t stats(D d) { return d.has_layer_norm ? 2 : 1; }
inline int64_t vocab(D d) { return d.vocab; }
}  // namespace dim

inline bool has_layer_norm(const ModelSpec& model, D) { return model.has_layer_norm; }

}  // namespace moetune::plan
