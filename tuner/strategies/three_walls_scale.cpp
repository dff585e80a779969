// The second wall: which layout, measured with the choices that are predicted to suit it; see
// three_walls.h.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tuner/judgement.h"
#include "tuner/strategies/three_walls.h"

namespace moetune::tuner {
namespace {

/// The first so many are known as well as they can be when one of them is measured.
constexpr size_t kRankedAgain = 4;

}  // namespace

// Every legal layout of the space, ranked by the calibrated cost model with the recompute and the
// schedule that suit it: one that needs its gradients reduced meanwhile is not to be judged
// without, and one that fits only with smaller chunks is not to be left out. The best of these are
// measured, and after each of them the others are ranked again. A layout is measured once, and
// again with another micro-batch only where later trials have taught that it beats the incumbent
// with that.
void ThreeWalls::scale() {
  phase_ = Phase::scale;
  const spec::Knobs from = first_fitting_->request.spec.knobs;
  std::vector<Candidate> candidates;
  int64_t num_layouts = 0;
  int64_t num_unsure = 0;
  for (const spec::Knobs& layout : space_.product(from, layout_knobs({"micro_batch_size"}))) {
    ++num_layouts;
    if (is_illegal(layout, Phase::scale, "scale: " + describe(layout))) continue;
    std::optional<TrialRequest> plain = cheapest_fitting(layout);
    if (!plain) continue;
    num_unsure += room_for(*plain) == Room::unsure;
    candidates.push_back({layout, layout_text(layout), std::move(*plain)});
  }
  rank_jointly(candidates, static_cast<size_t>(sweep_.scale_trials));
  tell_ranking(candidates, num_layouts, num_unsure);
  std::vector<Contender> contenders;
  try {
    measure_layouts(std::move(candidates), contenders);
  } catch (const BudgetSpent&) {
    look_again(contenders, false);
    conclude(contenders);
    throw;
  }
  look_again(contenders, false);
  conclude(contenders);
}

void ThreeWalls::tell_ranking(const std::vector<Candidate>& candidates, int64_t num_layouts,
                              int64_t num_unsure) {
  int64_t num_priced = 0;
  for (const Candidate& candidate : candidates) num_priced += candidate.num_priced;
  const int64_t num_points = static_cast<int64_t>(candidates.size()) * num_choices();
  Decision& ranking = decide(
      Phase::scale, DecisionKind::note,
      fmt::format(
          "{} layouts considered, {} legal ones fit with some recompute setting{}. Ranked "
          "together with recomputation and schedule they are {} points, of which {} were "
          "priced; the {} layouts predicted to be fastest, at most, are measured, each "
          "with the choices that are predicted to suit it.",
          num_layouts, candidates.size(),
          num_unsure > 0 ? fmt::format(", {} of them maybe: a trial has to tell", num_unsure) : "",
          num_points, num_priced, sweep_.scale_trials));
  ranking.evidence["num_points"] = num_points;
  ranking.evidence["num_priced"] = num_priced;
  constexpr size_t kMaxListed = 50;
  for (const Candidate& candidate : candidates) {
    if (!candidate.looked_at) continue;
    const TrialRequest& best = candidate.best;
    nlohmann::json row = peak_evidence(best);
    row.update({{"layout", describe(best.spec.knobs)},
                {"choices", best.title},
                {"step_ns", best.prediction.step_ns},
                {"peak_bytes", best.prediction.peak_bytes}});
    ranking.evidence["predicted"].push_back(std::move(row));
    if (ranking.evidence["predicted"].size() == kMaxListed) break;
  }
}

void ThreeWalls::measure_layouts(std::vector<Candidate> candidates,
                                 std::vector<Contender>& contenders) {
  struct OfLayout {
    int num_trials = 0;
    bool has_ended_well = false;
  };
  std::map<std::string, OfLayout> of_layout;
  const spec::Knobs from = first_fitting_->request.spec.knobs;
  int64_t num_measured = 0;
  while (num_measured < sweep_.scale_trials) {
    std::erase_if(candidates, [&](const Candidate& candidate) {
      return of_layout[candidate.name].num_trials == kMostBatchesOfLayout;
    });
    // Those of a layout that was measured come last, unless they are predicted to gain.
    for (Candidate& candidate : candidates) {
      candidate.is_again = of_layout[candidate.name].has_ended_well;
    }
    rank_jointly(candidates, kRankedAgain);
    if (candidates.empty() || candidates.front().is_last) return;
    if (candidates.front().looked_at != knowledge()) look_at(candidates.front());
    const Candidate candidate = candidates.front();
    const TrialRequest& request = candidate.best;
    // After one that ran out of memory it may look otherwise.
    if (measured_.contains(request.hash) || !fits(request)) {
      candidates.erase(candidates.begin());
      continue;
    }
    if (!is_promising(request)) {
      tell_hopeless(request, "layouts");
      return;
    }
    OfLayout& seen = of_layout[candidate.name];
    ++seen.num_trials;
    ++num_measured;
    look_at_incumbent_again();
    Contender contender;
    contender.name = describe(request.spec.knobs) +
                     schedule_text(request.spec.knobs, from, space_.schedule_knobs());
    contender.decision.phase = Phase::scale;
    contender.decision.remedy = "layout";
    contender.decision.knob = "layout";
    contender.decision.value_after = contender.name;
    contender.trial = measure_judged(request);
    if (contender.trial.outcome.status != spec::TrialStatus::oom) {
      candidates.erase(candidates.begin());
    }
    if (reject_failed(contender)) continue;
    seen.has_ended_well = true;
    contenders.push_back(std::move(contender));
    take_if_better(contenders);
  }
}

}  // namespace moetune::tuner
