// The order of a hunt: the ends, the place, a fresh look at the suspect; and when each of them has
// been asked enough.
#include "tuner/bisect/commit_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"

namespace moetune::tuner {
namespace {

constexpr double kSuspicion = 0.9;   ///< posterior from which a commit is a suspect
constexpr double kOpenMass = 0.15;   ///< of further changes: more than that is looked into
constexpr double kLeastGain = 1e-5;  ///< nats a run, for which nothing is run
constexpr int kFewestAgreeing = 2;   ///< pairs of exact readings that show that runs agree
constexpr int kMostRepeats = 8;      ///< of one commit, planned ahead when its build is weighed

// For expected_runs_left(), fitted to hunts (tests/bench/bisect_bench.cpp, column guessed).
constexpr double kDoubtOfEnds = 3.0;  ///< nats of doubt whether there is a change at all
/// (shift / noise)^2 at which a run tells 63 % of what a run without noise would.
constexpr double kSquaresOfAnswer = 6.0;
constexpr double kLeastPerRun = 0.01;    ///< nats that any run tells
constexpr double kMostOverLikely = 2.5;  ///< nine of ten hunts take at most so many times the guess

double entropy(double p) {
  if (p <= 0 || p >= 1) return 0.0;
  return -p * std::log(p) - (1 - p) * std::log(1 - p);
}

}  // namespace

CommitHunt::CommitHunt(HuntOptions options)
    : options_(std::move(options)),
      ends_({options_.confidence, options_.max_end_runs, options_.is_deterministic}) {
  MOETUNE_CHECK(options_.num_positions >= 1, "{} commits to search", options_.num_positions);
  MOETUNE_CHECK(
      options_.min_effect_ratio > 0 && options_.confidence > 0.5 && options_.confidence < 1,
      "a least effect of {} at confidence {}", options_.min_effect_ratio, options_.confidence);
  const auto count = static_cast<size_t>(options_.num_positions);
  MOETUNE_CHECK(options_.prior.empty() || options_.prior.size() == count,
                "{} prior weights for {} commits", options_.prior.size(), count);
  is_built_.assign(count + 1, false);
  is_broken_.assign(count + 1, false);
  result_.posterior.assign(count + 1, 0.0);
}

void CommitHunt::add(int position, double value, double time) {
  MOETUNE_CHECK(position >= 0 && position <= options_.num_positions && std::isfinite(value) &&
                    std::isfinite(time),
                "a reading of {} at position {}", value, position);
  readings_.push_back({position, options_.is_higher_better ? -value : value, time});
  is_built_[static_cast<size_t>(position)] = true;
}

void CommitHunt::add_failure(int position) { is_broken_[static_cast<size_t>(position)] = true; }

bool CommitHunt::can_measure(int position) const {
  return !is_broken_[static_cast<size_t>(position)];
}

std::vector<CommitReadings> CommitHunt::by_commit() const {
  std::vector<CommitReadings> commits(is_built_.size());
  for (size_t i = 0; i < readings_.size(); ++i) {
    CommitReadings& commit = commits[static_cast<size_t>(readings_[i].position)];
    commit.position = readings_[i].position;
    commit.values.push_back(freed(i));
  }
  std::erase_if(commits, [](const CommitReadings& commit) { return commit.values.empty(); });
  return commits;
}

std::vector<double> CommitHunt::values_at(int first, int last) const {
  std::vector<size_t> order;
  for (size_t i = 0; i < readings_.size(); ++i) {
    if (readings_[i].position >= first && readings_[i].position <= last) order.push_back(i);
  }
  if (first != last) {
    std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
      return readings_[a].position < readings_[b].position;
    });
  }
  std::vector<double> values;
  values.reserve(order.size());
  for (const size_t i : order) values.push_back(freed(i));
  return values;
}

double CommitHunt::scale() const {
  std::vector<double> values = values_at(0, 0);
  if (values.empty()) return 1.0;
  const double level = std::abs(profiler::median(values));
  if (level > 0) return level;
  for (const TimedReading& reading : readings_) values.push_back(std::abs(reading.value));
  const double largest = *std::max_element(values.begin(), values.end());
  return largest > 0 ? largest : 1.0;
}

double CommitHunt::min_effect() const { return options_.min_effect_ratio * scale(); }

