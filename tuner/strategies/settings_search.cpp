// Each ask() goes through all phases from the start, with the results so far, up to the first trial
// that has not been run.
#include "tuner/strategies/settings_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "kernels/base/units.h"
#include "tuner/judgement.h"

namespace moetune::tuner {
namespace {

using base::Wall;

/// Changes that are tried to make a run fit.
constexpr int kMostFits = 8;
/// Refused points of one kind that are reported; more would only fill the page.
constexpr size_t kMostRefused = 24;
/// A change whose predicted step time is more than this many times the incumbent's is not run.
constexpr double kHopelessRatio = 1.3;

std::string ending_text(const TrialOutcome& outcome) {
  return fmt::format("{} ({})", spec::name_of(outcome.status), outcome.reason);
}

std::string percent_list(const TrialOutcome& outcome) {
  std::vector<std::pair<double, std::string>> ceilings;
  for (const auto& [name, ratio] : outcome.ceilings) {
    if (ratio >= 0.01) ceilings.emplace_back(ratio, name);
  }
  std::ranges::sort(ceilings, std::greater<>());
  std::string text;
  for (const auto& [ratio, name] : ceilings) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, base::format_ratio(ratio));
  }
  return text;
}

/// What the wall is told of, where the profiler's step is not the one that is compared: " The
/// traced step took 140 ms, ...". Empty where it is about as long, or not known.
std::string traced_step_text(int64_t traced_ns, int64_t usual_ns) {
  constexpr double kOther = 1.2;
  if (traced_ns <= 0 || usual_ns <= 0) return {};
  const double ratio = static_cast<double>(traced_ns) / static_cast<double>(usual_ns);
  if (std::max(ratio, 1 / ratio) < kOther) return {};
  return fmt::format(" The traced step took {}, {:.1f} times as long: the wall is that step's{}.",
                     base::format_ns(traced_ns), ratio,
                     ratio > 1 ? ", and the profiler slows the host most" : "");
}

/// Why a change is tried, where a rule recommends it or the space only allows it.
std::string why_of(const SettingsMove& move) {
  if (move.remedy.empty()) return "The space allows it, no rule recommends it.";
  std::string why =
      move.why.empty() ? fmt::format("The rule {} recommends it.", move.remedy) : move.why;
  if (move.ceiling_ratio > 0 && move.ceiling_ratio < 1) {
    why += fmt::format(" At most {} of the step would be gained.",
                       base::format_ratio(move.ceiling_ratio));
  }
  return why;
}

/// Why one of the two is measured once more.
std::string why_again(const NextRun& next, const std::string& title) {
  const std::string which = next.is_candidate ? "it" : "the best so far";
  switch (next.purpose) {
    case Purpose::longer:
      return fmt::format("Noise hides whether '{}' gains enough: {} is run over more steps.", title,
                         which);
    case Purpose::in_turns:
      return fmt::format(
          "Noise hides whether '{}' gains enough: the best so far and it are run in turns.", title);
    case Purpose::first:
    case Purpose::again:
      break;
  }
  return fmt::format(
      "'{}' looks faster than the best so far: {} is run again, as that may be noise.", title,
      which);
}

}  // namespace

SettingsSearch::SettingsSearch(const spec::SweepSpec& sweep, std::unique_ptr<SettingsSpace> space)
    : sweep_(sweep), space_(std::move(space)), contests_(sweep.min_gain_ratio, false) {}

std::optional<TrialRequest> SettingsSearch::ask() {
  pass_ = {};
  contests_.restart();
  try {
    run();
    is_done_ = true;
  } catch (const Pending&) {
    // The next trial is in pass_.pending.
  }
  return pass_.pending;
}

void SettingsSearch::tell(const TrialRequest& request, const TrialOutcome& outcome) {
  outcomes_[{request.hash, request.attempt}] = outcome;
}

std::vector<Decision> SettingsSearch::take_decisions() {
  std::vector<Decision> fresh;
  if (pass_.decisions.size() > num_taken_) {
    fresh.assign(pass_.decisions.begin() + static_cast<std::ptrdiff_t>(num_taken_),
                 pass_.decisions.end());
    num_taken_ = pass_.decisions.size();
  }
  return fresh;
}

