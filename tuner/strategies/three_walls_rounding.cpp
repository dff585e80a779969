// Whether a trial that is off the reference's losses is wrong, or as far off as rounding alone
// takes training in so many steps. Training is chaotic: a text that repeats
// itself took the losses of two correct layouts 0.5 apart in 66 steps.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "engine/spec/loss_band.h"
#include "tuner/judgement.h"
#include "tuner/strategies/three_walls.h"

namespace moetune::tuner {
namespace {

/// Band over the spread of the one pair of reference runs, which tells the order of magnitude only.
constexpr double kBandPerSpread = 3;
/// A wider one would let anything pass.
constexpr double kWidestBand = 1;
/// The sizes that sum gradients in another order than the reference run does, the first legal one.
constexpr std::array<int64_t, 4> kOtherMicroBatches = {2, 4, 3, 5};

/// The subject of a sentence.
std::string name_of_run(const TrialRequest& request) {
  return request.is_final ? "The validation" : describe(request.spec.knobs);
}

}  // namespace

// Runs only once a trial has ended off the reference: where all runs agree, the second reference
// would cost as much as the first and change nothing. It is made once and serves all such trials.
std::optional<double> ThreeWalls::rounding_spread(int64_t num_steps, int64_t num_more) {
  TrialRequest reference = reference_request();
  spec::TrialSpec& s = reference.spec;
  s.records_routing = false;
  const auto size = std::ranges::find_if(kOtherMicroBatches, [&](int64_t micro_batch_size) {
    s.knobs.micro_batch_size = micro_batch_size;
    return spec::check_constraints(spec::parts_of(s)).empty();
  });
  if (size == kOtherMicroBatches.end()) return std::nullopt;
  reference.phase = phase_;
  reference.title = fmt::format("reference once more, in micro-batches of {}: what rounding does",
                                s.knobs.micro_batch_size);
  reference.hash = spec::spec_hash(s);
  // A known run was asked for when there was room, so a resumed sweep takes the same way.
  const bool is_known = outcomes_.contains({reference.hash, reference.attempt});
  const int64_t num_needed = (measured_.contains(reference.hash) ? 0 : 1) + num_more;
  if (num_started() + num_needed > sweep_.budget.max_trials) return std::nullopt;
  if (!is_known && is_finishing_) return std::nullopt;
  const Trial trial = measure(std::move(reference));
  if (!trial.is_ok()) return std::nullopt;
  const auto first = [&](const std::vector<double>& losses) {
    return std::span(losses).first(std::min(losses.size(), static_cast<size_t>(num_steps)));
  };
  return spec::largest_mean_difference(first(reference_loss_), first(trial.outcome.losses));
}

bool ThreeWalls::is_off_reference(const Trial& trial) const {
  const TrialOutcome& outcome = trial.outcome;
  if (outcome.status != spec::TrialStatus::wrong || is_too_large_for_one_) return false;
  if (outcome.losses.empty() || !std::isfinite(outcome.losses.back())) return false;
  // A gradient that is not a number ends a trial as wrong, too.
  return spec::largest_mean_difference(outcome.losses, reference_loss_) >
         trial.request.spec.reference_tolerance;
}

std::optional<double> ThreeWalls::band_of_rounding(const Trial& trial) {
  if (!is_off_reference(trial)) return std::nullopt;
  const int64_t num_steps = spec::total_steps(trial.request.spec);
  // The run itself once more, and after a short one the validation.
  const std::optional<double> spread = rounding_spread(num_steps, trial.request.is_final ? 1 : 2);
  if (!spread) return std::nullopt;
  const double band = kBandPerSpread * *spread;
  const double widest = spec::reference_tolerance_at(trial.request.spec, num_steps);
  const std::string who = name_of_run(trial.request);
  std::string text;
  if (band > kWidestBand) {
    text = fmt::format(
        "{} went off the reference's losses. Two reference runs that differ by rounding alone come "
        "{:.2g} apart: over so many steps losses do not tell whether a layout is right. {}",
        who, *spread,
        trial.request.is_final ? "A shorter validation (validate_steps) does."
                               : "Shorter trials (num_steps) do.");
  } else if (band <= widest) {
    text = fmt::format(
        "Two reference runs that differ by rounding alone come {:.2g} apart in the mean of {} "
        "losses. {} is off by more, so it stays wrong.",
        *spread, spec::kLossMeanSteps, who);
  } else {
    text = fmt::format(
        "{} went off the reference's losses, but so does a second reference run that differs by "
        "rounding alone: by {:.2g} in the mean of {} losses. So it is run once more, within "
        "{:.2g}.",
        who, *spread, spec::kLossMeanSteps, band);
  }
  Decision& note = decide(phase_, DecisionKind::note, std::move(text));
  note.evidence = {{"rounding_spread", *spread}, {"band", std::max(widest, band)}};
  return band > widest && band <= kWidestBand ? std::optional(band) : std::nullopt;
}

// The trial's row in the database still says wrong. This note tells readers that it is cleared.
void ThreeWalls::tell_cleared(const Trial& first, const Trial& second) {
  Decision& note = decide(
      phase_, DecisionKind::note,
      fmt::format("Cleared by the perturbed reference: {}. It ended as wrong, as {}; within {:.2g} "
                  "of the reference's losses, which is what rounding alone explains, it runs to "
                  "its end.",
                  first.request.title, first.outcome.reason,
                  second.request.spec.reference_tolerance));
  note.trial_hash = first.request.hash;
  note.evidence = {{"is_cleared", true},
                   {"cleared_by", second.request.hash},
                   {"band", second.request.spec.reference_tolerance}};
}

// The second run needs no strict band in its first steps: those of the same configuration were
// compared more strictly in its short trial.
ThreeWalls::LongRun ThreeWalls::judged_by_rounding(LongRun run) {
  const std::optional<double> band = band_of_rounding(run.trial);
  if (!band) return run;
  LongRun second = run_long(run.candidate, band);
  if (second.trial.is_ok()) tell_cleared(run.trial, second.trial);
  return second;
}

ThreeWalls::Trial ThreeWalls::measure_judged(TrialRequest request) {
  Trial trial = measure(std::move(request));
  const std::optional<double> band = band_of_rounding(trial);
  if (!band) return trial;
  TrialRequest again = trial.request;
  again.spec.reference_tolerance = *band;
  // The tolerance is not part of a spec's hash; one more step makes this another run.
  ++again.spec.num_steps;
  again.hash = spec::spec_hash(again.spec);
  again.title += fmt::format(", within {:.2g} of the reference", *band);
  again.is_baseline = false;
  predict(again);
  Trial second = measure(std::move(again));
  if (!second.is_ok()) return second;
  tell_cleared(trial, second);
  rounding_band_ = std::max(rounding_band_.value_or(0), *band);
  return second;
}

}  // namespace moetune::tuner
