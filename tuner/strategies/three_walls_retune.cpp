// The second half of the workflow, for a given layout: profile and retune. What each phase looks
// for is said where it begins.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/base/units.h"
#include "tuner/judgement.h"
#include "tuner/strategies/three_walls.h"
#include "tuner/walls.h"

namespace moetune::tuner {
namespace {

// A change that the calibrated cost model expects to slow the step down by so much is not measured.
constexpr double kHopelessSlowdown = 1.25;

std::string recompute_text(const spec::Knobs& knobs) {
  return spec::get_knob(knobs, *spec::find_knob("recompute"));
}

}  // namespace

// Where does the incumbent's time go, what does the playbook name for that, does it gain more than
// the noise? Again from the profile after each change that was kept.
void ThreeWalls::retune() {
  do {
    note_wall();
  } while (retune_once());
}

void ThreeWalls::note_wall() {
  phase_ = Phase::profile;
  const TrialOutcome& outcome = incumbent_->outcome;
  const std::string step = base::format_ns(outcome.step_ns);
  const std::string memory =
      fmt::format("Memory: {} of {}.", base::format_bytes(outcome.peak_bytes),
                  base::format_bytes(sweep_.base.hardware.memory_bytes));
  const std::string group = outcome.dominant_group.empty() || outcome.wall != "communication"
                                ? ""
                                : fmt::format(" (group {})", outcome.dominant_group);
  Decision& wall = decide(
      Phase::profile, "wall",
      outcome.wall.empty()
          ? fmt::format("A step takes {}. Its trace is empty, so the wall is unknown and every "
                        "remedy is tried in the playbook's order. {}",
                        step, memory)
          : fmt::format("At {} per step the wall is {}{}: {}. {}", step, outcome.wall, group,
                        describe_shares(outcome), memory));
  wall.trial_hash = incumbent_->request.hash;
  wall.wall = outcome.wall;
  wall.evidence["shares"] = outcome.shares;
  wall.evidence["dominant_group"] = outcome.dominant_group;
  const WallReading reading = read_walls(outcome);
  for (const Wall other : {Wall::memory, Wall::communication, Wall::host}) {
    wall.evidence["gain_ceiling"][name_of(other)] = reading.ceiling(other);
  }
}

bool ThreeWalls::retune_once() {
  phase_ = Phase::retune;
  std::vector<Contender> contenders;
  bool is_better = false;
  try {
    is_better = try_remedies(contenders);
  } catch (const BudgetSpent&) {
    if (!look_again(contenders, true)) conclude(contenders);
    throw;
  }
  if (is_better || look_again(contenders, true)) return true;
  conclude(contenders);
  decide(Phase::retune, "note",
         contenders.empty()
             ? "The playbook names no remedy in this space that is worth a trial."
             : fmt::format("{} remedies were measured for this configuration; of none of them it "
                           "could be seen that it gains enough.",
                           contenders.size()));
  return false;
}

bool ThreeWalls::try_remedies(std::vector<Contender>& contenders) {
  const TrialOutcome outcome = incumbent_->outcome;
  const spec::Knobs now_knobs = incumbent_->request.spec.knobs;
  const Situation situation{space_, now_knobs, outcome};
  const WallReading reading = read_walls(outcome);
  // By the same state of the cost model as the candidates.
  TrialRequest again = incumbent_->request;
  predict(again);
  const auto expected_now = static_cast<double>(again.prediction.step_ns);
  std::set<std::string> looked_at;
  for (const Wall wall : reading.order()) {
    // A wall that could not give back more than the smallest gain that counts is none.
    if (!outcome.wall.empty() && wall != reading.binding && wall != Wall::compute &&
        reading.share(wall) < sweep_.min_gain_ratio) {
      continue;
    }
    for (const Remedy& remedy : remedies_for(wall, situation)) {
      const std::string before = spec::get_knob(now_knobs, *spec::find_knob(remedy.row->knob));
      std::string title = fmt::format("{} {} -> {}", remedy.row->knob, before, remedy.value);
      const bool names_recompute = remedy.row->knob == std::string_view("recompute");
      const spec::Knobs knobs = names_recompute ? remedy.knobs : with_less_recompute(remedy.knobs);
      if (knobs != remedy.knobs) {
        title += fmt::format(", recompute {} -> {}", recompute_text(remedy.knobs),
                             recompute_text(knobs));
      }
      TrialRequest request = request_for(knobs, Phase::retune, title);
      if (!looked_at.insert(request.hash).second) continue;
      if (is_illegal(knobs, Phase::retune, title)) continue;
      if (!fits(request)) {
        refuse(request, Action::pruned, over_capacity_text(request), kMaxPrunedPerPhase);
        continue;
      }
      const auto expected = static_cast<double>(request.prediction.step_ns);
      if (!measured_.contains(request.hash) && expected > kHopelessSlowdown * expected_now) {
        refuse(request, Action::pruned,
               fmt::format("predicted step {} the best so far",
                           describe_change(expected_now / expected - 1.0, "than")),
               kMaxPrunedPerPhase);
        continue;
      }
      look_at_incumbent_again();
      Contender contender;
      contender.name = title;
      contender.why = remedy.row->why;
      contender.decision.phase = Phase::retune;
      contender.decision.wall = name_of(wall);
      contender.decision.remedy = remedy.row->name;
      contender.decision.knob = remedy.row->knob;
      contender.decision.value_before = before;
      contender.decision.value_after = remedy.value;
      contender.trial = measure_judged(std::move(request));
      if (reject_failed(contender)) continue;
      contenders.push_back(std::move(contender));
      if (take_if_better(contenders)) return true;
    }
  }
  return false;
}

// A change that frees memory is worth what the memory is worth: a smaller micro-batch that still
// recomputes for the larger one is not judged as what it is.
spec::Knobs ThreeWalls::with_less_recompute(const spec::Knobs& knobs) {
  for (const std::string& rung : recompute_ladder()) {
    const spec::Knobs lighter = space_.with(knobs, "recompute", rung);
    if (recompute_weight(lighter.recompute) >= recompute_weight(knobs.recompute)) break;
    if (is_legal(lighter) && fits(request_for(lighter, Phase::retune, {}))) return lighter;
  }
  return knobs;
}

}  // namespace moetune::tuner