Progress SettingsSearch::progress() const {
  const int64_t left = is_done_ || pass_.is_validating ? 0 : pass_.phase == Phase::retune ? 5 : 10;
  return {pass_.phase, num_started(), std::min(sweep_.budget.max_trials, num_started() + left)};
}

void SettingsSearch::run() {
  try {
    if (!contract()) return;
    scale();
    retune();
  } catch (const BudgetSpent&) {
    decide(pass_.phase, DecisionKind::note,
           fmt::format("The budget is nearly used up: {}.", pass_.incumbent
                                                                ? "only the validation is left"
                                                                : "nothing is left to validate"));
  }
  if (pass_.incumbent) validate();
}

Decision& SettingsSearch::decide(Phase phase, DecisionKind kind, std::string text) {
  Decision& decision = pass_.decisions.emplace_back();
  decision.phase = phase;
  decision.kind = kind;
  decision.text = std::move(text);
  return decision;
}

SettingsSearch::Trial SettingsSearch::measure(TrialRequest request, const Settings& settings) {
  request.phase = pass_.phase;
  request.spec.reference_loss = pass_.reference_loss;
  const Key key{request.hash, request.attempt};
  const auto known = outcomes_.find(key);
  if (known == outcomes_.end() || known->second.status == spec::TrialStatus::pruned) {
    // One is kept back for the validation.
    const bool is_last = num_started() + 1 >= sweep_.budget.max_trials;
    if (!pass_.is_validating && (is_last || is_finishing_)) throw BudgetSpent{};
    pass_.pending = std::move(request);
    throw Pending{};
  }
  pass_.started.insert(key);
  Trial trial{settings, std::move(request), known->second};
  const bool is_new = pass_.measured.insert(trial.request.hash).second;
  if (is_new && trial.is_ok() && !trial.request.is_profiled) {
    contests_.add(trial.request, trial.outcome);
  }
  return trial;
}

SettingsSearch::Trial SettingsSearch::measure(const Settings& settings, const std::string& title,
                                              std::string why, bool is_profiled) {
  TrialRequest request = space_->request(settings, is_profiled, sweep_.base.num_steps);
  request.title = title;
  request.why = std::move(why);
  return measure(std::move(request), settings);
}

void SettingsSearch::refuse(TrialRequest request, Action action, const std::string& reason) {
  if (!pass_.refused.insert(request.hash).second || pass_.refused.size() > kMostRefused) return;
  if (outcomes_.contains({request.hash, 0})) return;
  if (is_finishing_) throw BudgetSpent{};
  request.phase = pass_.phase;
  request.action = action;
  request.reason = reason;
  pass_.pending = std::move(request);
  throw Pending{};
}

bool SettingsSearch::is_worth_running(const Settings& settings, const std::string& title) {
  TrialRequest request = space_->request(settings, false, sweep_.base.num_steps);
  request.title = title;
  if (const std::string rule = space_->broken_rule(settings); !rule.empty()) {
    refuse(std::move(request), Action::invalid, rule);
    return false;
  }
  if (const std::string why = space_->too_large(request); !why.empty()) {
    refuse(std::move(request), Action::pruned, why);
    return false;
  }
  if (!pass_.incumbent) return true;
  const int64_t best_ns = pass_.incumbent->request.prediction.step_ns;
  const int64_t own_ns = request.prediction.step_ns;
  if (best_ns <= 0 || static_cast<double>(own_ns) < kHopelessRatio * static_cast<double>(best_ns)) {
    return true;
  }
  refuse(std::move(request), Action::pruned,
         fmt::format("predicted to take {} a step, the best so far {}", base::format_ns(own_ns),
                     base::format_ns(best_ns)));
  return false;
}