std::optional<RunRequest> CommitHunt::next() {
  if (is_over_) return std::nullopt;
  for (const int end : {0, options_.num_positions}) {
    if (can_measure(end)) continue;
    finish(HuntVerdict::unresolved,
           fmt::format("the {} end cannot be measured", end == 0 ? "good" : "bad"));
    return std::nullopt;
  }
  if (options_.is_deterministic) return bisect_exactly();
  if (!is_searching_) {
    const std::optional<RunRequest> request = compare_ends();
    if (request || is_over_) return request;
  }
  return search();
}

std::optional<RunRequest> CommitHunt::compare_ends() {
  const size_t count = readings_.size();
  const RunRequest request{Ends::is_good_next(count) ? 0 : options_.num_positions,
                           RunPurpose::ends};
  if (count < ends_.num_first_runs() || count % 2 == 1) return request;
  update_drift();
  describe_effect();
  const EndsState state = ends_.judge(drift_.is_there());
  if (state == EndsState::open) return request;
  if (state == EndsState::differ) {
    is_searching_ = true;
    ends_again_.begin(readings_.size());
  } else {
    if (state != EndsState::swapped) result_.no_change = 1 - ends_.difference().above;
    finish_ends(state);
  }
  return std::nullopt;
}

bool CommitHunt::drift_explains_ends() const {
  if (!drift_.is_there()) return false;
  return drift_.is_trend() ||
         raw_ends_differ(readings_, 0, options_.num_positions, min_effect(), options_.confidence);
}

void CommitHunt::finish_ends(EndsState state) {
  result_.is_swapped = state == EndsState::swapped;
  result_.is_too_noisy = state == EndsState::hidden;
  EndsVerdict verdict = verdict_on(state, drift_explains_ends(), {"end", "commit"}, is_searching_);
  finish(verdict.verdict, std::move(verdict.reason));
}

void CommitHunt::update_drift() {
  drift_.update(readings_, {0, options_.num_positions}, 1e-12 * scale());
  result_.has_drift = drift_.is_there();
}

void CommitHunt::update_posterior() {
  ChangePointOptions options;
  options.num_positions = options_.num_positions;
  options.prior = options_.prior;
  options.weight_of_reading = drift_.weight_of_reading();
  posterior_ = change_point_posterior(by_commit(), options);
  result_.posterior = posterior_.change;
  result_.no_change = posterior_.no_change;
  std::vector<int> order(static_cast<size_t>(options_.num_positions));
  std::iota(order.begin(), order.end(), 1);
  std::stable_sort(order.begin(), order.end(), [this](int a, int b) {
    return posterior_.change[static_cast<size_t>(a)] > posterior_.change[static_cast<size_t>(b)];
  });
  result_.suspects.clear();
  double sum = 0.0;
  for (const int position : order) {
    result_.suspects.push_back(position);
    sum += posterior_.change[static_cast<size_t>(position)];
    if (sum >= options_.confidence) break;
  }
  std::sort(result_.suspects.begin(), result_.suspects.end());
}

// Nats that a run is expected to tell of where the change is. The level at a position takes one of
// two values, `separation` noises apart: the information of a binary signal in normal noise, for
// which 1 - exp(-separation^2 / 6) of the entropy is within a few percent of the integral.
double CommitHunt::gain_of(int position, double separation) const {
  const double spread = posterior_.level_spread[static_cast<size_t>(position)] / posterior_.noise;
  const double share = std::min(1.0, 4 * spread * spread / (separation * separation));
  const double p = 0.5 * (1 - std::sqrt(1 - share));
  const double uncertainty = entropy(p);
  const double build = is_built_[static_cast<size_t>(position)] ? 0.0 : costs_.build;
  double best = 0.0;
  for (int repeats = 1; repeats <= kMostRepeats; ++repeats) {
    const double told = uncertainty * (1 - std::exp(-repeats * separation * separation / 6));
    best = std::max(best, told / (build + repeats));
  }
  return best;
}

