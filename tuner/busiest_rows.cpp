#include "tuner/busiest_rows.h"

#include <algorithm>
#include <vector>

#include "engine/plan/player.h"

namespace moetune::tuner {
namespace {

/// Steps of the profile that are looked at, evenly spaced. The busiest rank's share may differ by a
/// fifth from one step to the next while the router learns.
constexpr int64_t kMostSeenSteps = 8;

}  // namespace

int64_t rows_at_load(const plan::LayerDims& dims, double load) {
  const int64_t all = dims.expert_ranks * dims.tokens * dims.topk;
  return std::min(all, static_cast<int64_t>(load * static_cast<double>(dims.received_rows)));
}

BusiestBindings::BusiestBindings(const spec::TrialSpec& trial, const plan::StepProgram& program,
                                 const ReceivedRows& rows, double load)
    : same_(plan::BalancedBindings(trial, program.rank).at(0, 0)) {
  const plan::Layout& layout = program.layout;
  if (layout.ep == 1) return;
  const int64_t own = layout.rank_in(plan::Group::ep, program.rank);
  if (!rows.has_profile()) {
    const auto moe = std::ranges::find_if(program.segments,
                                          [](const auto& segment) { return segment->dims.is_moe; });
    if (load <= 1 || moe == program.segments.end()) return;
    const plan::LayerDims& dims = (*moe)->dims;
    same_ = plan::make_route(dims, own, plan::uneven_counts(dims, own, rows_at_load(dims, load)));
    return;
  }
  std::vector<ReceivedRows::OfRank> members;
  for (const int member : layout.group_ranks(plan::Group::ep, program.rank)) {
    members.push_back(rows.of_rank(layout, trial.knobs, member));
  }
  // The timed steps: the first ones are the most uneven, and are not timed.
  const int64_t first = std::min(trial.num_warmup_steps, rows.num_steps() - 1);
  const int64_t num_steps = std::clamp<int64_t>(trial.num_steps, 1, rows.num_steps() - first);
  const int64_t num_seen = std::min(num_steps, kMostSeenSteps);
  const auto busiest = [&](int64_t step, int64_t layer, int64_t micro_batch) {
    int64_t most = 0;
    for (const ReceivedRows::OfRank& member : members) {
      most = std::max(most, member.at(step, layer, micro_batch));
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
      const int64_t step = first + seen * num_steps / num_seen;
      sum += busiest(step, item.layer, item.micro_batch);
    }
    route->second = plan::make_route(dims, own, plan::uneven_counts(dims, own, sum / num_seen));
  }
}

const plan::Route& BusiestBindings::at(int64_t layer, int64_t micro_batch) const {
  const auto found = routes_.find({layer, micro_batch});
  return found == routes_.end() ? same_ : found->second;
}

}  // namespace moetune::tuner