void SettingsSearch::take_as_first(const Trial& trial) {
  pass_.reference_loss = trial.outcome.losses;
  pass_.incumbent = trial;
  pass_.first_fit = trial;
  pass_.best_hash = trial.request.hash;
  Decision& decision = decide(
      pass_.phase, DecisionKind::note,
      fmt::format("{} takes {} a step. Its losses are the reference of all others.{}",
                  trial.request.title, base::format_ns(trial.outcome.step_ns), space_->remark()));
  decision.trial_hash = trial.request.hash;
  decision.evidence = {{"after", evidence_of(trial.outcome)}};
}

bool SettingsSearch::contract() {
  const Settings base = space_->base();
  TrialRequest request = space_->request(base, false, sweep_.base.num_steps);
  request.title = "the run as it is";
  request.why =
      "The command as it is comes first: all others are compared with its time and losses.";
  request.is_baseline = true;
  const Trial baseline = measure(std::move(request), base);
  if (baseline.is_ok()) {
    take_as_first(baseline);
    return true;
  }
  Decision& decision = decide(Phase::contract, DecisionKind::note,
                              fmt::format("The run as it is: {}.", ending_text(baseline.outcome)));
  decision.trial_hash = baseline.request.hash;
  // Only lack of memory is something that a change of settings is known to cure.
  return baseline.outcome.status == spec::TrialStatus::oom && fit(baseline);
}

bool SettingsSearch::fit(const Trial& baseline) {
  pass_.phase = Phase::fit;
  int num_tried = 0;
  // A change that does not suffice alone is what the next ones start from; none leads back.
  Trial last = baseline;
  std::set<Settings> seen = {baseline.settings};
  while (num_tried < kMostFits) {
    bool has_moved = false;
    for (const SettingsMove& move : space_->moves(last.settings, last.outcome)) {
      const std::string title = space_->change_text(baseline.settings, move.settings);
      if (!seen.insert(move.settings).second) continue;
      if (!is_worth_running(move.settings, title)) continue;
      Trial trial = measure(move.settings, title,
                            fmt::format("Out of memory: {}. {}", last.request.title,
                                        why_of({move.settings, move.remedy, move.why, 0})));
      ++num_tried;
      Decision& decision =
          decide(Phase::fit, trial.is_ok() ? DecisionKind::kept : DecisionKind::tried,
                 fmt::format("{}: {}. {}", title,
                             trial.is_ok() ? std::string("it fits") : ending_text(trial.outcome),
                             move.why));
      describe(trial, move, decision);
      decision.baseline_hash = baseline.request.hash;
      if (trial.is_ok()) {
        take_as_first(trial);
        return true;
      }
      if (trial.outcome.status == spec::TrialStatus::oom) {
        last = std::move(trial);
        has_moved = true;
      }
      if (has_moved || num_tried >= kMostFits) break;
    }
    if (!has_moved) break;
  }
  decide(Phase::fit, DecisionKind::note, "No change that the space allows has made the run fit.");
  return false;
}

void SettingsSearch::scale() {
  pass_.phase = Phase::scale;
  std::vector<TrialRequest> ranked;
  std::map<std::string, Settings> by_hash;
  const Settings start = pass_.incumbent->settings;
  for (const Settings& layout : space_->layouts()) {
    // Everything but the sizes stays as the incumbent has it.
    Settings settings = start;
    for (const auto& [name, value] : layout) settings.insert_or_assign(name, value);
    if (settings == start) continue;
    TrialRequest request = space_->request(settings, false, sweep_.base.num_steps);
    request.title = space_->change_text(start, settings);
    if (!space_->broken_rule(settings).empty()) {
      is_worth_running(settings, request.title);  // told
      continue;
    }
    if (by_hash.emplace(request.hash, settings).second) ranked.push_back(std::move(request));
  }
  std::ranges::stable_sort(ranked, [](const TrialRequest& a, const TrialRequest& b) {
    const auto ns = [](const TrialRequest& r) {
      return r.prediction.step_ns > 0 ? r.prediction.step_ns : INT64_MAX;
    };
    return ns(a) < ns(b);
  });
  int64_t num_measured = 0;
  for (const TrialRequest& request : ranked) {
    if (num_measured >= sweep_.scale_trials) break;
    const Settings& settings = by_hash.at(request.hash);
    if (!is_worth_running(settings, request.title)) continue;
    const Trial trial =
        measure(settings, request.title,
                "The space allows this layout or batch size: these come before other "
                "settings." +
                    prediction_text(settings));
    ++num_measured;
    contest(trial, {settings, "", "", 0});
  }
}