std::optional<RunRequest> CommitHunt::search() {
  update_drift();
  update_posterior();
  describe_effect();
  const auto probability = [this](int position) {
    return posterior_.change[static_cast<size_t>(position)];
  };
  // Those that no longer look like one are looked at again.
  std::erase_if(verified_, [&](int p) { return probability(p) < options_.confidence; });
  if (posterior_.no_change >= options_.confidence || (ends_.are_alike() && verified_.empty())) {
    finish_ends(EndsState::alike);
    return std::nullopt;
  }
  if (num_runs() >= options_.max_runs) {
    add_culprits(verified_);
    finish(HuntVerdict::unresolved, fmt::format("{} runs were not enough", num_runs()));
    return std::nullopt;
  }
  if (ends_again_.is_due(readings_.size(), drift_.is_there())) {
    const bool is_good_next = ends_again_.take(readings_.size(), drift_.is_there());
    return RunRequest{is_good_next ? 0 : options_.num_positions, RunPurpose::reference};
  }
  if (suspect_ != 0) {
    if (probability(suspect_) < 0.5) {
      suspect_ = 0;
    } else if (const auto request = verify(suspect_)) {
      return request;
    } else if (probability(suspect_) >= options_.confidence) {
      verified_.push_back(suspect_);
      suspect_ = 0;
    }
  }
  const std::vector<bool> is_hidden = unmeasurable_suspects();
  const bool hides_some = std::find(is_hidden.begin(), is_hidden.end(), true) != is_hidden.end();
  double open_mass = 0.0;
  int best = 0;
  for (int p = 1; p <= options_.num_positions; ++p) {
    if (std::find(verified_.begin(), verified_.end(), p) != verified_.end()) continue;
    if (is_hidden[static_cast<size_t>(p)] || is_too_small(p)) continue;
    open_mass += probability(p);
    if (best == 0 || probability(p) > probability(best)) best = p;
  }
  if ((!verified_.empty() || hides_some) && open_mass < kOpenMass) {
    add_culprits(verified_);
    if (hides_some) {
      finish(HuntVerdict::unresolved, "the commits that are left cannot be measured");
    } else {
      finish(HuntVerdict::culprit, "");
    }
    return std::nullopt;
  }
  if (suspect_ == 0 && best != 0 && probability(best) >= kSuspicion) {
    suspect_ = best;
    suspected_at_ = readings_.size();
    if (const auto request = verify(suspect_)) return request;
  }
  const auto [low, high] = std::minmax_element(posterior_.level.begin(), posterior_.level.end());
  const double separation = std::max((*high - *low) / posterior_.noise, 0.1);
  int chosen = -1;
  double most = 0.0;
  for (int p = 0; p <= options_.num_positions; ++p) {
    if (!can_measure(p)) continue;
    const double gain = gain_of(p, separation);
    if (gain > most) {
      most = gain;
      chosen = p;
    }
  }
  if (most < kLeastGain && posterior_.no_change > 1 - options_.confidence) {
    // Nothing but the ends can tell whether there is anything to be found.
    return RunRequest{readings_.size() % 2 == 0 ? 0 : options_.num_positions, RunPurpose::ends};
  }
  if (chosen < 0 || most < kLeastGain) {
    add_culprits(verified_);
    finish(HuntVerdict::unresolved, "the commits that are left cannot be measured");
    return std::nullopt;
  }
  return RunRequest{chosen, RunPurpose::search};
}

// What the level is expected to rise by at a position is the probability of a change there times
// the change that it would be.
bool CommitHunt::is_too_small(int position) const {
  const auto p = static_cast<size_t>(position);
  if (posterior_.change[p] <= 0) return true;
  const double step = (posterior_.level[p] - posterior_.level[p - 1]) / posterior_.change[p];
  return std::abs(step) < kSmallShare * min_effect();
}

std::vector<bool> CommitHunt::unmeasurable_suspects() const {
  std::vector<bool> is_hidden(is_built_.size(), false);
  int before = 0;
  for (int p = 1; p <= options_.num_positions; ++p) {
    if (!can_measure(p)) continue;
    const int first = before + 1;
    before = p;
    if (first == p) continue;
    const auto begin = posterior_.change.begin();
    const double mass = std::accumulate(begin + first, begin + p + 1, 0.0);
    if (mass < options_.confidence) continue;
    std::fill(is_hidden.begin() + first, is_hidden.begin() + p + 1, true);
  }
  return is_hidden;
}

