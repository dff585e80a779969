// Sums over a routing profile; see received_rows.h.
#include "tuner/received_rows.h"

#include "kernels/base/error.h"

namespace moetune::tuner {

ReceivedRows::ReceivedRows(spec::RoutingProfile profile, const spec::ModelSpec& model,
                           int64_t global_batch_size)
    : profile_(std::move(profile)) {
  int64_t num_moe_layers = 0;
  for (const bool is_moe : model.is_moe_layer) {
    moe_layer_.push_back(is_moe ? num_moe_layers++ : -1);
  }
  MOETUNE_CHECK(profile_.num_layers == num_moe_layers &&
                    profile_.num_experts == model.num_experts &&
                    profile_.num_sequences == global_batch_size,
                "a routing profile of {} layers, {} experts and {} sequences does not belong to a "
                "model of {} and {} trained with batches of {}",
                profile_.num_layers, profile_.num_experts, profile_.num_sequences, num_moe_layers,
                model.num_experts, global_batch_size);
}

const ReceivedRows::Sums& ReceivedRows::sums(int cp, int ep) const {
  const auto [place, is_new] = sums_.try_emplace({cp, ep});
  Sums& sums = place->second;
  if (!is_new) return sums;
  const int64_t num_groups = profile_.num_steps * profile_.num_layers * profile_.num_sequences;
  const int64_t local_experts = profile_.num_experts / ep;
  sums.assign(static_cast<size_t>(num_groups * cp * ep), 0);
  const int64_t num_chunks = 2 * cp;
  const bool has_chunks = cp > 1 && profile_.num_pieces % num_chunks == 0;
  for (int64_t group = 0; group < num_groups; ++group) {
    for (int64_t piece = 0; piece < profile_.num_pieces; ++piece) {
      // Zig-zag: rank r holds the chunks r and 2 cp - 1 - r of 2 cp.
      const int64_t chunk = has_chunks ? piece / (profile_.num_pieces / num_chunks) : 0;
      const int64_t cp_rank = chunk < cp ? chunk : num_chunks - 1 - chunk;
      for (int64_t expert = 0; expert < profile_.num_experts; ++expert) {
        const int64_t at = (group * profile_.num_pieces + piece) * profile_.num_experts + expert;
        sums[static_cast<size_t>((group * cp + cp_rank) * ep + expert / local_experts)] +=
            profile_.counts[static_cast<size_t>(at)];
      }
    }
    if (cp == 1 || has_chunks) continue;
    // The pieces are too coarse: every context rank gets an equal part of the sequence's rows.
    for (int64_t ep_rank = 0; ep_rank < ep; ++ep_rank) {
      const auto first = static_cast<size_t>(group * cp * ep + ep_rank);
      const int64_t part = (sums[first] + cp - 1) / cp;
      for (int64_t r = 0; r < cp; ++r) sums[first + static_cast<size_t>(r * ep)] = part;
    }
  }
  return sums;
}

int64_t ReceivedRows::at(const plan::Layout& layout, const spec::Knobs& knobs, int64_t step,
                         int64_t layer, int64_t micro_batch, int rank) const {
  const Sums& rows = sums(layout.cp, layout.ep);
  const int64_t moe_layer = moe_layer_[static_cast<size_t>(layer)];
  const int plane = layout.stage_size();
  const int first_peer = rank % plane / layout.ep * layout.ep;
  int64_t total = 0;
  for (int peer = first_peer; peer < first_peer + layout.ep; ++peer) {
    for (int64_t slot = 0; slot < knobs.micro_batch_size; ++slot) {
      const int64_t sequence =
          plan::sequence_index(layout, knobs, micro_batch, peer / layout.cp, slot);
      const int64_t group =
          (step * profile_.num_layers + moe_layer) * profile_.num_sequences + sequence;
      total += rows[static_cast<size_t>((group * layout.cp + peer % layout.cp) * layout.ep +
                                        layout.ep_rank(rank))];
    }
  }
  return total;
}

}  // namespace moetune::tuner
