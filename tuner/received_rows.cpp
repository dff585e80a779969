// Sums over a routing profile, kept by layout, and the balanced share where there is none.
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

const ReceivedRows::Sums& ReceivedRows::sums(const plan::Layout& layout, int parts) const {
  const std::vector<int> members = layout.group_ranks(plan::Group::tp_cp, 0);
  const auto num_members = static_cast<int64_t>(members.size());
  const int ep = layout.ep;
  const auto [place, is_new] = sums_.try_emplace({layout.tp, num_members, parts, ep});
  Sums& sums = place->second;
  if (!is_new) return sums;
  const int64_t num_groups = profile_.num_steps * profile_.num_layers * profile_.num_sequences;
  const int64_t local_experts = profile_.num_experts / ep;
  sums.assign(static_cast<size_t>(num_groups * num_members * ep), 0);
  const auto rows_of = [&](int64_t group, int64_t piece, int64_t expert) {
    return profile_.counts[static_cast<size_t>(
        (group * profile_.num_pieces + piece) * profile_.num_experts + expert)];
  };
  const int64_t num_owners = num_members / layout.tp * parts;
  if (!plan::has_local_positions(layout, profile_.num_pieces) ||
      profile_.num_pieces % num_owners != 0) {
    // The pieces are too coarse: every rank gets an equal part of the sequence's rows.
    for (int64_t group = 0; group < num_groups; ++group) {
      for (int64_t ep_rank = 0; ep_rank < ep; ++ep_rank) {
        int64_t total = 0;
        for (int64_t piece = 0; piece < profile_.num_pieces; ++piece) {
          for (int64_t e = 0; e < local_experts; ++e) {
            total += rows_of(group, piece, ep_rank * local_experts + e);
          }
        }
        for (int64_t member = 0; member < num_members; ++member) {
          sums[static_cast<size_t>((group * num_members + member) * ep + ep_rank)] =
              (total + num_owners - 1) / num_owners;
        }
      }
    }
    return sums;
  }
  for (int64_t member = 0; member < num_members; ++member) {
    const int rank = members[static_cast<size_t>(member)];
    const std::vector<int32_t> pieces = plan::local_positions(layout, rank, profile_.num_pieces);
    const auto length = static_cast<int64_t>(pieces.size()) / parts;
    const auto first = pieces.begin() + layout.tp_rank(rank) % parts * length;
    for (int64_t group = 0; group < num_groups; ++group) {
      const int64_t at = (group * num_members + member) * ep;
      std::for_each(first, first + length, [&](int64_t piece) {
        for (int64_t expert = 0; expert < profile_.num_experts; ++expert) {
          sums[static_cast<size_t>(at + expert / local_experts)] += rows_of(group, piece, expert);
        }
      });
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
  const Sums& rows = sums(layout, parts);
  const int64_t num_members = layout.group_size(plan::Group::tp_cp);
  const int64_t moe_layer = moe_layer_[static_cast<size_t>(layer)];
  int64_t total = 0;
  for (const int peer : layout.group_ranks(plan::Group::ep, rank)) {
    const int64_t first_slot = layout.tp_rank(peer) * sequences / layout.tp;
    const int64_t member = layout.rank_in(plan::Group::tp_cp, peer);
    for (int64_t slot = first_slot; slot < first_slot + own_sequences; ++slot) {
      const int64_t sequence =
          plan::sequence_index(layout, knobs, micro_batch, layout.dp_rank(peer), slot);
      const int64_t group =
          (step * profile_.num_layers + moe_layer) * profile_.num_sequences + sequence;
      const int64_t owner = group * num_members + member;
      total += rows[static_cast<size_t>(owner * layout.ep + layout.ep_rank(rank))];
    }
  }
  return total;
}

}  // namespace moetune::tuner
