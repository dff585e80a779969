// Cuts the rows by expert of a recorded piece at a token, in whole rows and in proportion.
#include "tuner/profile_rows.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

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

ProfileRows::ProfileRows(spec::RoutingProfile profile, const spec::ModelSpec& model,
                         const spec::TrainingSpec& training)
    : profile_(std::move(profile)), seq_length_(training.seq_length) {
  int64_t num_moe_layers = 0;
  for (const bool is_moe : model.is_moe_layer) {
    moe_layer_.push_back(is_moe ? num_moe_layers++ : -1);
  }
  if (profile_.num_layers == num_moe_layers && profile_.num_experts == model.num_experts &&
      profile_.num_sequences == training.global_batch_size && profile_.num_pieces > 0 &&
      seq_length_ % profile_.num_pieces == 0) {
    return;
  }
  throw base::Error(fmt::format(
      "a routing profile of {} steps, {} layers with {} experts and {} sequences of {} pieces "
      "does not belong to a model of {} such layers with {} experts that is trained with batches "
      "of {} sequences of {} tokens",
      profile_.num_steps, profile_.num_layers, profile_.num_experts, profile_.num_sequences,
      profile_.num_pieces, num_moe_layers, model.num_experts, training.global_batch_size,
      seq_length_));
}

void ProfileRows::add(const plan::Layout& layout, int rank, int64_t step, int64_t moe_layer,
                      int64_t sequence, int64_t begin, int64_t end,
                      std::span<int64_t> by_expert) const {
  const int64_t piece_tokens = seq_length_ / profile_.num_pieces;
  int64_t first = 0;  // of the range's tokens among the rank's
  for (const plan::PositionRange& range : plan::local_ranges(layout, rank, seq_length_)) {
    const int64_t shift = range.begin - first;
    first += range.end - range.begin;
    const int64_t to = std::min(end + shift, range.end);
    for (int64_t position = std::max(begin + shift, range.begin); position < to;) {
      const int64_t piece = position / piece_tokens;
      const int64_t piece_begin = piece * piece_tokens;
      const int64_t part_end = std::min(to, piece_begin + piece_tokens);
      const auto at = static_cast<size_t>(profile_.index(step, moe_layer, sequence, piece, 0));
      const std::vector<int64_t> rows =
          rows_of_tokens(&profile_.counts[at], profile_.num_experts, piece_tokens,
                         position - piece_begin, part_end - piece_begin);
      std::ranges::transform(rows, by_expert, by_expert.begin(), std::plus<>());
      position = part_end;
    }
  }
}

}  // namespace moetune::tuner
