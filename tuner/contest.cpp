#include "tuner/contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"

namespace moetune::tuner {
namespace {

/// Runs of the candidate in turns, at most: each with one of the incumbent after it.
constexpr int64_t kMostTurns = 2;

/// A spread that leaves a measurement as it is.
constexpr double kNoPrediction = 1e6;

double ratio_of(double log_gain) { return std::expm1(log_gain); }

RunReading reading_of(const TrialOutcome& outcome) {
  return tuner::reading_of(static_cast<double>(outcome.step_ns),
                           static_cast<double>(outcome.step_low_ns),
                           static_cast<double>(outcome.step_high_ns), outcome.samples_ns,
                           (outcome.started_s + outcome.ended_s) / 2);
}

}  // namespace

TrialRequest repeat_of(const TrialRequest& request, Purpose purpose, int64_t attempt) {
  TrialRequest repeat = request;
  repeat.attempt = attempt;
  repeat.purpose = purpose;
  repeat.is_baseline = false;
  if (purpose == Purpose::longer || purpose == Purpose::in_turns) {
    repeat.num_steps = kLongerSteps * request.spec.num_steps;
  }
  repeat.title = fmt::format("{}, {}", request.title, words_of(purpose));
  return repeat;
}

nlohmann::json to_json(const Judgement& judgement) {
  return {{"gain_ratio", judgement.gain_ratio},
          {"low_ratio", judgement.low_ratio},
          {"high_ratio", judgement.high_ratio},
          {"measured_ratio", judgement.measured_ratio},
          {"predicted_ratio", judgement.predicted_ratio},
          {"run_noise_ratio", judgement.run_noise_ratio},
          {"num_runs_before", judgement.num_runs_before},
          {"num_runs_after", judgement.num_runs_after},
          {"has_turns", judgement.has_turns}};
}

Contests::Kind Contests::kind_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::first:
    case Purpose::again:
      return Kind::usual;
    case Purpose::longer:
      return Kind::longer;
    case Purpose::in_turns:
      return Kind::in_turns;
  }
  return Kind::usual;
}

void Contests::restart() {
  log_.clear();
  hashes_.clear();
  indices_.clear();
  readings_.clear();
  turns_.clear();
  prediction_errors_.clear();
  digest_.clear();
}

void Contests::add(const TrialRequest& request, const TrialOutcome& outcome,
                   const std::string& rival) {
  if (outcome.step_ns <= 0) return;
  const auto next = static_cast<int>(indices_.size());
  const int index =
      indices_.try_emplace({request.hash, kind_of(request.purpose)}, next).first->second;
  if (request.purpose == Purpose::in_turns) {
    turns_[std::minmax(request.hash, rival)].push_back(log_.num_runs());
  }
  const RunReading reading = reading_of(outcome);
  log_.add(index, reading);
  hashes_.push_back(request.hash);
  readings_[index].push_back(reading);
  digest_ =
      fmt::format("{:x} {} {}", std::hash<std::string>()(digest_), request.hash, request.attempt);
}

std::optional<int> Contests::index_of(const std::string& hash, Kind kind) const {
  const auto found = indices_.find({hash, kind});
  return found == indices_.end() ? std::nullopt : std::optional(found->second);
}

const std::vector<size_t>& Contests::places_in_turns(const std::string& a,
                                                     const std::string& b) const {
  static const std::vector<size_t> kNone;
  const auto found = turns_.find(std::minmax(a, b));
  return found == turns_.end() ? kNone : found->second;
}

int64_t Contests::num_in_turns(const std::string& hash, const std::string& rival) const {
  return std::ranges::count_if(places_in_turns(hash, rival),
                               [&](size_t place) { return hashes_[place] == hash; });
}

// Independent measurements of one gain: by the usual runs, by longer ones, and in turns.
std::vector<LogGain> Contests::measured(const std::string& incumbent,
                                        const std::string& candidate) {
  const std::string key = fmt::format("{}|{}|{}", digest_, incumbent, candidate);
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  std::vector<LogGain> gains;
  for (const Kind kind : {Kind::usual, Kind::longer, Kind::in_turns}) {
    const auto before = index_of(incumbent, kind);
    const auto after = index_of(candidate, kind);
    if (!before || !after) continue;
    if (kind != Kind::in_turns) {
      gains.push_back(log_.gain(*before, *after));
    } else if (num_in_turns(incumbent, candidate) > 0 && num_in_turns(candidate, incumbent) > 0) {
      gains.push_back(log_.gain_in_turns(*before, *after, places_in_turns(incumbent, candidate)));
    }
  }
  MOETUNE_CHECK(!gains.empty(), "trials {} and {} were not both measured", incumbent, candidate);
  known_.emplace(key, gains);
  return gains;
}

Judgement Contests::judge(const std::string& incumbent, const std::string& candidate,
                          std::optional<double> predicted_ratio) {
  const double spread = predicted_ratio ? prediction_errors_.spread() : PredictionErrors().spread();
  return judge_by(incumbent, candidate, predicted_ratio, spread);
}