TrialOutcome SettingsSearch::profile() {
  if (!space_->can_profile()) return {};
  pass_.phase = Phase::profile;
  const Trial trial = measure(pass_.incumbent->settings, "a look into the best so far",
                              "A trace of the best so far shows its wall, and so what to change "
                              "next. Its time is not compared.",
                              true);
  pass_.phase = Phase::retune;
  const TrialOutcome& seen = trial.outcome;
  const Wall label = seen.wall.value_or(Wall::unknown);
  const int64_t usual_ns = pass_.incumbent->outcome.step_ns;
  Decision& decision = decide(
      Phase::profile, DecisionKind::wall,
      !trial.is_ok() ? fmt::format("The profiled run: {}.", ending_text(seen))
      : label == Wall::unknown
          ? fmt::format("At {} per step the wall is not known: no trace shows it{}{}.",
                        base::format_ns(usual_ns), seen.ceilings.empty() ? "" : ": ",
                        percent_list(seen))
          : fmt::format("At {} per step the wall is {}{}: {}.{}", base::format_ns(usual_ns),
                        name_of(label), seen.wall_cause.empty() ? "" : " (" + seen.wall_cause + ")",
                        percent_list(seen),
                        seen.wall_doubt.empty() ? "" : " " + seen.wall_doubt + ".") +
                traced_step_text(seen.traced_step_ns, usual_ns));
  decision.trial_hash = trial.request.hash;
  decision.baseline_hash = pass_.incumbent->request.hash;
  decision.wall = seen.wall ? name_of(label) : "";
  decision.evidence = {{"label", seen.wall ? name_of(label) : ""},
                       {"sub_cause", seen.wall_cause},
                       {"ceilings", seen.ceilings}};
  return seen;
}

bool SettingsSearch::goes_back(const Settings& settings) const {
  return std::ranges::all_of(settings, [&](const auto& setting) {
    return pass_.incumbent->settings.at(setting.first) == setting.second ||
           pass_.beaten.contains(setting);
  });
}

void SettingsSearch::retune() {
  pass_.phase = Phase::retune;
  std::set<std::pair<std::optional<Wall>, std::string>> tried;  // wall and change
  bool has_changed = true;
  while (has_changed) {
    has_changed = false;
    const TrialOutcome seen = profile();
    pass_.phase = Phase::retune;
    for (const SettingsMove& move : space_->moves(pass_.incumbent->settings, seen)) {
      const std::string title = space_->change_text(pass_.incumbent->settings, move.settings);
      if (goes_back(move.settings) || !tried.emplace(seen.wall, title).second) continue;
      if (!is_worth_running(move.settings, title)) continue;
      const std::string wall = seen.wall && !move.remedy.empty()
                                   ? fmt::format("The wall is {}. ", name_of(*seen.wall))
                                   : "";
      const Trial trial =
          measure(move.settings, title, wall + why_of(move) + prediction_text(move.settings));
      if (trial.request.hash == pass_.incumbent->request.hash) continue;
      if (contest(trial, move)) {
        has_changed = true;
        break;
      }
    }
  }
}

std::optional<double> SettingsSearch::predicted_ratio(const Trial& candidate) const {
  const auto before = static_cast<double>(pass_.incumbent->request.prediction.step_ns);
  const auto after = static_cast<double>(candidate.request.prediction.step_ns);
  if (before <= 0 || after <= 0) return std::nullopt;
  return before / after - 1;
}

std::string SettingsSearch::prediction_text(const Settings& settings) const {
  const int64_t own_ns = space_->request(settings, false, sweep_.base.num_steps).prediction.step_ns;
  const int64_t best_ns = pass_.incumbent ? pass_.incumbent->request.prediction.step_ns : 0;
  if (own_ns <= 0 || best_ns <= 0) return "";
  return fmt::format(" Predicted to take {} a step, the best so far {}.", base::format_ns(own_ns),
                     base::format_ns(best_ns));
}

