// The second half of the workflow, for a given layout: profile and retune. What each phase looks
// for is said where it begins.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/base/units.h"
#include "tuner/judgement.h"
#include "tuner/strategies/three_walls.h"
#include "tuner/walls.h"

namespace moetune::tuner {
namespace {

/// Single changes that are also looked at two at a time.
constexpr size_t kMostPaired = 8;

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
  const std::string group = blocking_group(outcome);
  std::string cause = outcome.wall_cause;
  if (outcome.wall == Wall::communication && !group.empty()) {
    cause += fmt::format("{}mostly {}", cause.empty() ? "" : ", ", group);
  }
  if (!cause.empty()) cause = fmt::format(" ({})", cause);
  Decision& wall = decide(
      Phase::profile, DecisionKind::wall,
      !outcome.wall
          ? fmt::format("A step takes {}. Its trace is empty, so the wall is unknown and every "
                        "remedy is tried in the playbook's order. {}",
                        step, memory)
          : fmt::format("At {} per step the wall is {}{}: {}. {}", step, name_of(*outcome.wall),
                        cause, describe_shares(outcome), memory));
  wall.trial_hash = incumbent_->request.hash;
  wall.wall = outcome.wall ? name_of(*outcome.wall) : "";
  wall.evidence["shares"] = outcome.shares;
  wall.evidence["blocking_group"] = group;
  const WallReading reading = read_walls(outcome);
  for (const Wall other : base::kRecoverableWalls) {
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
  decide(Phase::retune, DecisionKind::note,
         contenders.empty()
             ? "The playbook names no remedy in this space that is worth a trial."
             : fmt::format("Remedies measured for this configuration: {}; none showed a large "
                           "enough gain.",
                           contenders.size()));
  return false;
}

bool ThreeWalls::try_remedies(std::vector<Contender>& contenders) {
  std::vector<Move> left = moves();
  while (!left.empty()) {
    // What was measured meanwhile says what to expect of the others.
    for (Move& move : left) predict(move.request);
    const auto first = std::ranges::min_element(
        left, {}, [](const Move& move) { return move.request.prediction.step_ns; });
    Move move = std::move(*first);
    left.erase(first);
    TrialRequest& request = move.request;
    if (!measured_.contains(request.hash) && !is_promising(request)) {
      refuse(request, Action::pruned,
             fmt::format("predicted step {}: it would not gain enough even as the most surprising "
                         "trial so far",
                         base::format_ns(request.prediction.step_ns)),
             kMaxPrunedPerPhase);
      continue;
    }
    look_at_incumbent_again();
    Contender contender;
    contender.name = request.title;
    contender.why = move.why;
    contender.decision = std::move(move.decision);
    contender.trial = measure_judged(std::move(request));
    if (reject_failed(contender)) continue;
    contenders.push_back(std::move(contender));
    if (take_if_better(contenders)) return true;
  }
  return false;
}

// What the playbook names for the walls, what the cost model alone would change (also back to what
// was left before), and of the best of these two at a time. Most gain for a trial's time first:
// trials run equally many steps, so that is the order of the predicted steps.
std::vector<ThreeWalls::Move> ThreeWalls::moves() {
  const spec::Knobs now = incumbent_->request.spec.knobs;
  const auto now_ns = static_cast<double>(step_ns_of(now));
  std::set<std::string> looked_at = {incumbent_->request.hash};
  std::vector<Move> moves = playbook_moves(looked_at);
  const auto gains = [&](const TrialRequest& request, double before_ns) {
    const auto ns = static_cast<double>(request.prediction.step_ns);
    return ns < before_ns && ns * (1 + sweep_.min_gain_ratio) <= before_ns;
  };
  const bool has_model = predictor_ != TimePredictor::none;
  for (const auto& [knob, values] : sweep_.space) {
    if (!has_model) break;
    for (const std::string& value : values) {
      std::optional<Move> move = move_to(Change{knob, value}, looked_at);
      if (!move || !gains(move->request, now_ns)) continue;
      looked_at.insert(move->request.hash);
      move->decision.remedy = "predicted";
      move->why = "The playbook does not name it; the calibrated model expects it to gain.";
      moves.push_back(std::move(*move));
    }
  }
  const auto by_step = [&] {
    std::ranges::stable_sort(moves, {},
                             [](const Move& move) { return move.request.prediction.step_ns; });
  };
  by_step();
  const size_t num_paired = has_model ? std::min(moves.size(), kMostPaired) : 0;
  for (size_t b = 0; b < num_paired; ++b) {
    for (size_t a = 0; a < b; ++a) {
      const std::array<Change, 2> both = {moves[a].change, moves[b].change};
      if (both[0].knob == both[1].knob) continue;
      std::optional<Move> move = move_to(both, looked_at);
      // Worth more than the better one of them alone, which is a.
      if (!move || !gains(move->request, now_ns) ||
          !gains(move->request, static_cast<double>(moves[a].request.prediction.step_ns))) {
        continue;
      }
      looked_at.insert(move->request.hash);
      move->decision.remedy = "predicted_pair";
      move->why = "The calibrated model expects more of both than of either alone.";
      moves.push_back(std::move(*move));
    }
  }
  by_step();
  return moves;
}

std::vector<ThreeWalls::Move> ThreeWalls::playbook_moves(std::set<std::string>& looked_at) {
  const TrialOutcome outcome = incumbent_->outcome;
  const spec::Knobs now = incumbent_->request.spec.knobs;
  const Situation situation{space_, now, outcome};
  const WallReading reading = read_walls(outcome);
  std::vector<Move> moves;
  for (const Wall wall : reading.order()) {
    // A wall that costs less than the smallest gain that counts needs no remedy.
    if (outcome.wall && wall != reading.binding && wall != Wall::compute &&
        reading.share(wall) < sweep_.min_gain_ratio) {
      continue;
    }
    for (const Remedy& remedy : remedies_for(wall, situation)) {
      std::optional<Move> move = move_to(Change{remedy.row->knob, remedy.value}, looked_at);
      if (!move) continue;
      looked_at.insert(move->request.hash);
      move->decision.wall = name_of(wall);
      move->decision.remedy = remedy.row->name;
      move->why = remedy.row->why;
      moves.push_back(std::move(*move));
    }
  }
  return moves;
}

std::optional<ThreeWalls::Move> ThreeWalls::move_to(std::span<const Change> changes,
                                                    const std::set<std::string>& looked_at) {
  const spec::Knobs now = incumbent_->request.spec.knobs;
  spec::Knobs changed = now;
  std::string title;
  bool names_recompute = false;
  for (const Change& change : changes) {
    names_recompute |= change.knob == "recompute";
    title += fmt::format("{}{} {} -> {}", title.empty() ? "" : ", ", change.knob,
                         spec::get_knob(now, *spec::find_knob(change.knob)), change.value);
    changed = space_.with(changed, change.knob, change.value);
  }
  if (changed == space_.completed(now)) return std::nullopt;
  const spec::Knobs knobs = names_recompute ? changed : with_less_recompute(changed);
  if (knobs != changed) {
    title += fmt::format(", recompute {} -> {}", recompute_text(changed), recompute_text(knobs));
  }
  Move move;
  move.request = request_for(knobs, Phase::retune, title);
  if (looked_at.contains(move.request.hash)) return std::nullopt;
  if (is_illegal(knobs, Phase::retune, title)) return std::nullopt;
  if (!fits(move.request)) {
    refuse(move.request, Action::pruned, over_capacity_text(move.request), kMaxPrunedPerPhase);
    return std::nullopt;
  }
  const Change& first = changes.front();
  move.change = first;
  move.decision.phase = Phase::retune;
  move.decision.wall = name_of(read_walls(incumbent_->outcome).binding);
  move.decision.knob = first.knob;
  move.decision.value_before = spec::get_knob(now, *spec::find_knob(first.knob));
  move.decision.value_after = first.value;
  return move;
}

// A change that frees memory is judged with what that memory allows: less recomputation. A smaller
// micro-batch that still recomputes as the larger one did would look slower than it can be.
spec::Knobs ThreeWalls::with_less_recompute(const spec::Knobs& knobs) {
  for (const std::string& rung : recompute_ladder()) {
    const spec::Knobs lighter = space_.with(knobs, "recompute", rung);
    if (recompute_weight(lighter.recompute) >= recompute_weight(knobs.recompute)) break;
    if (is_legal(lighter) && fits(request_for(lighter, Phase::retune, {}))) return lighter;
  }
  return knobs;
}

}  // namespace moetune::tuner
