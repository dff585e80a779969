// Who is faster: when a configuration takes the incumbent's place, what is measured again before it
// does, and how that is told. See three_walls.h and contest.h.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/base/units.h"
#include "tuner/judgement.h"
#include "tuner/strategies/three_walls.h"

namespace moetune::tuner {
namespace {

/// The incumbent is run again after so many others.
constexpr int64_t kMostRunsSinceIncumbent = 10;

std::string runs_text(const Judgement& judgement) {
  if (judgement.num_runs_before + judgement.num_runs_after <= 2) return {};
  return fmt::format(", by {} and {} runs{}", judgement.num_runs_before, judgement.num_runs_after,
                     judgement.has_turns ? ", the last of them in turns" : "");
}

/// A layout comes with the schedule that suits it, so more may differ than what it is named by.
nlohmann::json changed_knobs(const spec::Knobs& before, const spec::Knobs& after) {
  const nlohmann::json from = to_json(before);
  const nlohmann::json to = to_json(after);
  nlohmann::json changed = nlohmann::json::object();
  for (const auto& [knob, value] : to.items()) {
    if (from.at(knob) != value) changed[knob] = {{"before", from.at(knob)}, {"after", value}};
  }
  return changed;
}

}  // namespace

std::optional<TrialOutcome> ThreeWalls::repeat(const Trial& trial, Purpose purpose,
                                               const std::string& rival) {
  TrialRequest request = repeat_of(trial.request, purpose, attempts_[trial.request.hash] + 1);
  request.phase = phase_;
  const auto known = outcomes_.find({request.hash, request.attempt});
  if (known == outcomes_.end()) {
    // One trial is kept back for the validation, and of the repeats a third for the retuning.
    const int64_t most = sweep_.budget.max_trials / kRepeatShare;
    const bool has_room = num_repeats_ < (phase_ == Phase::scale ? 2 * most / 3 : most) &&
                          num_started() + 1 < sweep_.budget.max_trials;
    if (is_finishing_ || !has_room) return std::nullopt;
    pending_ = std::move(request);
    throw Pending{};
  }
  ++attempts_[request.hash];
  ++num_repeats_;
  if (known->second.status == spec::TrialStatus::ok) contests_.add(request, known->second, rival);
  return known->second;
}

void ThreeWalls::look_at_incumbent_again() {
  const std::string& hash = incumbent_->request.hash;
  if (sweep_.base.clock == spec::ClockMode::virtual_modelled || contests_.num_runs(hash) == 0)
    return;
  if (contests_.num_runs(hash) < 2 || contests_.num_runs_since(hash) >= kMostRunsSinceIncumbent) {
    repeat(*incumbent_, Purpose::again);
  }
}

std::optional<double> ThreeWalls::predicted_ratio(const Trial& incumbent,
                                                  const Contender& contender) {
  if (predictor_ == TimePredictor::none) return std::nullopt;
  // A prediction that was calibrated with this very measurement would count it twice.
  const size_t known = calibrations_before_[contender.trial.request.hash];
  const int64_t before = prediction_of(incumbent.request, known).step_ns;
  const int64_t after = prediction_of(contender.trial.request, known).step_ns;
  if (before <= 0 || after <= 0) return std::nullopt;
  return static_cast<double>(before) / static_cast<double>(after) - 1.0;
}

Judgement ThreeWalls::judge(const Contender& contender) {
  return contests_.judge(incumbent_->request.hash, contender.trial.request.hash,
                         predicted_ratio(*incumbent_, contender));
}

Judgement ThreeWalls::settle(Contender& contender) {
  const std::string incumbent = incumbent_->request.hash;
  const std::string candidate = contender.trial.request.hash;
  Settled settled = contests_.settle(
      incumbent, candidate, [&] { return judge(contender); },
      [&](const NextRun& next) {
        return repeat(next.is_candidate ? contender.trial : *incumbent_, next.purpose,
                      next.is_candidate ? incumbent : candidate);
      });
  if (settled.failure) contender.failure = std::move(settled.failure);
  contender.is_settled = true;
  return settled.judgement;
}

bool ThreeWalls::reject_failed(const Contender& contender) {
  if (contender.trial.is_ok()) return false;
  Decision& decision = decide(
      contender.decision.phase, DecisionKind::rejected,
      fmt::format("{}: ended as {} ({}).", contender.name,
                  spec::name_of(contender.trial.outcome.status), contender.trial.outcome.reason));
  describe_change_in(contender, decision);
  return true;
}

bool ThreeWalls::take_if_better(std::vector<Contender>& contenders) {
  Contender& last = contenders.back();
  const std::string& hash = last.trial.request.hash;
  if (const auto predicted = predicted_ratio(*incumbent_, last);
      predicted && contests_.num_runs_since(hash) == 0) {
    contests_.learn(incumbent_->request.hash, hash, *predicted);
  }
  if (judge(last).verdict != Verdict::gain) return false;
  const Judgement judgement = settle(last);
  if (judgement.verdict != Verdict::gain || last.failure) return false;
  Contender better = std::move(last);
  contenders.pop_back();
  // Layouts go on, against the new incumbent; remedies were remedies for the old one.
  if (phase_ == Phase::retune) conclude(contenders);
  become_incumbent(std::move(better), judgement);
  return true;
}

bool ThreeWalls::look_again(std::vector<Contender>& contenders, bool only_first) {
  for (Contender& contender : contenders) {
    if (!contests_.is_surprising(contender.trial.request.hash, judge(contender))) continue;
    const std::optional<TrialOutcome> outcome = repeat(contender.trial, Purpose::again);
    if (outcome && outcome->status != spec::TrialStatus::ok) contender.failure = outcome;
  }
  bool has_changed = false;
  while (true) {
    std::optional<size_t> best;
    double best_ratio = 0;
    for (size_t i = 0; i < contenders.size(); ++i) {
      if (contenders[i].failure) continue;
      const Judgement judgement = judge(contenders[i]);
      if (judgement.verdict == Verdict::no_gain) continue;
      // Runs that others needed may have made it clear meanwhile.
      if (contenders[i].is_settled && !is_taken(contenders[i], judgement)) continue;
      if (best && judgement.gain_ratio <= best_ratio) continue;
      best = i;
      best_ratio = judgement.gain_ratio;
    }
    if (!best) return has_changed;
    const Judgement judgement = settle(contenders[*best]);
    if (contenders[*best].failure) continue;
    if (!is_taken(contenders[*best], judgement)) continue;
    Contender better = std::move(contenders[*best]);
    contenders.erase(contenders.begin() + static_cast<std::ptrdiff_t>(*best));
    if (only_first) conclude(contenders);
    become_incumbent(std::move(better), judgement);
    has_changed = true;
    if (only_first) return true;
  }
}

// No layout has a claim of its own: which one was measured first is chance. Of two that the noise
// does not let tell apart, the likelier one is taken, but not by a single run. A remedy that
// changes the layout has to be faster for certain, too; whether by as much as counts may be hidden.
bool ThreeWalls::is_taken(const Contender& contender, const Judgement& judgement) const {
  if (judgement.verdict == Verdict::gain) return true;
  const bool is_likelier =
      judgement.num_runs_after >= 2 && judgement.gain_ratio > sweep_.min_gain_ratio;
  if (phase_ == Phase::scale || !is_likelier) return is_likelier;
  return judgement.low_ratio > 0 &&
         !is_same_layout(contender.trial.request.spec.knobs, incumbent_->request.spec.knobs);
}

void ThreeWalls::become_incumbent(Contender contender, const Judgement& judgement) {
  const std::string least = base::format_ratio(sweep_.min_gain_ratio);
  const std::string reason =
      judgement.verdict == Verdict::gain
          ? fmt::format("all of it above the {} that count", least)
          : (judgement.low_ratio > 0
                 ? fmt::format("more than none, though maybe less than the {} that count", least)
                 : "which may be noise") +
                "; of two layouts the one that is more likely faster is kept";
  decide_on(contender, judgement, DecisionKind::kept,
            fmt::format("{}: {} per step, {} the best so far {}, {}{}. {}", contender.name,
                        base::format_ns(contender.trial.outcome.step_ns),
                        describe_change(judgement.gain_ratio, "than"),
                        interval_text(judgement.low_ratio, judgement.high_ratio), reason,
                        runs_text(judgement), contender.why));
  runner_up_ = incumbent_;
  incumbent_ = std::move(contender.trial);
  best_hash_ = incumbent_->request.hash;
}

void ThreeWalls::conclude(const std::vector<Contender>& contenders) {
  for (const Contender& contender : contenders) {
    const Judgement judgement = judge(contender);
    if (contender.failure) {
      decide_on(contender, judgement, DecisionKind::rejected,
                fmt::format("{}: ended as {} when it was measured again ({}).", contender.name,
                            spec::name_of(contender.failure->status), contender.failure->reason));
      continue;
    }
    const std::string seen =
        fmt::format("{}: {} the best so far {}{}", contender.name,
                    describe_change(judgement.gain_ratio, "than"),
                    interval_text(judgement.low_ratio, judgement.high_ratio), runs_text(judgement));
    const std::string least = base::format_ratio(sweep_.min_gain_ratio);
    if (judgement.verdict == Verdict::no_gain) {
      decide_on(contender, judgement, DecisionKind::rejected,
                fmt::format("{}; not kept, as a gain has to exceed {}.", seen, least));
    } else if (judgement.verdict == Verdict::gain) {
      decide_on(contender, judgement, DecisionKind::undecided,
                fmt::format("{}; undecided, as the budget has no room to measure it again.", seen));
    } else {
      decide_on(contender, judgement, DecisionKind::undecided,
                fmt::format("{}; undecided: the noise of a run, {}, hides whether it gains the {} "
                            "that count.",
                            seen, base::format_ratio(judgement.run_noise_ratio), least));
    }
  }
}

void ThreeWalls::describe_change_in(const Contender& contender, Decision& decision) const {
  const Decision& known = contender.decision;
  decision.trial_hash = contender.trial.request.hash;
  decision.baseline_hash = incumbent_->request.hash;
  decision.wall = known.wall;
  decision.remedy = known.remedy;
  decision.knob = known.knob;
  decision.value_before =
      known.knob == "layout" ? describe(incumbent_->request.spec.knobs) : known.value_before;
  decision.value_after = known.value_after;
  decision.evidence = {
      {"before", evidence_of(incumbent_->outcome)},
      {"after", evidence_of(contender.trial.outcome)},
      {"predicted_step_ns", contender.trial.request.prediction.step_ns},
      {"knobs", changed_knobs(incumbent_->request.spec.knobs, contender.trial.request.spec.knobs)}};
}

Decision& ThreeWalls::decide_on(const Contender& contender, const Judgement& judgement,
                                DecisionKind kind, std::string text) {
  while (text.ends_with(' ')) text.pop_back();
  Decision& decision = decide(contender.decision.phase, kind, std::move(text));
  describe_change_in(contender, decision);
  decision.gain_ratio = judgement.gain_ratio;
  decision.gain_low_ratio = judgement.low_ratio;
  decision.gain_high_ratio = judgement.high_ratio;
  decision.noise_ratio = judgement.noise_ratio;
  decision.evidence["judgement"] = to_json(judgement);
  return decision;
}

void ThreeWalls::note_noise() {
  const std::optional<double> noise = contests_.run_noise();
  if (!noise) return;
  Decision& note =
      decide(phase_, DecisionKind::note,
             fmt::format("Runs of one configuration differ by {} (standard deviation); {} of {} "
                         "measurements were made to judge others better.",
                         base::format_ratio(*noise), num_repeats_, num_started()));
  note.evidence = {{"run_noise_ratio", *noise},
                   {"num_repeats", num_repeats_},
                   {"num_measurements", num_started()}};
}

}  // namespace moetune::tuner