std::optional<TrialOutcome> SettingsSearch::repeat(const Trial& trial, Purpose purpose,
                                                   const std::string& rival, std::string why) {
  TrialRequest request = repeat_of(trial.request, purpose, pass_.attempts[trial.request.hash] + 1);
  request.why = std::move(why);
  request.phase = pass_.phase;
  request.spec.reference_loss = pass_.reference_loss;
  const Key key{request.hash, request.attempt};
  const auto known = outcomes_.find(key);
  if (known == outcomes_.end()) {
    const bool has_room = pass_.num_repeats < sweep_.budget.max_trials / kRepeatShare &&
                          num_started() + 1 < sweep_.budget.max_trials;
    if (is_finishing_ || !has_room) return std::nullopt;
    pass_.pending = std::move(request);
    throw Pending{};
  }
  pass_.started.insert(key);
  ++pass_.attempts[request.hash];
  ++pass_.num_repeats;
  if (known->second.status == spec::TrialStatus::ok) contests_.add(request, known->second, rival);
  return known->second;
}

void SettingsSearch::describe(const Trial& candidate, const SettingsMove& move,
                              Decision& decision) const {
  decision.trial_hash = candidate.request.hash;
  if (pass_.incumbent) decision.baseline_hash = pass_.incumbent->request.hash;
  decision.remedy = move.remedy;
  const Settings& from = pass_.incumbent ? pass_.incumbent->settings : space_->base();
  nlohmann::json knobs = nlohmann::json::object();
  for (const auto& [name, value] : candidate.settings) {
    const auto was = from.find(name);
    if (was == from.end() || was->second == value) continue;
    if (decision.knob.empty()) {
      decision.knob = name;
      decision.value_before = was->second;
      decision.value_after = value;
    }
    knobs[name] = {{"before", was->second}, {"after", value}};
  }
  decision.evidence = {{"after", evidence_of(candidate.outcome)},
                       {"knobs", knobs},
                       {"ceiling_ratio", move.ceiling_ratio}};
  if (pass_.incumbent) decision.evidence["before"] = evidence_of(pass_.incumbent->outcome);
}

bool SettingsSearch::contest(const Trial& candidate, const SettingsMove& move) {
  const std::string& title = candidate.request.title;
  if (!candidate.is_ok()) {
    describe(candidate, move,
             decide(pass_.phase, DecisionKind::rejected,
                    fmt::format("{}: {}.", title, ending_text(candidate.outcome))));
    return false;
  }
  const std::string& before = pass_.incumbent->request.hash;
  const std::string& after = candidate.request.hash;
  const std::optional<double> predicted = predicted_ratio(candidate);
  const auto [judgement, failure] = contests_.settle(
      before, after, [&] { return contests_.judge(before, after, predicted); },
      [&](const NextRun& next) {
        return repeat(next.is_candidate ? candidate : *pass_.incumbent, next.purpose,
                      next.is_candidate ? before : after, why_again(next, title));
      });
  const bool is_gain = judgement.verdict == Verdict::gain && !failure;
  std::string text = fmt::format("{}: {} per step, {} the best so far {}, by {} and {} runs", title,
                                 base::format_ns(candidate.outcome.step_ns),
                                 describe_change(judgement.gain_ratio, "than"),
                                 interval_text(judgement.low_ratio, judgement.high_ratio),
                                 judgement.num_runs_before, judgement.num_runs_after);
  const std::string least = base::format_ratio(sweep_.min_gain_ratio);
  DecisionKind kind = is_gain ? DecisionKind::kept : DecisionKind::rejected;
  if (failure) {
    text += fmt::format("; measured again it was {}", ending_text(*failure));
  } else if (judgement.verdict == Verdict::undecided) {
    kind = DecisionKind::undecided;
    text += fmt::format(
        "; undecided: the noise of a run, {}, hides whether it gains the {} that "
        "count",
        base::format_ratio(judgement.run_noise_ratio), least);
  } else if (!is_gain) {
    text += fmt::format("; a gain has to exceed {}", least);
  }
  text += ".";
  if (is_gain && !move.why.empty()) text += " " + move.why;
  Decision& decision = decide(pass_.phase, kind, std::move(text));
  describe(candidate, move, decision);
  decision.gain_ratio = judgement.gain_ratio;
  decision.gain_low_ratio = judgement.low_ratio;
  decision.gain_high_ratio = judgement.high_ratio;
  decision.noise_ratio = judgement.noise_ratio;
  decision.evidence["judgement"] = to_json(judgement);
  if (!is_gain) return false;
  for (const auto& [name, value] : pass_.incumbent->settings) {
    if (candidate.settings.at(name) != value) pass_.beaten.emplace(name, value);
  }
  pass_.runner_up = pass_.incumbent;
  pass_.incumbent = candidate;
  pass_.best_hash = candidate.request.hash;
  return true;
}

