#include "tuner/busiest_rows.h"

#include <algorithm>
#include <vector>

#include "engine/plan/player.h"

namespace moetune::tuner {
namespace {

/// Steps of the profile that are looked at: routing changes slowly.
constexpr int64_t kMostSteps = 4;

}  // namespace

BusiestBindings::BusiestBindings(const spec::TrialSpec& trial, const plan::StepProgram& program,
                                 const ReceivedRows& rows)
    : balanced_(plan::BalancedBindings(trial, program.rank).at(0, 0)) {
  const plan::Layout& layout = program.layout;
  if (!rows.has_profile() || layout.ep == 1) return;
  const std::vector<int> members = layout.group_ranks(plan::Group::ep, program.rank);
  const int64_t own = layout.rank_in(plan::Group::ep, program.rank);
  const int64_t num_steps = std::clamp<int64_t>(spec::total_steps(trial), 1, rows.num_steps());
  const int64_t num_seen = std::min(num_steps, kMostSteps);
  const auto busiest = [&](int64_t step, int64_t layer, int64_t micro_batch) {
    int64_t most = 0;
    for (const int member : members) {
      most = std::max(most, rows.at(layout, trial.knobs, step, layer, micro_batch, member));
    }
    return most;
  };
  for (const plan::Item& item : program.items) {
    const plan::LayerDims& dims = program.segments[static_cast<size_t>(item.segment)]->dims;
    // Neither embedding nor head, nor what updates a layer's parameters.
    if (!dims.is_moe || item.layer < 0 || item.micro_batch < 0) continue;
    const auto [route, is_new] = routes_.try_emplace({item.layer, item.micro_batch});
    if (!is_new) continue;
    int64_t sum = 0;
    for (int64_t seen = 0; seen < num_seen; ++seen) {
      sum += busiest(seen * num_steps / num_seen, item.layer, item.micro_batch);
    }
    route->second = plan::make_route(dims, own, plan::uneven_counts(dims, own, sum / num_seen));
  }
}

const plan::Route& BusiestBindings::at(int64_t layer, int64_t micro_batch) const {
  const auto found = routes_.find({layer, micro_batch});
  return found == routes_.end() ? balanced_ : found->second;
}

}  // namespace moetune::tuner