// What is not known yet, over what a run tells of it: half as much as a perfect question would.
std::optional<RunsLeft> CommitHunt::expected_runs_left() const {
  if (is_over_) return RunsLeft{};
  const double commits = std::log(static_cast<double>(options_.num_positions));
  if (options_.is_deterministic) {
    const int all = static_cast<int>(std::ceil(commits / std::log(2.0))) + 2;
    const int left = std::max(1, all - num_runs());
    return RunsLeft{left, left};
  }
  if (!result_.is_known || result_.noise_ratio <= 0) return std::nullopt;
  double doubt = commits + kDoubtOfEnds;
  double noises = std::max(result_.effect_ratio * (options_.is_higher_better ? -1 : 1),
                           options_.min_effect_ratio) /
                  result_.noise_ratio;
  if (is_searching_ && posterior_.noise > 0) {
    doubt = 0.0;
    for (const double p : posterior_.change) doubt += entropy(p);
    const auto [low, high] = std::minmax_element(posterior_.level.begin(), posterior_.level.end());
    noises = (*high - *low) / posterior_.noise;
  }
  const double per_run =
      0.5 * std::log(2.0) * (1 - std::exp(-noises * noises / kSquaresOfAnswer)) + kLeastPerRun;
  const double fresh = 2.0 * kFreshRuns;
  const int most = options_.max_runs - num_runs();
  const auto within = [&](double runs) {
    return std::clamp(static_cast<int>(std::ceil(runs)), 1, std::max(1, most));
  };
  return RunsLeft{within(doubt / per_run + fresh),
                  within(kMostOverLikely * doubt / per_run + fresh)};
}

std::optional<RunRequest> CommitHunt::verify(int suspect) {
  size_t fresh_before = 0;
  size_t fresh_after = 0;
  for (size_t i = suspected_at_; i < readings_.size(); ++i) {
    fresh_before += readings_[i].position == suspect - 1;
    fresh_after += readings_[i].position == suspect;
  }
  // One that cannot be measured any more is no longer asked for.
  if (!can_measure(suspect)) fresh_after = kFreshRuns;
  if (!can_measure(suspect - 1)) fresh_before = kFreshRuns;
  if (fresh_before >= kFreshRuns && fresh_after >= kFreshRuns) return std::nullopt;
  const bool is_after_next = fresh_after < fresh_before || fresh_before >= kFreshRuns;
  return RunRequest{is_after_next ? suspect : suspect - 1, RunPurpose::verify};
}

// Halves every stretch whose ends differ.
std::optional<RunRequest> CommitHunt::bisect_exactly() {
  std::vector<std::optional<double>> values(is_built_.size());
  for (const TimedReading& reading : readings_) {
    std::optional<double>& value = values[static_cast<size_t>(reading.position)];
    if (value && *value != reading.value) {
      result_.is_inexact = true;
      finish(HuntVerdict::unresolved, "two runs of one commit differ: it is not exact");
      return std::nullopt;
    }
    value = reading.value;
  }
  const int last = options_.num_positions;
  for (const int end : {0, last}) {
    if (!values[static_cast<size_t>(end)]) return RunRequest{end, RunPurpose::ends};
  }
  describe_effect();
  const EndsState state = ends_.judge(false);
  if (state == EndsState::alike) result_.no_change = 1.0;
  if (state != EndsState::differ) {
    finish_ends(state);
    return std::nullopt;
  }
  const double least = min_effect();
  const auto differs = [&](int a, int b) {
    return std::abs(*values[static_cast<size_t>(b)] - *values[static_cast<size_t>(a)]) >= least;
  };
  result_.no_change = 0.0;
  std::fill(result_.posterior.begin(), result_.posterior.end(), 0.0);
  result_.suspects.clear();
  std::vector<int> culprits;
  bool is_stuck = false;
  int asked = 0;
  int num_stretches = 0;
  int before = 0;
  for (int p = 1; p <= last; ++p) {
    if (!values[static_cast<size_t>(p)]) continue;
    const int first = before;
    before = p;
    if (!differs(first, p)) continue;
    ++num_stretches;
    if (p == first + 1) {
      culprits.push_back(p);
      result_.suspects.push_back(p);
      result_.posterior[static_cast<size_t>(p)] = 1.0;
      continue;
    }
    // The middle, or what can be measured next to it.
    int chosen = 0;
    for (int away = 0; away <= p - first && chosen == 0; ++away) {
      for (const int candidate : {(first + p) / 2 - away, (first + p) / 2 + away}) {
        if (chosen == 0 && candidate > first && candidate < p && can_measure(candidate)) {
          chosen = candidate;
        }
      }
    }
    if (asked == 0) asked = chosen;
    is_stuck = is_stuck || chosen == 0;
    for (int s = first + 1; s <= p; ++s) {
      result_.suspects.push_back(s);
      result_.posterior[static_cast<size_t>(s)] = 1.0 / (p - first);
    }
  }
  if (options_.wants_one && num_stretches > 1) {
    finish(HuntVerdict::unresolved, "it changes more than once");
    return std::nullopt;
  }
  if (asked != 0) return RunRequest{asked, RunPurpose::search};
  const std::optional<RunRequest> second = verify_exactly(culprits);
  if (second || is_over_) return second;
  add_culprits(culprits);
  if (culprits.empty() && !is_stuck) {
    finish(HuntVerdict::unresolved,
           "it grew little by little: no single commit changes it by the least effect");
  } else if (is_stuck) {
    finish(HuntVerdict::unresolved, "the commits that are left cannot be measured");
  } else {
    finish(HuntVerdict::culprit, "");
  }
  return std::nullopt;
}