void SettingsSearch::validate() {
  pass_.phase = Phase::validate;
  pass_.is_validating = true;
  for (const bool is_runner_up : {false, true}) {
    if (is_runner_up && !pass_.runner_up) break;
    const Trial& winner = is_runner_up ? *pass_.runner_up : *pass_.incumbent;
    if (num_started() >= sweep_.budget.max_trials) break;
    TrialRequest request = space_->request(winner.settings, false, sweep_.validate_steps);
    request.title = space_->asks_for_steps()
                        ? fmt::format("validation over {} steps", sweep_.validate_steps)
                        : "validation over the steps of the command";
    request.is_final = true;
    request.why = is_runner_up
                      ? "The best did not pass its validation: this was the best before it."
                      : "Nothing else is tried: a long run shows whether speed and losses of "
                        "the best hold.";
    const Trial trial = measure(std::move(request), winner.settings);
    const TrialOutcome& outcome = trial.outcome;
    const double loss = loss_at_end(outcome.losses);
    const bool has_learned = sweep_.validate_max_loss <= 0 ||
                             (!outcome.losses.empty() && loss < sweep_.validate_max_loss);
    const bool has_held = trial.is_ok() && has_learned;
    Decision& decision = decide(
        Phase::validate, has_held ? DecisionKind::kept : DecisionKind::rejected,
        !trial.is_ok()
            ? fmt::format("The validation: {}.", ending_text(outcome))
            : fmt::format("{} steps: loss {:.3f} at the end, {} per step.{}", outcome.losses.size(),
                          loss, base::format_ns(outcome.step_ns),
                          has_learned ? ""
                                      : " The loss did not fall below what validate_max_loss asks "
                                        "for."));
    decision.trial_hash = trial.request.hash;
    decision.baseline_hash = winner.request.hash;
    decision.evidence = {{"before", evidence_of(winner.outcome)}, {"after", evidence_of(outcome)}};
    if (!has_held) continue;
    pass_.best_hash = trial.request.hash;
    const Judgement gain = contests_.gain_over(pass_.first_fit->request.hash, winner.request.hash);
    Decision& verdict = decide(
        Phase::validate, DecisionKind::note,
        fmt::format("Validated: {}. {:.2f} times the throughput of the first configuration that "
                    "fitted ({:.2f} to {:.2f}).",
                    pass_.first_fit->request.hash == winner.request.hash
                        ? std::string("the first configuration that fitted")
                        : space_->change_text(space_->base(), winner.settings),
                    gain.gain_ratio + 1, gain.low_ratio + 1, gain.high_ratio + 1));
    verdict.trial_hash = trial.request.hash;
    verdict.baseline_hash = pass_.first_fit->request.hash;
    verdict.gain_ratio = gain.gain_ratio;
    verdict.gain_low_ratio = gain.low_ratio;
    verdict.gain_high_ratio = gain.high_ratio;
    verdict.noise_ratio = gain.noise_ratio;
    return;
  }
  Decision& note = decide(
      Phase::validate, DecisionKind::note,
      "No configuration passed the validation: the best one is known from short trials only.");
  note.trial_hash = pass_.incumbent->request.hash;
}

}  // namespace moetune::tuner