Judgement Contests::gain_over(const std::string& first, const std::string& last) {
  if (first != last) return judge_by(first, last, std::nullopt, kNoPrediction);
  Judgement none;
  none.verdict = Verdict::no_gain;
  none.num_runs_before = none.num_runs_after = num_runs(first);
  return none;
}

Judgement Contests::judge_by(const std::string& incumbent, const std::string& candidate,
                             std::optional<double> predicted_ratio, double spread) {
  const double least = std::log1p(min_gain_ratio_);
  Judgement judgement;
  judgement.num_runs_before = num_runs(incumbent);
  judgement.num_runs_after = num_runs(candidate);
  judgement.predicted_ratio = predicted_ratio.value_or(0.0);
  if (is_exact_) {
    const double gain = std::log(level_of(incumbent).ns) - std::log(level_of(candidate).ns);
    judgement.gain_ratio = judgement.measured_ratio = ratio_of(gain);
    judgement.low_ratio = judgement.high_ratio = judgement.gain_ratio;
    judgement.verdict = gain > least ? Verdict::gain : Verdict::no_gain;
    return judgement;
  }
  const std::vector<LogGain> gains = measured(incumbent, candidate);
  const LogGain gain = shrunk(gains, std::log1p(judgement.predicted_ratio), spread);
  judgement.gain_ratio = ratio_of(gain.mean);
  judgement.low_ratio = ratio_of(gain.low);
  judgement.high_ratio = ratio_of(gain.high);
  judgement.measured_ratio = ratio_of(shrunk(gains, 0.0, kNoPrediction).mean);
  judgement.noise_ratio = (judgement.high_ratio - judgement.low_ratio) / 2;
  judgement.run_noise_ratio = gain.noise;
  judgement.has_turns = num_in_turns(candidate, incumbent) > 0;
  if (gain.low > least) {
    judgement.verdict = Verdict::gain;
  } else if (gain.high < least) {
    judgement.verdict = Verdict::no_gain;
  }
  return judgement;
}

// The incumbent goes first and last. One that has begun is ended, whatever it looks like meanwhile.
std::optional<NextRun> Contests::next_in_turns(const std::string& incumbent,
                                               const std::string& candidate) const {
  const int64_t num_before = num_in_turns(incumbent, candidate);
  const int64_t num_after = num_in_turns(candidate, incumbent);
  if (num_before > num_after && num_after >= kMostTurns) return std::nullopt;
  return NextRun{num_before > num_after, Purpose::in_turns};
}

std::optional<NextRun> Contests::next_run(const std::string& incumbent,
                                          const std::string& candidate,
                                          const Judgement& judgement) const {
  if (is_exact_) return std::nullopt;
  const int64_t num_turns = num_in_turns(candidate, incumbent);
  if (num_turns > 0 && num_in_turns(incumbent, candidate) == num_turns) {
    return next_in_turns(incumbent, candidate);
  }
  switch (judgement.verdict) {
    case Verdict::no_gain:
      return std::nullopt;
    case Verdict::gain:
      if (num_runs(candidate) < 2) return NextRun{true, Purpose::again};
      if (num_runs(incumbent) < 2) return NextRun{false, Purpose::again};
      return std::nullopt;
    case Verdict::undecided:
      if (!index_of(candidate, Kind::longer)) return NextRun{true, Purpose::longer};
      if (!index_of(incumbent, Kind::longer)) return NextRun{false, Purpose::longer};
      return next_in_turns(incumbent, candidate);
  }
  return std::nullopt;
}

Settled Contests::settle(
    const std::string& incumbent, const std::string& candidate,
    const std::function<Judgement()>& judge_both,
    const std::function<std::optional<TrialOutcome>(const NextRun&)>& measure) {
  Settled settled{judge_both(), std::nullopt};
  while (const auto next = next_run(incumbent, candidate, settled.judgement)) {
    const std::optional<TrialOutcome> outcome = measure(*next);
    if (!outcome) break;
    if (outcome->status != spec::TrialStatus::ok) {
      if (next->is_candidate) settled.failure = outcome;
      break;
    }
    settled.judgement = judge_both();
  }
  return settled;
}

bool Contests::is_surprising(const std::string& candidate, const Judgement& judgement) const {
  return !is_exact_ && judgement.verdict == Verdict::no_gain &&
         judgement.predicted_ratio > min_gain_ratio_ && num_runs(candidate) < 2;
}

void Contests::learn(const std::string& incumbent, const std::string& candidate,
                     double predicted_ratio) {
  if (is_exact_) return;
  prediction_errors_.add(std::log1p(predicted_ratio), measured(incumbent, candidate).front());
}

int64_t Contests::num_runs_since(const std::string& hash) const {
  const auto last = std::find(hashes_.rbegin(), hashes_.rend(), hash);
  return last - hashes_.rbegin();
}

int64_t Contests::num_runs(const std::string& hash) const {
  return std::ranges::count(hashes_, hash);
}

StepLevel Contests::level_of(const std::string& hash) const {
  for (const Kind kind : {Kind::usual, Kind::longer, Kind::in_turns}) {
    if (const auto index = index_of(hash, kind)) return level_of_runs(readings_.at(*index));
  }
  MOETUNE_CHECK(false, "trial {} was not measured", hash);
  return {};
}

}  // namespace moetune::tuner
