// Sums over a routing profile, kept by layout.
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

ReceivedRows::OfRank ReceivedRows::of_rank(const plan::Layout& layout, const spec::Knobs& knobs,
                                           int rank) const {
  // A tensor-parallel rank holds some of a micro-batch's sequences, or a part of one.
  const int64_t sequences = knobs.micro_batch_size;
  OfRank of;
  of.rows_ = this;
  of.layout_ = &layout;
  of.knobs_ = &knobs;
  of.sums_ = &sums(layout, std::max(1, layout.tp / static_cast<int>(sequences)));
  of.own_sequences_ = std::max<int64_t>(1, sequences / layout.tp);
  of.num_members_ = layout.group_size(plan::Group::tp_cp);
  of.ep_rank_ = layout.ep_rank(rank);
  for (const int peer : layout.group_ranks(plan::Group::ep, rank)) {
    of.peers_.push_back({layout.tp_rank(peer) * sequences / layout.tp,
                         layout.rank_in(plan::Group::tp_cp, peer), layout.dp_rank(peer)});
  }
  return of;
}

int64_t ReceivedRows::OfRank::at(int64_t step, int64_t layer, int64_t micro_batch) const {
  const spec::RoutingProfile& profile = rows_->rows_.profile();
  const int64_t moe_layer = rows_->rows_.moe_layer(layer);
  int64_t total = 0;
  for (const Peer& peer : peers_) {
    for (int64_t slot = peer.first_slot; slot < peer.first_slot + own_sequences_; ++slot) {
      const int64_t sequence =
          plan::sequence_index(*layout_, *knobs_, micro_batch, peer.dp_rank, slot);
      const int64_t group =
          (step * profile.num_layers + moe_layer) * profile.num_sequences + sequence;
      const int64_t owner = group * num_members_ + peer.member;
      total += (*sums_)[static_cast<size_t>(owner * layout_->ep + ep_rank_)];
    }
  }
  return total;
}

}  // namespace moetune::tuner