// Where nothing changed, exact readings of different commits agree to the last bit: enough of that
// tells as much as a second run would.
std::optional<RunRequest> CommitHunt::verify_exactly(const std::vector<int>& culprits) {
  if (options_.second_look == SecondLook::none) return std::nullopt;
  const std::vector<CommitReadings> commits = by_commit();
  int num_agreeing = 0;
  bool all_agree = true;
  for (size_t i = 0; i + 1 < commits.size(); ++i) {
    const double change = commits[i + 1].values.front() - commits[i].values.front();
    num_agreeing += change == 0;
    if (change != 0 && std::abs(change) < min_effect()) all_agree = false;
  }
  const bool shows_itself = all_agree && num_agreeing >= kFewestAgreeing;
  if (options_.second_look == SecondLook::in_doubt && shows_itself) return std::nullopt;
  for (const int culprit : culprits) {
    for (const int position : {culprit - 1, culprit}) {
      const auto commit = std::find_if(commits.begin(), commits.end(),
                                       [&](const auto& c) { return c.position == position; });
      if (commit->values.size() >= 2) continue;
      if (can_measure(position)) return RunRequest{position, RunPurpose::verify};
      finish(HuntVerdict::unresolved, "a suspect or its parent could not be run a second time");
      return std::nullopt;
    }
  }
  return std::nullopt;
}

void CommitHunt::describe_effect() {
  const int last = options_.num_positions;
  const std::vector<double> good = values_at(0, 0);
  const std::vector<double> bad = values_at(last, last);
  if (good.empty() || bad.empty()) return;
  const double unit = scale();
  const double sign = options_.is_higher_better ? -1.0 : 1.0;
  ends_.update(good, bad, min_effect(), drift_.weight_of_reading());
  static_cast<EndsEffect&>(result_) =
      ends_effect_of(ends_.difference(), sign, unit, good.size(), bad.size());
}

void CommitHunt::add_culprits(const std::vector<int>& positions) {
  std::vector<int> sorted = positions;
  std::sort(sorted.begin(), sorted.end());
  const double sign = options_.is_higher_better ? -1.0 : 1.0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const int first = i == 0 ? 0 : sorted[i - 1];
    const int last = i + 1 < sorted.size() ? sorted[i + 1] - 1 : options_.num_positions;
    const std::vector<double> before = values_at(first, sorted[i] - 1);
    const std::vector<double> after = values_at(sorted[i], last);
    Culprit culprit;
    culprit.position = sorted[i];
    culprit.confidence = result_.posterior[static_cast<size_t>(sorted[i])];
    LevelDifference difference;
    if (options_.is_deterministic) {
      difference = exact_difference(before.back(), after.front());
      culprit.before = sign * before.back();
    } else {
      difference = difference_of(before, after);
      culprit.before = sign * profiler::median(before);
    }
    culprit.after = culprit.before + sign * difference.mean;
    const double unit = culprit.before != 0 ? std::abs(culprit.before) : scale();
    static_cast<Effect&>(culprit) = effect_of(difference, sign, unit);
    result_.culprits.push_back(culprit);
  }
  // Real, but smaller than what matters; the only one is told all the same.
  const auto is_small = [this](const Culprit& culprit) {
    return std::abs(culprit.effect_ratio) < options_.min_effect_ratio;
  };
  if (!std::all_of(result_.culprits.begin(), result_.culprits.end(), is_small)) {
    std::erase_if(result_.culprits, is_small);
  }
}

LevelDifference CommitHunt::difference_of(const std::vector<double>& a,
                                          const std::vector<double>& b) const {
  return level_difference(a, b, min_effect(), options_.confidence, drift_.weight_of_reading());
}

void CommitHunt::stop(const std::string& reason) {
  if (is_over_) return;
  add_culprits(verified_);
  finish(HuntVerdict::unresolved, reason);
}

void CommitHunt::finish(HuntVerdict verdict, std::string reason) {
  is_over_ = true;
  result_.verdict = verdict;
  result_.reason = std::move(reason);
}

}  // namespace moetune::tuner
