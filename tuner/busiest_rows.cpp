// See busiest_rows.h.
#include "tuner/busiest_rows.h"

#include <algorithm>

#include "engine/plan/player.h"

namespace moetune::tuner {
namespace {

/// Steps of the profile that are looked at: routing changes slowly.
constexpr int64_t kMostSteps = 4;

plan::LayerDims expert_dims(const spec::TrialSpec& trial) {
  const auto& is_moe = trial.model.is_moe_layer;
  const auto first = std::ranges::find(is_moe, true);
  const int64_t layer = first == is_moe.end() ? 0 : first - is_moe.begin();
  return plan::layer_dims(trial.model, trial.knobs, trial.training.seq_length, layer);
}

}  // namespace

BusiestBindings::BusiestBindings(const spec::TrialSpec& trial, int rank, const ReceivedRows& rows)
    : trial_(trial),
      rows_(rows),
      layout_(plan::layout_of(trial.knobs)),
      rank_(rank),
      dims_(expert_dims(trial)),
      balanced_(plan::BalancedBindings(trial, rank).at(0, 0)) {}

const plan::Route& BusiestBindings::at(int64_t layer, int64_t micro_batch) const {
  if (!rows_.has_profile() || dims_.ep == 1) return balanced_;
  const auto [place, is_new] = routes_.try_emplace({layer, micro_batch});
  if (is_new) place->second = made(layer, micro_batch);
  return place->second;
}

plan::Route BusiestBindings::made(int64_t layer, int64_t micro_batch) const {
  const std::vector<int> members = layout_.group_ranks(plan::Group::ep, rank_);
  const int64_t num_steps = std::clamp<int64_t>(spec::total_steps(trial_), 1, rows_.num_steps());
  const int64_t num_seen = std::min(num_steps, kMostSteps);
  int64_t sum = 0;
  for (int64_t i = 0; i < num_seen; ++i) {
    int64_t most = 0;
    for (const int member : members) {
      most = std::max(most, rows_.at(layout_, trial_.knobs, i * num_steps / num_seen, layer,
                                     micro_batch, member));
    }
    sum += most;
  }
  const int64_t own = layout_.rank_in(plan::Group::ep, rank_);
  return plan::make_route(dims_, own, plan::uneven_counts(dims_, own, sum / num_seen));
}

}  // namespace moetune::tuner
