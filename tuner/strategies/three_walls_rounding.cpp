// Whether a long run that is off the reference's losses is wrong, or as far off as rounding alone
// takes training in so many steps; see three_walls.h. Training is chaotic: a text that repeats
// itself took the losses of two correct layouts 0.5 apart in 66 steps.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "engine/spec/loss_band.h"
#include "tuner/strategies/three_walls.h"

namespace moetune::tuner {
namespace {

/// One pair of runs says how far apart others may come only by order of magnitude.
constexpr double kBandPerSpread = 3;
/// The sizes that sum gradients in another order than the reference run does, the first legal one.
constexpr std::array<int64_t, 4> kOtherMicroBatches = {2, 4, 3, 5};

}  // namespace

// Only an early end of this kind asks for it: where all runs agree, the second reference would cost
// as much as the first and change nothing.
std::optional<double> ThreeWalls::rounding_spread() {
  TrialRequest reference = reference_request();
  spec::TrialSpec& s = reference.spec;
  s.records_routing = false;
  const auto size = std::ranges::find_if(kOtherMicroBatches, [&](int64_t micro_batch_size) {
    s.knobs.micro_batch_size = micro_batch_size;
    return spec::check_constraints(spec::parts_of(s)).empty();
  });
  if (size == kOtherMicroBatches.end()) return std::nullopt;
  reference.phase = Phase::validate;
  reference.title = fmt::format("reference once more, in micro-batches of {}: what rounding does",
                                s.knobs.micro_batch_size);
  reference.hash = spec::spec_hash(s);
  const Trial trial = measure(std::move(reference));
  if (!trial.is_ok()) return std::nullopt;
  return spec::largest_mean_difference(reference_loss_, trial.outcome.losses);
}

// The second run needs no strict band in its first steps: those of the same configuration were
// compared strictly in its short trial.
ThreeWalls::LongRun ThreeWalls::judged_by_rounding(LongRun run) {
  const TrialOutcome& outcome = run.trial.outcome;
  const bool is_off = outcome.status == spec::TrialStatus::wrong && !outcome.losses.empty() &&
                      std::isfinite(outcome.losses.back()) && !reference_loss_.empty();
  // For the reference and the run itself.
  const bool has_room = num_started() + 2 <= sweep_.budget.max_trials && !is_finishing_;
  if (!is_off || is_too_large_for_one_ || !has_room) return run;
  const std::optional<double> spread = rounding_spread();
  if (!spread) return run;
  const double band = kBandPerSpread * *spread;
  constexpr double kWidestBand = 1;
  if (band > kWidestBand) {
    decide(
        Phase::validate, "note",
        fmt::format("Two reference runs that differ by rounding alone come {:.2g} apart: over so "
                    "many steps losses do not tell whether a layout is right. A shorter "
                    "validation (validate_steps) does.",
                    *spread))
        .evidence = {{"rounding_spread", *spread}};
    return run;
  }
  const double widest =
      spec::reference_tolerance_at(sweep_.base, spec::total_steps(run.trial.request.spec));
  const bool is_wrong = band <= widest;
  Decision& note = decide(
      Phase::validate, "note",
      is_wrong
          ? fmt::format("Two reference runs that differ by rounding alone come {:.2g} apart in the "
                        "mean of {} losses: what the validation is off is more.",
                        *spread, spec::kLossMeanSteps)
          : fmt::format("The validation went off the reference's losses, but so does a second "
                        "reference run that differs by rounding alone: by {:.2g} in the mean of {} "
                        "losses. So the validation is made once more, within {:.2g}.",
                        *spread, spec::kLossMeanSteps, band));
  note.evidence = {{"rounding_spread", *spread}, {"band", is_wrong ? widest : band}};
  return is_wrong ? run : run_long(run.candidate, band);
}

}  // namespace moetune::tuner
