// Deals the rows of a profile's pieces out to tokens, and counts them by source rank, chunk and
// expert.
#include "tuner/profile_bindings.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"

namespace moetune::tuner {
namespace {

/// Rows of the first `end` of `num_tokens` tokens, by expert: the j-th row of an expert with c rows
/// stands at (j + 1/2) / c of the piece, and the tokens take as many rows each, from the left.
std::vector<int64_t> rows_before(const int32_t* counts, int64_t num_experts, int64_t num_tokens,
                                 int64_t end) {
  std::vector<int64_t> rows(static_cast<size_t>(num_experts));
  const int64_t all = std::accumulate(counts, counts + num_experts, int64_t{0});
  int64_t surplus = -(all * end / num_tokens);
  for (size_t e = 0; e < rows.size(); ++e) {
    // Those up to the border; as many as there should be, but for what halves add up to.
    rows[e] = (2 * counts[e] * end + num_tokens) / (2 * num_tokens);
    surplus += rows[e];
  }
  // Whether row i of expert a stands before row j of expert b; the lower expert first where both
  // stand at the same place.
  const auto is_before = [&](size_t a, int64_t i, size_t b, int64_t j) {
    const int64_t left = (2 * i + 1) * counts[b];
    const int64_t right = (2 * j + 1) * counts[a];
    return left != right ? left < right : a < b;
  };
  for (; surplus != 0; surplus += surplus > 0 ? -1 : 1) {
    const bool is_too_many = surplus > 0;
    size_t best = rows.size();
    for (size_t e = 0; e < rows.size(); ++e) {
      if (rows[e] == (is_too_many ? 0 : counts[e])) continue;
      const bool is_better =
          best == rows.size() || (is_too_many ? is_before(best, rows[best] - 1, e, rows[e] - 1)
                                              : is_before(e, rows[e], best, rows[best]));
      if (is_better) best = e;
    }
    rows[best] += is_too_many ? -1 : 1;
  }
  return rows;
}

}  // namespace

std::vector<int64_t> rows_of_tokens(const int32_t* counts, int64_t num_experts, int64_t num_tokens,
                                    int64_t begin, int64_t end) {
  if (begin == 0 && end == num_tokens) return {counts, counts + num_experts};
  std::vector<int64_t> rows = rows_before(counts, num_experts, num_tokens, end);
  const std::vector<int64_t> before = rows_before(counts, num_experts, num_tokens, begin);
  std::ranges::transform(rows, before, rows.begin(), std::minus<>());
  return rows;
}

ProfileBindings::ProfileBindings(spec::RoutingProfile profile, const spec::TrialSpec& trial,
                                 int rank)
    : profile_(std::move(profile)),
      knobs_(trial.knobs),
      seq_length_(trial.training.seq_length),
      layout_(plan::layout_of(trial.knobs)),
      rank_(rank) {
  const spec::ModelSpec& model = trial.model;
  int64_t num_moe_layers = 0;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const bool is_moe = model.is_moe_layer[static_cast<size_t>(layer)];
    moe_layer_.push_back(is_moe ? num_moe_layers++ : -1);
    dims_.push_back(plan::layer_dims(model, trial.knobs, seq_length_, layer));
  }
  if (profile_.is_empty() || profile_.num_layers != num_moe_layers ||
      profile_.num_experts != model.num_experts ||
      profile_.num_sequences != trial.training.global_batch_size ||
      seq_length_ % profile_.num_pieces != 0) {
    throw base::Error(fmt::format(
        "a routing profile of {} steps, {} layers with {} experts and {} sequences of {} pieces "
        "does not belong to a model of {} such layers with {} experts that is trained with batches "
        "of {} sequences of {} tokens",
        profile_.num_steps, profile_.num_layers, profile_.num_experts, profile_.num_sequences,
        profile_.num_pieces, num_moe_layers, model.num_experts, trial.training.global_batch_size,
        seq_length_));
  }
  check_counts(model.experts_per_token);
}

/// Each token of a piece chooses `topk` different experts.
void ProfileBindings::check_counts(int64_t topk) const {
  const int64_t piece_tokens = seq_length_ / profile_.num_pieces;
  for (auto piece = profile_.counts.begin(); piece != profile_.counts.end();
       piece += profile_.num_experts) {
    const auto end = piece + profile_.num_experts;
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
      plan::num_micro_batches(layout_, knobs_, profile_.num_sequences);
  MOETUNE_CHECK(moe_layer_[static_cast<size_t>(layer)] >= 0 && micro_batch < num_micro_batches,
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
  for (const int source : layout_.group_ranks(plan::Group::ep, rank_)) {
    for (const int64_t num_of_direction : {dims.chunks_forward, dims.chunks_backward}) {
      for (int64_t chunk = 0; chunk < num_of_direction; ++chunk) {
        // As kernels::RoutePlanArgs cuts a rank's tokens, which are its share of a block's.
        const int64_t first = layout_.tp_rank(source) * dims.tokens;
        add_tokens(layer, micro_batch, source, first + chunk * dims.tokens / num_of_direction,
                   first + (chunk + 1) * dims.tokens / num_of_direction, chunk_counts);
        chunk_counts = chunk_counts.subspan(num_slices);
      }
    }
  }
  return counts;
}

/// Adds the rows of the tokens [begin, end) of the micro-batch's block that `source` is part of.
void ProfileBindings::add_tokens(int64_t layer, int64_t micro_batch, int source, int64_t begin,
                                 int64_t end, std::span<int32_t> counts) const {
  const std::vector<int32_t> positions = plan::local_positions(layout_, source, seq_length_);
  const auto num_local = static_cast<int64_t>(positions.size());
  const int64_t piece_tokens = seq_length_ / profile_.num_pieces;
  const auto position = [&](int64_t token) {
    return int64_t{positions[static_cast<size_t>(token % num_local)]};
  };
  for (int64_t token = begin; token < end;) {
    // A run of neighbours within one piece of one sequence.
    const int64_t first = position(token);
    const int64_t piece = first / piece_tokens;
    const int64_t slot = token / num_local;
    int64_t count = 1;
    while (token + count < end && (token + count) / num_local == slot &&
           position(token + count) == first + count && (first + count) / piece_tokens == piece) {
      ++count;
    }
    const int64_t sequence =
        plan::sequence_index(layout_, knobs_, micro_batch, layout_.dp_rank(source), slot);
    const int64_t at =
        profile_.index(0, moe_layer_[static_cast<size_t>(layer)], sequence, piece, 0);
    const int64_t first_in_piece = first - piece * piece_tokens;
    const std::vector<int64_t> rows =
        rows_of_tokens(&profile_.counts[static_cast<size_t>(at)], profile_.num_experts,
                       piece_tokens, first_in_piece, first_in_piece + count);
    for (size_t expert = 0; expert < rows.size(); ++expert) {
      plan::add_rows_of_expert(dims_[static_cast<size_t>(layer)], static_cast<int64_t>(expert),
                               rows[expert], counts);
    }
    token += count;
  }
}

}  // namespace moetune::tuner
