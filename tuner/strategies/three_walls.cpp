// What the phases of the workflow stand on: running the program against the outcomes known, asking
// for trials, refusing points, predictions. See three_walls.h; the phases are in
// three_walls_{fit,scale,retune,validate}.cpp.
#include "tuner/strategies/three_walls.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/base/units.h"
#include "tuner/prediction.h"

namespace moetune::tuner {
ThreeWalls::ThreeWalls(const spec::SweepSpec& sweep, TimePredictor predictor)
    : sweep_(sweep),
      space_(sweep_),
      cost_models_(1),
      contests_(sweep_.min_gain_ratio, sweep_.base.clock == spec::ClockMode::virtual_modelled),
      predictor_(predictor),
      fit_intervals_(sweep_.base.hardware.memory_bytes, sweep_.memory_margin_ratio) {}

std::optional<TrialRequest> ThreeWalls::ask() {
  pending_.reset();
  decisions_.clear();
  num_calibrations_ = 0;
  fit_intervals_.restart();
  reference_loss_.clear();
  rounding_band_.reset();
  is_too_large_for_one_ = false;
  baseline_.reset();
  first_fitting_.reset();
  incumbent_.reset();
  runner_up_.reset();
  refused_.clear();
  num_refused_.clear();
  measured_.clear();
  attempts_.clear();
  calibrations_before_.clear();
  num_repeats_ = 0;
  contests_.restart();
  is_validating_ = false;
  phase_ = Phase::contract;
  best_hash_.clear();
  try {
    run();
    is_done_ = true;
  } catch (const Pending&) {
    // The next trial is in pending_.
  }
  return pending_;
}

void ThreeWalls::tell(const TrialRequest& request, const TrialOutcome& outcome) {
  outcomes_[{request.hash, request.attempt}] = outcome;
}

std::vector<Decision> ThreeWalls::take_decisions() {
  std::vector<Decision> fresh;
  if (decisions_.size() > num_taken_) {
    fresh.assign(decisions_.begin() + static_cast<int64_t>(num_taken_), decisions_.end());
    num_taken_ = decisions_.size();
  }
  return fresh;
}

Progress ThreeWalls::progress() const {
  // The phases' usual lengths: what is left is a guess until the end.
  const int64_t left = is_done_                    ? 0
                       : phase_ == Phase::validate ? 0
                       : phase_ == Phase::retune   ? 6
                       : phase_ == Phase::profile  ? 12
                       : phase_ == Phase::scale    ? 14 + sweep_.scale_trials
                                                   : 18 + sweep_.scale_trials;
  return {phase_, num_started(), std::min(sweep_.budget.max_trials, num_started() + left)};
}

void ThreeWalls::run() {
  try {
    if (!contract()) return;
    if (!fit()) return;
    scale();
    retune();
  } catch (const BudgetSpent&) {
    const char* rest = incumbent_ ? "only the validation is left" : "nothing is left to validate";
    decide(
        phase_, DecisionKind::note,
        num_started() + 1 >= sweep_.budget.max_trials
            ? fmt::format("The budget of {} trials is used up: {}.", sweep_.budget.max_trials, rest)
            : fmt::format("The time budget of {} s is nearly used up: {}.",
                          sweep_.budget.max_seconds, rest));
  }
  if (incumbent_) validate();
}

ThreeWalls::Trial ThreeWalls::measure(TrialRequest request) {
  const auto known = outcomes_.find({request.hash, request.attempt});
  // A point that was pruned once may be run later, against another incumbent.
  if (known == outcomes_.end() || known->second.status == spec::TrialStatus::pruned) {
    // One trial is kept back for the validation.
    const bool is_last = num_started() + 1 >= sweep_.budget.max_trials;
    if (!is_validating_ && (is_last || is_finishing_)) throw BudgetSpent{};
    pending_ = std::move(request);
    throw Pending{};
  }
  Trial trial{std::move(request), known->second};
  const bool is_new = measured_.insert(trial.request.hash).second;
  if (is_new) calibrations_before_[trial.request.hash] = num_calibrations_;
  // The reference's device is another, and a validation's steps are more.
  if (is_new && !trial.request.is_reference && !trial.request.is_final) {
    fit_intervals_.add(trial.request.prediction, trial.outcome);
  }
  if (is_new && trial.is_ok()) contests_.add(trial.request, trial.outcome);
  if (is_new && trial.is_ok() && !trial.outcome.op_times.empty() &&
      predictor_ == TimePredictor::calibrated) {
    ++num_calibrations_;
    if (cost_models_.size() <= num_calibrations_) {
      cost_models_.push_back(cost_models_.back());
      cost_models_.back().add(trial.request.spec, trial.outcome, rows_);
    }
  }
  return trial;
}

void ThreeWalls::refuse(TrialRequest request, Action action, const std::string& reason,
                        int64_t limit) {
  const bool is_invalid = action == Action::invalid;
  // Invalid points are counted by rule, pruned ones by phase.
  const std::string kind = is_invalid ? reason.substr(0, reason.find(':'))
                                      : fmt::format("{} pruned", name_of(request.phase));
  if (!refused_.insert(request.hash).second) return;
  const int64_t count = ++num_refused_[kind];
  if (count > limit || outcomes_.contains({request.hash, request.attempt})) return;
  if (is_finishing_) throw BudgetSpent{};
  request.action = action;
  request.reason = reason;
  pending_ = std::move(request);
  throw Pending{};
}

bool ThreeWalls::is_illegal(const spec::Knobs& knobs, Phase phase, const std::string& title) {
  const std::vector<spec::Violation>& violations = point_of(knobs).violations;
  if (violations.empty()) return false;
  refuse(request_for(knobs, phase, title), Action::invalid,
         fmt::format("{}: {}", violations.front().rule, violations.front().message),
         kMaxInvalidPerRule);
  return true;
}

std::vector<std::string> ThreeWalls::recompute_ladder() const {
  return by_recompute_weight(space_.values("recompute"));
}

TrialRequest ThreeWalls::request_for(const spec::Knobs& knobs, Phase phase, std::string title) {
  TrialRequest request;
  request.spec = sweep_.base;
  request.spec.knobs = knobs;
  request.spec.reference_loss = reference_loss_;
  if (rounding_band_) request.spec.reference_tolerance = *rounding_band_;
  const Point& point = point_of(knobs);
  request.hash = point.hash;
  request.phase = phase;
  request.title = std::move(title);
  if (point.violations.empty()) predict(request);
  return request;
}

const ThreeWalls::Point& ThreeWalls::point_of(const spec::Knobs& knobs) {
  const auto [place, is_new] = points_.try_emplace(knobs_key(knobs));
  if (is_new) {
    // The losses to reproduce are no part of what a trial is.
    spec::TrialSpec spec = sweep_.base;
    spec.knobs = knobs;
    place->second = {spec::spec_hash(spec), space_.check(knobs)};
  }
  return place->second;
}

const CompiledStep& ThreeWalls::compiled(const spec::TrialSpec& spec) {
  const auto key = std::pair(spec.knobs, spec::total_steps(spec));
  if (!last_compiled_ || last_compiled_key_ != key) {
    last_compiled_.emplace(spec, rows_);
    last_compiled_key_ = key;
  }
  return *last_compiled_;
}

void ThreeWalls::predict(TrialRequest& request) {
  request.prediction = prediction_of(request, num_calibrations_);
}

const Prediction& ThreeWalls::prediction_of(const TrialRequest& request, size_t num_calibrations) {
  const auto key = std::pair(request.hash, num_calibrations);
  auto found = predictions_.find(key);
  if (found == predictions_.end()) {
    Prediction prediction;
    // What was measured meanwhile says nothing new of memory.
    const auto earlier = predictions_.lower_bound({request.hash, 0});
    if (earlier != predictions_.end() && earlier->first.first == request.hash) {
      prediction = earlier->second;
    } else {
      put_memory(estimate_memory(request.spec, compiled(request.spec), rows_), prediction);
    }
    if (predictor_ == TimePredictor::none) {
      prediction.step_ns = 1;
    } else {
      put_time(cost_models_[num_calibrations].estimate(request.spec, compiled(request.spec)),
               prediction);
    }
    found = predictions_.emplace(key, std::move(prediction)).first;
  }
  return found->second;
}

int64_t ThreeWalls::predicted_step_ns(const spec::Knobs& knobs) {
  if (predictor_ == TimePredictor::none) return 1;
  spec::TrialSpec spec = sweep_.base;
  spec.knobs = knobs;
  return cost_models_[num_calibrations_].estimate(spec, compiled(spec)).step_ns;
}

double ThreeWalls::optimism() {
  // Until predictions have been put to the test.
  constexpr size_t kFewestTests = 4;
  constexpr double kUntested = 0.8;
  double lowest = 1;
  size_t num_tests = 0;
  for (const auto& [hash, known] : calibrations_before_) {
    const auto outcome = outcomes_.find({hash, 0});
    const auto prediction = predictions_.find({hash, known});
    if (known == 0 || outcome == outcomes_.end() || prediction == predictions_.end()) continue;
    if (outcome->second.status != spec::TrialStatus::ok || prediction->second.step_ns <= 0)
      continue;
    ++num_tests;
    lowest = std::min(lowest, static_cast<double>(outcome->second.step_ns) /
                                  static_cast<double>(prediction->second.step_ns));
  }
  return num_tests < kFewestTests ? std::min(lowest, kUntested) : lowest;
}

bool ThreeWalls::is_promising(const TrialRequest& request) {
  if (predictor_ == TimePredictor::none || num_started() < sweep_.budget.min_trials) return true;
  const auto now = static_cast<double>(step_ns_of(incumbent_->request.spec.knobs));
  const double best = optimism() * static_cast<double>(request.prediction.step_ns);
  return best * (1 + sweep_.min_gain_ratio) < now;
}

void ThreeWalls::tell_hopeless(const TrialRequest& request, std::string_view what) {
  const double optimism_ratio = optimism();
  Decision& decision = decide(
      phase_, DecisionKind::note,
      fmt::format("No more {}: the best of those left is predicted to take {}. Even if it were "
                  "{:.1f} % faster than that, as the most surprising trial so far may have been, "
                  "it would not gain the {:.1f} % that count.",
                  what, base::format_ns(request.prediction.step_ns), 100 * (1 - optimism_ratio),
                  100 * sweep_.min_gain_ratio));
  decision.evidence = {{"predicted_step_ns", request.prediction.step_ns},
                       {"optimism", optimism_ratio}};
}

int64_t ThreeWalls::longest_peak(const TrialRequest& request) {
  auto found = long_run_peaks_.find(request.hash);
  if (found == long_run_peaks_.end()) {
    const int64_t peak =
        estimate_memory(validation_spec(request.spec.knobs), compiled(request.spec), rows_)
            .peak_bytes;
    found = long_run_peaks_.emplace(request.hash, peak).first;
  }
  return std::max(found->second, request.prediction.peak_bytes);
}

// The longer run needs no look where the shorter one is too much.
Room ThreeWalls::room_for(const TrialRequest& request) {
  if (sweep_.base.hardware.memory_bytes <= 0) return Room::enough;
  const Prediction& prediction = request.prediction;
  return fit_intervals_.room(prediction, prediction.peak_bytes) == Room::none
             ? Room::none
             : fit_intervals_.room(prediction, longest_peak(request));
}

std::string ThreeWalls::over_capacity_text(const TrialRequest& request) {
  const Prediction& prediction = request.prediction;
  const bool is_short = fit_intervals_.room(prediction, prediction.peak_bytes) == Room::none;
  return fit_intervals_.reason(prediction,
                               is_short ? prediction.peak_bytes : longest_peak(request));
}

spec::TrialSpec ThreeWalls::validation_spec(const spec::Knobs& knobs) const {
  spec::TrialSpec spec = sweep_.base;
  spec.knobs = knobs;
  spec.num_steps = sweep_.validate_steps;
  return spec;
}

nlohmann::json ThreeWalls::peak_evidence(const TrialRequest& request) {
  const PeakInterval peak = peak_of(request);
  return {{"predicted_peak_bytes", request.prediction.peak_bytes},
          {"predicted_peak_low_bytes", peak.low_bytes},
          {"predicted_peak_high_bytes", peak.high_bytes},
          {"capacity_bytes", sweep_.base.hardware.memory_bytes}};
}

Decision& ThreeWalls::decide(Phase phase, DecisionKind kind, std::string text) {
  Decision& decision = decisions_.emplace_back();
  decision.phase = phase;
  decision.kind = kind;
  decision.text = std::move(text);
  decision.evidence = nlohmann::json::object();
  return decision;
}

}  // namespace moetune::tuner
