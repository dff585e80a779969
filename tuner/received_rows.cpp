// Sums over a routing profile; see received_rows.h.
#include "tuner/received_rows.h"

#include <algorithm>

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

const ReceivedRows::Sums& ReceivedRows::sums(int cp, int parts, int ep) const {
  const auto [place, is_new] = sums_.try_emplace({cp, parts, ep});
  Sums& sums = place->second;
  if (!is_new) return sums;
  const int64_t num_groups = profile_.num_steps * profile_.num_layers * profile_.num_sequences;
  const int64_t local_experts = profile_.num_experts / ep;
  const int64_t num_owners = int64_t{cp} * parts;
  sums.assign(static_cast<size_t>(num_groups * num_owners * ep), 0);
  const int64_t num_chunks = cp > 1 ? 2 * cp : 1;
  const int64_t num_local = profile_.num_pieces / cp;
  const bool is_fine = profile_.num_pieces % num_chunks == 0 && num_local % parts == 0;
  const int64_t chunk_pieces = is_fine ? profile_.num_pieces / num_chunks : 1;
  // Zig-zag: rank r holds the chunks r and 2 cp - 1 - r of 2 cp, one after the other.
  const auto owner_of = [&](int64_t piece) {
    if (!is_fine) return int64_t{0};
    const int64_t chunk = piece / chunk_pieces;
    const bool is_second = chunk >= cp;
    const int64_t cp_rank = is_second ? num_chunks - 1 - chunk : chunk;
    const int64_t local = (is_second ? chunk_pieces : 0) + piece % chunk_pieces;
    return cp_rank * parts + local * parts / num_local;
  };
  for (int64_t group = 0; group < num_groups; ++group) {
    for (int64_t piece = 0; piece < profile_.num_pieces; ++piece) {
      const int64_t owner = group * num_owners + owner_of(piece);
      for (int64_t expert = 0; expert < profile_.num_experts; ++expert) {
        const int64_t at = (group * profile_.num_pieces + piece) * profile_.num_experts + expert;
        sums[static_cast<size_t>(owner * ep + expert / local_experts)] +=
            profile_.counts[static_cast<size_t>(at)];
      }
    }
    if (is_fine) continue;
    // The pieces are too coarse: every rank gets an equal part of the sequence's rows.
    for (int64_t ep_rank = 0; ep_rank < ep; ++ep_rank) {
      const auto first = static_cast<size_t>(group * num_owners * ep + ep_rank);
      const int64_t part = (sums[first] + num_owners - 1) / num_owners;
      for (int64_t r = 0; r < num_owners; ++r) sums[first + static_cast<size_t>(r * ep)] = part;
    }
  }
  return sums;
}

int64_t ReceivedRows::at(const plan::Layout& layout, const spec::Knobs& knobs, int64_t step,
                         int64_t layer, int64_t micro_batch, int rank) const {
  // A tensor-parallel rank holds some of a micro-batch's sequences, or a part of one.
  const int64_t sequences = knobs.micro_batch_size;
  const int parts = std::max(1, layout.tp / static_cast<int>(sequences));
  const int64_t own_sequences = std::max<int64_t>(1, sequences / layout.tp);
  const Sums& rows = sums(layout.cp, parts, layout.ep);
  const int64_t moe_layer = moe_layer_[static_cast<size_t>(layer)];
  int64_t total = 0;
  for (const int peer : layout.group_ranks(plan::Group::ep, rank)) {
    const int64_t first_slot = layout.tp_rank(peer) * sequences / layout.tp;
    const int64_t part = layout.tp_rank(peer) % parts;
    for (int64_t slot = first_slot; slot < first_slot + own_sequences; ++slot) {
      const int64_t sequence =
          plan::sequence_index(layout, knobs, micro_batch, layout.dp_rank(peer), slot);
      const int64_t group =
          (step * profile_.num_layers + moe_layer) * profile_.num_sequences + sequence;
      const int64_t owner = (group * layout.cp + layout.cp_rank(peer)) * parts + part;
      total += rows[static_cast<size_t>(owner * layout.ep + layout.ep_rank(rank))];
    }
  }
  return total;
}

}  // namespace moetune::tuner
