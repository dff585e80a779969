// Deals the rows of a profile's pieces out to tokens, and counts them by source rank, chunk and
// expert.
#include "tuner/profile_bindings.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"

namespace moetune::tuner {

ProfileBindings::ProfileBindings(spec::RoutingProfile profile, const spec::TrialSpec& trial,
                                 int rank)
    : rows_(std::move(profile), trial.model, trial.training),
      knobs_(trial.knobs),
      layout_(plan::layout_of(trial.knobs)),
      rank_(rank) {
  if (rows_.profile().is_empty()) throw base::Error("a routing profile without a row");
  for (int64_t layer = 0; layer < trial.model.num_layers; ++layer) {
    dims_.push_back(plan::layer_dims(trial.model, trial.knobs, trial.training.seq_length, layer));
  }
  check_counts(trial.model.experts_per_token, trial.training.seq_length);
}

/// Each token of a piece chooses `topk` different experts.
void ProfileBindings::check_counts(int64_t topk, int64_t seq_length) const {
  const spec::RoutingProfile& profile = rows_.profile();
  const int64_t piece_tokens = seq_length / profile.num_pieces;
  for (auto piece = profile.counts.begin(); piece != profile.counts.end();
       piece += profile.num_experts) {
    const auto end = piece + profile.num_experts;
    const int64_t sum = std::accumulate(piece, end, int64_t{0});
    const int64_t most = *std::max_element(piece, end);
    if (sum == piece_tokens * topk && most <= piece_tokens) continue;
    throw base::Error(fmt::format(
        "a routing profile has {} rows for a piece of {} tokens, of which one expert gets {}; "
        "expected {} for each token and none twice to an expert",
        sum, piece_tokens, most, topk));
  }
}

const plan::Route& ProfileBindings::at(int64_t layer, int64_t micro_batch) const {
  const int64_t num_micro_batches =
      plan::num_micro_batches(layout_, knobs_, rows_.profile().num_sequences);
  MOETUNE_CHECK(rows_.moe_layer(layer) >= 0 && micro_batch < num_micro_batches,
                "rows of layer {}, micro-batch {} of {}", layer, micro_batch, num_micro_batches);
  const auto [place, is_new] = routes_.try_emplace({layer, micro_batch});
  if (is_new) {
    const plan::LayerDims& dims = dims_[static_cast<size_t>(layer)];
    place->second = dims.expert_ranks == 1
                        ? plan::local_route(dims)
                        : plan::make_route(dims, layout_.rank_in(plan::Group::ep, rank_),
                                           counts_of(layer, micro_batch));
  }
  return place->second;
}

std::vector<int32_t> ProfileBindings::counts_of(int64_t layer, int64_t micro_batch) const {
  const plan::LayerDims& dims = dims_[static_cast<size_t>(layer)];
  const int64_t num_chunks = dims.chunks_forward + dims.chunks_backward;
  std::vector<int32_t> counts(
      static_cast<size_t>(dims.expert_ranks * num_chunks * dims.expert_slices()));
  const auto num_slices = static_cast<size_t>(dims.expert_slices());
  std::span<int32_t> chunk_counts = counts;
  std::vector<int64_t> by_expert(static_cast<size_t>(dims.experts));
  const int64_t num_local = rows_.local_tokens(layout_);
  for (const int source : layout_.group_ranks(plan::Group::ep, rank_)) {
    for (const int64_t num_of_direction : {dims.chunks_forward, dims.chunks_backward}) {
      for (int64_t chunk = 0; chunk < num_of_direction; ++chunk) {
        // As kernels::RoutePlanArgs cuts a rank's tokens, which are its share of a block's.
        const int64_t first = layout_.tp_rank(source) * dims.tokens;
        const int64_t end = first + (chunk + 1) * dims.tokens / num_of_direction;
        std::ranges::fill(by_expert, 0);
        for (int64_t token = first + chunk * dims.tokens / num_of_direction; token < end;) {
          // What the chunk has of one sequence.
          const int64_t slot = token / num_local;
          const int64_t next = std::min(end, (slot + 1) * num_local);
          const int64_t sequence =
              plan::sequence_index(layout_, knobs_, micro_batch, layout_.dp_rank(source), slot);
          rows_.add(layout_, source, 0, rows_.moe_layer(layer), sequence, token - slot * num_local,
                    next - slot * num_local, by_expert);
          token = next;
        }
        for (size_t expert = 0; expert < by_expert.size(); ++expert) {
          plan::add_rows_of_expert(dims, static_cast<int64_t>(expert), by_expert[expert],
                                   chunk_counts);
        }
        chunk_counts = chunk_counts.subspan(num_slices);
      }
    }
  }
  return counts;
}

}  // namespace moetune::tuner
