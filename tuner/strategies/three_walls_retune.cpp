// The second half of the workflow, for a given layout: profile, retune, validate; see
// three_walls.h. What each phase looks for is said where it begins.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/units.h"
#include "tuner/judgement.h"
#include "tuner/strategies/three_walls.h"
#include "tuner/walls.h"

namespace moetune::tuner {
namespace {

// A change that the calibrated cost model expects to slow the step down by so much is not measured.
constexpr double kHopelessSlowdown = 1.25;

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
  const TrialOutcome& outcome = incumbent_->outcome;
  const spec::Knobs now_knobs = incumbent_->request.spec.knobs;
  const Situation situation{space_, now_knobs, outcome};
  const WallReading reading = read_walls(outcome);
  // By the same state of the cost model as the candidates.
  TrialRequest again = incumbent_->request;
  predict(again);
  const auto expected_now = static_cast<double>(again.prediction.step_ns);
  std::set<std::string> looked_at;
  int64_t num_tried = 0;
  for (const Wall wall : reading.order()) {
    // A wall that could not give back more than the smallest gain that counts is none.
    if (!outcome.wall.empty() && wall != reading.binding && wall != Wall::compute &&
        reading.share(wall) < sweep_.min_gain_ratio) {
      continue;
    }
    for (const Remedy& remedy : remedies_for(wall, situation)) {
      const std::string before = spec::get_knob(now_knobs, *spec::find_knob(remedy.row->knob));
      const std::string title = fmt::format("{} {} -> {}", remedy.row->knob, before, remedy.value);
      TrialRequest request = request_for(remedy.knobs, Phase::retune, title);
      if (!looked_at.insert(request.hash).second) continue;
      if (is_illegal(remedy.knobs, Phase::retune, title)) continue;
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
      const Trial trial = measure(std::move(request));
      ++num_tried;
      const Comparison change = compare(outcome, trial.outcome, sweep_.min_gain_ratio);
      const bool is_kept = trial.is_ok() && change.is_gain;
      const std::string needed =
          base::format_ratio(std::max(change.noise_ratio, sweep_.min_gain_ratio));
      const std::string change_text = describe_change(change.gain_ratio);
      Decision& decision = decide(
          Phase::retune, is_kept ? "kept" : "rejected",
          !trial.is_ok() ? fmt::format("{}: ended as {} ({}).", title,
                                       spec::name_of(trial.outcome.status), trial.outcome.reason)
          : is_kept      ? fmt::format("{}: {}, more than the {} it had to exceed. {}", title,
                                       change_text, needed, remedy.row->why)
                    : fmt::format("{}: {}, not kept (a gain has to exceed {}).", title, change_text,
                                  needed));
      decision.trial_hash = trial.request.hash;
      decision.baseline_hash = incumbent_->request.hash;
      decision.wall = name_of(wall);
      decision.remedy = remedy.row->name;
      decision.knob = remedy.row->knob;
      decision.value_before = before;
      decision.value_after = remedy.value;
      add_comparison(outcome, trial, change, decision);
      if (!is_kept) continue;
      runner_up_ = incumbent_;
      incumbent_ = trial;
      best_hash_ = trial.request.hash;
      return true;
    }
  }
  decide(Phase::retune, "note",
         num_tried == 0
             ? "The playbook names no remedy in this space that is worth a trial."
             : fmt::format("{} remedies were measured for this configuration; none of them gains "
                           "more than the noise.",
                           num_tried));
  return false;
}

// The winner once more over a long window: its numbers stay right, its loss falls, its step time
// holds.
void ThreeWalls::validate() {
  phase_ = Phase::validate;
  is_validating_ = true;
  std::vector<Trial> candidates = {*incumbent_};
  if (runner_up_) candidates.push_back(*runner_up_);
  for (const Trial& candidate : candidates) {
    if (num_started() >= sweep_.budget.max_trials) break;
    TrialRequest request = candidate.request;
    request.spec = validation_spec(candidate.request.spec.knobs);
    request.spec.reference_loss = reference_loss_;
    request.hash = spec::spec_hash(request.spec);
    request.phase = Phase::validate;
    request.is_final = true;
    request.is_baseline = false;
    request.title = fmt::format("validation over {} steps", sweep_.validate_steps);
    predict(request);
    const Trial trial = measure(std::move(request));
    const double final_loss = trial.outcome.losses.empty() ? 0 : trial.outcome.losses.back();
    double lowest_loss = final_loss;
    for (const double loss : trial.outcome.losses) lowest_loss = std::min(lowest_loss, loss);
    const bool has_learned =
        sweep_.validate_max_loss <= 0 ||
        (!trial.outcome.losses.empty() && trial.outcome.losses.back() < sweep_.validate_max_loss);
    const bool is_kept = trial.is_ok() && has_learned;
    const double drift = candidate.outcome.step_ns > 0 && trial.outcome.step_ns > 0
                             ? static_cast<double>(trial.outcome.step_ns) /
                                       static_cast<double>(candidate.outcome.step_ns) -
                                   1.0
                             : 0.0;
    Decision& decision = decide(
        Phase::validate, is_kept ? "kept" : "rejected",
        trial.is_ok()
            ? fmt::format("{} steps: loss {:.3f} at the end ({:.3f} at the lowest{}), {} per step, "
                          "{} in screening.",
                          trial.outcome.losses.size(), final_loss, lowest_loss,
                          sweep_.validate_max_loss > 0
                              ? fmt::format(", {:.2f} asked for", sweep_.validate_max_loss)
                              : "",
                          base::format_ns(trial.outcome.step_ns),
                          describe_change(-drift / (1.0 + drift), "than"))
            : fmt::format("The validation ended as {}: {}.", spec::name_of(trial.outcome.status),
                          trial.outcome.reason));
    decision.trial_hash = trial.request.hash;
    decision.baseline_hash = candidate.request.hash;
    decision.wall = trial.outcome.wall;
    decision.gain_ratio = -drift / (1.0 + drift);
    decision.evidence = {{"before", evidence_of(candidate.outcome)},
                         {"after", evidence_of(trial.outcome)},
                         {"loss_final", final_loss},
                         {"loss_lowest", lowest_loss}};
    if (!is_kept) continue;
    best_hash_ = trial.request.hash;
    const Comparison total = compare(first_fitting_->outcome, trial.outcome, 0);
    Decision& verdict = decide(
        Phase::validate, "note",
        fmt::format("Validated: {}. {:.2f} times the throughput of the first configuration that "
                    "fitted.",
                    describe(trial.request.spec.knobs), 1.0 + total.gain_ratio));
    verdict.trial_hash = trial.request.hash;
    verdict.baseline_hash = first_fitting_->request.hash;
    verdict.gain_ratio = total.gain_ratio;
    verdict.noise_ratio = total.noise_ratio;
    verdict.evidence = {{"before", evidence_of(first_fitting_->outcome)},
                        {"after", evidence_of(trial.outcome)}};
    return;
  }
  decide(Phase::validate, "note",
         "No configuration passed the validation: the best one is known from short trials only.")
      .trial_hash = incumbent_->request.hash;
}

}  // namespace moetune::tuner
