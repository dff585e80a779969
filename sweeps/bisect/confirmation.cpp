#include "sweeps/bisect/confirmation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tuner/stats/change_points.h"
#include "tuner/stats/drift.h"

namespace moetune::sweeps {
namespace {

using tuner::LevelDifference;

constexpr int kFewestRuns = 6;  ///< of a culprit and its parent
/// The limit on runs: this many over (shift / noise)^2 of the ends, but always between the two
/// bounds.
constexpr double kRunLimitAtOneNoise = 50;
constexpr double kSmallestRunLimit = 40;
constexpr double kLargestRunLimit = 160;
/// From this probability of a change elsewhere on, the culprit is not taken for the only one.
constexpr double kElsewhereThreshold = 0.15;
constexpr double kElsewhereOdds = 0.05;  ///< prior, of such a change
/// Prior of no change, where the ends cannot tell. What is left is a change at another commit.
constexpr double kNoneAtAll = 0.15;
constexpr double kMostLogOdds = 300;
/// Prior that the part and the step at even speed grow, but not the step as timed: only what is
/// traced got slower, or the other parts got faster all together.
constexpr double kMisled = 0.03;
/// Factor on the width of an interval whose runs stopped as soon as a difference was seen.
constexpr double kEarlyStopWidening = 1.5;

}  // namespace

// Whether the metric that was asked for has likely changed between two positions, by all runs.
bool Confirmation::changes_within(int first, int last) const {
  std::vector<tuner::CommitReadings> commits = readings_within(first, last);
  if (commits.size() < 2) return false;
  for (tuner::CommitReadings& commit : commits) commit.position -= first;
  tuner::ChangePointOptions options;
  options.num_positions = last - first;
  options.no_change_odds = 1 / kElsewhereOdds;
  return 1 - tuner::change_point_posterior(commits, options).no_change >= kElsewhereThreshold;
}

std::vector<tuner::CommitReadings> Confirmation::readings_within(int first, int last) const {
  std::vector<int> positions(static_cast<size_t>(last - first) + 1);
  std::iota(positions.begin(), positions.end(), first);
  return readings_at(positions);
}

// Of the metric that was asked for; more is worse.
std::vector<tuner::CommitReadings> Confirmation::readings_at(
    const std::vector<int>& positions) const {
  const double sign = setup_.is_higher_better ? -1.0 : 1.0;
  std::vector<tuner::CommitReadings> commits;
  for (const int position : positions) {
    std::vector<double> values = runs_.values_of(setup_.metric, position);
    for (double& value : values) value *= sign;
    if (!values.empty()) commits.push_back({position, std::move(values)});
  }
  return commits;
}

// Fresh runs of both commits until `probability_of` (readings by commit, the weight of one) has
// come to a decision. The change of the level comes from runs of all commits or of these two.
template <typename Probability>
std::optional<LevelDifference> Confirmation::confirm_by(bool uses_all,
                                                        const Probability& probability_of) {
  std::map<int, size_t> used;
  int most = most_runs(0.0);
  for (int count = 0; count < most; ++count) {
    const bool is_parent = count % 4 == 0 || count % 4 == 3;
    const int at = is_parent ? position_ - 1 : position_;
    num_left_ = most - count;
    run_(at, used[at]++);
    if (count + 1 < kFewestRuns || count % 2 == 0) continue;
    const tuner::DriftWatch watch = drift();
    is_drifting_ = ends_.has_drift || watch.is_there();
    const double weight =
        is_drifting_ && !watch.is_there() ? tuner::kWeightInWander : watch.weight_of_reading();
    // A run that lacks a part has no value at even speed.
    if (even_speed_ && (even_speed_->values_at(runs_, position_ - 1).empty() ||
                        even_speed_->values_at(runs_, position_).empty())) {
      even_speed_.reset();
    }
    const std::vector<tuner::CommitReadings> commits =
        uses_all && !is_drifting_ ? readings_within(0, last_position())
                                  : readings_of_two(position_ - 1, position_);
    if (commits.size() < 2) return std::nullopt;
    // The machine may be noisier by now.
    most = std::max(most, most_runs(tuner::pooled_noise(commits)));
    probability_ = probability_of(commits, weight);
    if (probability_ <= 1 - setup_.confidence) return std::nullopt;
    if (probability_ < setup_.confidence) continue;
    std::vector<double> before;
    std::vector<double> after;
    for (const tuner::CommitReadings& commit : commits) {
      std::vector<double>& side = commit.position < position_ ? before : after;
      side.insert(side.end(), commit.values.begin(), commit.values.end());
    }
    if (before.empty() || after.empty()) return std::nullopt;
    return tuner::level_difference(before, after, 0.0, setup_.confidence, weight);
  }
  return std::nullopt;
}

std::optional<LevelDifference> Confirmation::by_all_commits() {
  tuner::ChangePointOptions options;
  options.num_positions = last_position();
  const double other = (1 - kCoincidence) / std::max(1, last_position() - 1);
  options.prior.assign(static_cast<size_t>(last_position()), other);
  options.prior[static_cast<size_t>(position_) - 1] = kCoincidence;
  return confirm_by(true, [&](const auto& commits, double weight) {
    options.weight_of_reading = weight;
    options.no_change_odds = is_drifting_ ? 1 - kCoincidence : 1.0;
    return tuner::change_point_posterior(commits, options).change[static_cast<size_t>(position_)];
  });
}

std::optional<LevelDifference> Confirmation::by_growth(const std::string& part,
                                                       const LevelDifference& growth) {
  even_speed_ = EvenSpeed::of(runs_, setup_, part);
  const int last = last_position();
  const bool is_inside = position_ > 1 && position_ < last;
  const auto odds_of = [&](const std::vector<tuner::CommitReadings>& commits, double weight) {
    if (commits.size() < 2) return 1.0;
    const double log_odds =
        tuner::log_odds_of_shift(commits[0].values, commits[1].values, growth.mean, weight);
    // Clamped so that a product of two does not overflow.
    return std::exp(std::clamp(log_odds, -kMostLogOdds, kMostLogOdds));
  };
  const std::optional<LevelDifference> confirmed = confirm_by(false, [&](const auto& commits,
                                                                         double weight) {
    const double here = odds_of(commits, weight);
    // Not when the culprit touches an end: its runs would count twice.
    const double of_ends = is_inside ? odds_of(plain_readings_of_two(0, last), weight) : 1.0;
    if (even_speed_) {
      // `here` compares the step at even speed. Whether the step as timed has grown as well, the
      // plain readings tell.
      const double plain =
          odds_of(plain_readings_of_two(position_ - 1, position_), weight) * of_ends;
      return kCoincidence / (kCoincidence + kMisled / plain + (1 - kCoincidence - kMisled) / here);
    }
    if (!ends_.is_too_noisy) {
      return kCoincidence * here / (kCoincidence * here + 1 - kCoincidence);
    }
    const double elsewhere = (1 - kCoincidence - kNoneAtAll) * of_ends;
    return kCoincidence * here * of_ends / (kCoincidence * here * of_ends + kNoneAtAll + elsewhere);
  });
  is_of_part_ = confirmed && confirmed->low <= 0;
  return is_of_part_ ? growth : confirmed;
}

bool Confirmation::has_more(const LevelDifference& confirmed) const {
  EndsDifference whole = plain_difference_of_ends();
  if (even_speed_) {
    const std::optional<LevelDifference> even = even_speed_->ends_differ_by(runs_, setup_);
    if (even && leaves_some({even->mean, even->high - even->low}, confirmed)) return true;
    // The ends were run until they differed, which makes them look farther apart than they are.
    whole.width *= kEarlyStopWidening;
    return leaves_some(whole, confirmed);
  }
  if (is_drifting_) return leaves_some(whole, confirmed);
  return changes_within(0, position_ - 1) || changes_within(position_, last_position());
}

// Enough runs to see a change as large as between the ends, with the noise of the ends or the
// present one, whichever is larger.
int Confirmation::most_runs(double noise_now) const {
  const double level = std::abs(mean_of(runs_.values_of(setup_.metric, 0)));
  const double noise = std::max({ends_.noise_ratio, level > 0 ? noise_now / level : 0.0, 1e-12});
  const double shift = std::abs(ends_.effect_ratio) / noise;
  const double needed = kRunLimitAtOneNoise / std::max(shift * shift, 1e-12);
  return 2 * static_cast<int>(std::clamp<double>(needed, kSmallestRunLimit, kLargestRunLimit) / 2);
}

// Whether runs of one commit depend on when they were made, by all runs.
tuner::DriftWatch Confirmation::drift() const {
  std::vector<int> all(setup_.commits.size());
  std::iota(all.begin(), all.end(), 0);
  tuner::DriftWatch watch;
  watch.notice(runs_.timed(setup_.metric, all));
  return watch;
}

// Of two positions that were run in turns, with as little of the machine as can be had.
std::vector<tuner::CommitReadings> Confirmation::readings_of_two(int a, int b) const {
  if (!even_speed_) return plain_readings_of_two(a, b);
  return {{a, even_speed_->values_at(runs_, a)}, {b, even_speed_->values_at(runs_, b)}};
}

std::vector<tuner::CommitReadings> Confirmation::plain_readings_of_two(int a, int b) const {
  return is_drifting_ ? freed_readings(a, b) : readings_at({a, b});
}

// Of two positions, freed of the machine's course by both.
std::vector<tuner::CommitReadings> Confirmation::freed_readings(int a, int b) const {
  std::vector<tuner::TimedReading> readings = runs_.timed(setup_.metric, {a, b});
  const double sign = setup_.is_higher_better ? -1.0 : 1.0;
  for (tuner::TimedReading& reading : readings) reading.value *= sign;
  return tuner::without_drift(readings, a, b);
}

Confirmation::EndsDifference Confirmation::plain_difference_of_ends() const {
  const double unit = std::abs(mean_of(runs_.values_of(setup_.metric, 0)));
  return {(setup_.is_higher_better ? -ends_.effect_ratio : ends_.effect_ratio) * unit,
          (ends_.effect_high_ratio - ends_.effect_low_ratio) * unit};
}

// Whether a culprit's effect leaves something of that of the ends unexplained.
bool Confirmation::leaves_some(const EndsDifference& whole,
                               const LevelDifference& confirmed) const {
  const double unit = std::abs(mean_of(runs_.values_of(setup_.metric, 0)));
  const double reach = 0.5 * std::hypot(whole.width, confirmed.high - confirmed.low);
  const double rest = std::abs(whole.mean - confirmed.mean);
  return rest > reach && rest >= setup_.min_effect_ratio * unit;
}

}  // namespace moetune::sweeps
