// The end of the workflow: the winner over a long window, and the runner-up where it fails.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/units.h"
#include "tuner/judgement.h"
#include "tuner/strategies/three_walls.h"

namespace moetune::tuner {
namespace {

std::string range_text(double low_ns, double high_ns) {
  return fmt::format("{} to {}", base::format_ns(static_cast<int64_t>(low_ns)),
                     base::format_ns(static_cast<int64_t>(high_ns)));
}

nlohmann::json json_of(const StepLevel& level) {
  return {{"step_ns", level.ns}, {"step_low_ns", level.low_ns}, {"step_high_ns", level.high_ns}};
}

}  // namespace

ThreeWalls::LongRun ThreeWalls::run_long(const Trial& candidate,
                                         std::optional<double> reference_tolerance) {
  TrialRequest request = candidate.request;
  request.spec = validation_spec(candidate.request.spec.knobs);
  if (reference_tolerance) {
    request.spec.reference_tolerance = *reference_tolerance;
    // The tolerance is not part of a spec's hash; one more step makes this another run.
    ++request.spec.num_steps;
  } else if (rounding_band_) {
    request.spec.reference_tolerance = *rounding_band_;
  }
  request.spec.reference_loss = reference_loss_;
  request.hash = spec::spec_hash(request.spec);
  request.phase = Phase::validate;
  request.is_final = true;
  request.is_baseline = false;
  request.title = fmt::format("validation over {} steps", request.spec.num_steps);
  predict(request);
  LongRun run{candidate, measure(std::move(request)), contests_.level_of(candidate.request.hash)};
  const TrialOutcome& outcome = run.trial.outcome;
  run.final_loss = loss_at_end(outcome.losses);
  run.lowest_loss = outcome.losses.empty() ? 0 : *std::ranges::min_element(outcome.losses);
  const bool has_learned = sweep_.validate_max_loss <= 0 ||
                           (!outcome.losses.empty() && run.final_loss < sweep_.validate_max_loss);
  run.has_held = run.trial.is_ok() && has_learned;
  return run;
}

void ThreeWalls::tell_long_run(const LongRun& run, DecisionKind kind, const std::string& remark) {
  const TrialOutcome& outcome = run.trial.outcome;
  // Kept or not: nobody else may have been measured that it could be compared with.
  const bool is_slower =
      run.trial.is_ok() && static_cast<double>(outcome.step_low_ns) > run.screening.high_ns;
  const double change =
      outcome.step_ns > 0 ? run.screening.ns / static_cast<double>(outcome.step_ns) - 1.0 : 0.0;
  Decision& decision =
      decide(Phase::validate, kind,
             run.trial.is_ok()
                 ? fmt::format(
                       "{} steps: loss {:.3f}, the mean of the last {} steps ({:.3f} at the "
                       "lowest{}), {} per step ({}), {} in screening ({}).{}{}",
                       outcome.losses.size(), run.final_loss,
                       num_steps_at_end(outcome.losses.size()), run.lowest_loss,
                       sweep_.validate_max_loss > 0
                           ? fmt::format(", {:.2f} asked for", sweep_.validate_max_loss)
                           : "",
                       base::format_ns(outcome.step_ns),
                       range_text(static_cast<double>(outcome.step_low_ns),
                                  static_cast<double>(outcome.step_high_ns)),
                       describe_change(change, "than"),
                       range_text(run.screening.low_ns, run.screening.high_ns),
                       is_slower ? " It is slower in the long run: the intervals do not meet." : "",
                       remark)
                 : fmt::format("The validation ended as {}: {}.", spec::name_of(outcome.status),
                               outcome.reason));
  decision.trial_hash = run.trial.request.hash;
  decision.baseline_hash = run.candidate.request.hash;
  decision.wall = outcome.wall ? name_of(*outcome.wall) : "";
  decision.gain_ratio = change;
  decision.evidence = {{"before", evidence_of(run.candidate.outcome)},
                       {"after", evidence_of(outcome)},
                       {"screening", json_of(run.screening)},
                       {"is_slower_in_long_run", is_slower},
                       {"loss_mean_at_end", run.final_loss},
                       {"num_steps_at_end", num_steps_at_end(outcome.losses.size())},
                       {"loss_lowest", run.lowest_loss}};
}

std::string ThreeWalls::too_high_text(const LongRun& run) const {
  if (!run.trial.is_ok() || run.has_held) return {};
  return fmt::format(
      " The loss did not fall below the {:.2f} that validate_max_loss asks for of the mean of the "
      "last {} steps.",
      sweep_.validate_max_loss, num_steps_at_end(run.trial.outcome.losses.size()));
}

// The winner once more over a long window: its numbers stay right, its loss falls, and its step
// time holds. One that turns out slower than the runner-up was in screening has won by luck: the
// runner-up takes its place, unless the same long window shows that it is slower still.
void ThreeWalls::validate() {
  note_noise();
  phase_ = Phase::validate;
  is_validating_ = true;
  const auto has_room = [&] { return num_started() < sweep_.budget.max_trials; };
  if (!has_room()) {
    decide(Phase::validate, DecisionKind::note,
           "The budget has no room for a validation: the best configuration is known from short "
           "trials only.")
        .trial_hash = incumbent_->request.hash;
    return;
  }
  const LongRun first = judged_by_rounding(run_long(*incumbent_));
  const std::optional<StepLevel> rival =
      runner_up_ ? std::optional(contests_.level_of(runner_up_->request.hash)) : std::nullopt;
  const bool is_slow = first.has_held && rival &&
                       static_cast<double>(first.trial.outcome.step_low_ns) > rival->high_ns;
  if (first.has_held && !is_slow) {
    tell_long_run(first, DecisionKind::kept, "");
    return tell_verdict(first.trial);
  }
  tell_long_run(first, DecisionKind::rejected,
                is_slow ? fmt::format(" That is slower than the runner-up ({}) was: {}.",
                                      describe(runner_up_->request.spec.knobs),
                                      range_text(rival->low_ns, rival->high_ns))
                        : too_high_text(first));
  const std::optional<LongRun> slow = is_slow ? std::optional(first) : std::nullopt;
  if (runner_up_ && has_room()) {
    const LongRun run = judged_by_rounding(run_long(*runner_up_));
    // Next to each other in time and over the same steps.
    const bool is_slower_still = slow && run.trial.outcome.step_ns > slow->trial.outcome.step_ns;
    const bool is_kept = run.has_held && !is_slower_still;
    tell_long_run(run, is_kept ? DecisionKind::kept : DecisionKind::rejected,
                  run.has_held && is_slower_still
                      ? fmt::format(" Over these steps the winner of the screening is faster: {}.",
                                    base::format_ns(slow->trial.outcome.step_ns))
                      : too_high_text(run));
    if (is_kept) return tell_verdict(run.trial);
    if (slow) {
      tell_long_run(*slow, DecisionKind::kept, " The runner-up is no better.");
      return tell_verdict(slow->trial);
    }
  }
  if (slow) {
    best_hash_ = runner_up_->request.hash;
    decide(Phase::validate, DecisionKind::note,
           "In its long run the winner of the screening was slower than the runner-up. The budget "
           "has no room for a long run of the runner-up: it is known from short trials only.")
        .trial_hash = best_hash_;
    return;
  }
  decide(Phase::validate, DecisionKind::note,
         "No configuration passed the validation: the best one is known from short trials only.")
      .trial_hash = incumbent_->request.hash;
}

void ThreeWalls::tell_verdict(const Trial& trial) {
  best_hash_ = trial.request.hash;
  // By runs of one length: routing drifts while a router learns, and makes long runs slower.
  const bool is_runner_up =
      runner_up_ && trial.request.spec.knobs == runner_up_->request.spec.knobs;
  const Trial& screened = is_runner_up ? *runner_up_ : *incumbent_;
  const Judgement gain = contests_.gain_over(first_fitting_->request.hash, screened.request.hash);
  const StepLevel before = contests_.level_of(first_fitting_->request.hash);
  const StepLevel after = contests_.level_of(screened.request.hash);
  Decision& verdict = decide(
      Phase::validate, DecisionKind::note,
      fmt::format("Validated: {}. {:.2f} times the throughput of the first configuration that "
                  "fitted ({:.2f} to {:.2f}): {} per step in screening, {} there.",
                  describe(trial.request.spec.knobs), gain.gain_ratio + 1, gain.low_ratio + 1,
                  gain.high_ratio + 1, base::format_ns(std::llround(after.ns)),
                  base::format_ns(std::llround(before.ns))));
  verdict.trial_hash = trial.request.hash;
  verdict.baseline_hash = first_fitting_->request.hash;
  verdict.gain_ratio = gain.gain_ratio;
  verdict.gain_low_ratio = gain.low_ratio;
  verdict.gain_high_ratio = gain.high_ratio;
  verdict.noise_ratio = gain.noise_ratio;
  verdict.evidence = {{"before", evidence_of(first_fitting_->outcome)},
                      {"after", evidence_of(trial.outcome)},
                      {"screening", {{"before", json_of(before)}, {"after", json_of(after)}}},
                      {"judgement", to_json(gain)}};
}

}  // namespace moetune::tuner
