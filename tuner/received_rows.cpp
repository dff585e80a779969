// Sums over a routing profile, kept by layout, and the balanced share where there is none.
#include "tuner/received_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace moetune::tuner {

ReceivedRows::ReceivedRows(spec::RoutingProfile profile, const spec::ModelSpec& model,
                           const spec::TrainingSpec& training)
    : rows_(std::move(profile), model, training) {}

const ReceivedRows::Sums& ReceivedRows::sums(const plan::Layout& layout, int parts) const {
  const std::vector<int> members = layout.group_ranks(plan::Group::tp_cp, 0);
  const auto num_members = static_cast<int64_t>(members.size());
  const int ep = layout.ep;
  const auto [place, is_new] = sums_.try_emplace({layout.tp, num_members, parts, ep});
  Sums& sums = place->second;
  if (!is_new) return sums;
  const spec::RoutingProfile& profile = rows_.profile();
  const int64_t local_experts = profile.num_experts / ep;
  const int64_t length = rows_.local_tokens(layout) / parts;
  sums.reserve(static_cast<size_t>(profile.num_steps * profile.num_layers * profile.num_sequences *
                                   num_members * ep));
  std::vector<int64_t> by_expert(static_cast<size_t>(profile.num_experts));
  for (int64_t step = 0; step < profile.num_steps; ++step) {
    for (int64_t layer = 0; layer < profile.num_layers; ++layer) {
      for (int64_t sequence = 0; sequence < profile.num_sequences; ++sequence) {
        for (const int member : members) {
          const int64_t first = layout.tp_rank(member) % parts * length;
          std::ranges::fill(by_expert, 0);
          rows_.add(layout, member, step, layer, sequence, first, first + length, by_expert);
          for (auto own = by_expert.begin(); own != by_expert.end(); own += local_experts) {
            sums.push_back(std::accumulate(own, own + local_experts, int64_t{0}));
          }
        }
      }
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
  const spec::RoutingProfile& profile = rows_.profile();
  const Sums& rows = sums(layout, parts);
  const int64_t num_members = layout.group_size(plan::Group::tp_cp);
  const int64_t moe_layer = rows_.moe_layer(layer);
  int64_t total = 0;
  for (const int peer : layout.group_ranks(plan::Group::ep, rank)) {
    const int64_t first_slot = layout.tp_rank(peer) * sequences / layout.tp;
    const int64_t member = layout.rank_in(plan::Group::tp_cp, peer);
    for (int64_t slot = first_slot; slot < first_slot + own_sequences; ++slot) {
      const int64_t sequence =
          plan::sequence_index(layout, knobs, micro_batch, layout.dp_rank(peer), slot);
      const int64_t group =
          (step * profile.num_layers + moe_layer) * profile.num_sequences + sequence;
      const int64_t owner = group * num_members + member;
      total += rows[static_cast<size_t>(owner * layout.ep + layout.ep_rank(rank))];
    }
  }
  return total;
}

}  // namespace moetune::tuner
