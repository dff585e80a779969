#include "tuner/bisect/ends.h"

#include <fmt/format.h>

#include <bit>

#include "tuner/stats/effect.h"

namespace moetune::tuner {
namespace {

constexpr size_t kFirstRuns = 8;      ///< of both together, before anything is decided
constexpr double kLikelyWorse = 0.8;  ///< from which the search may begin: it looks again

size_t runs_between(bool is_drifting) { return is_drifting ? 2 : 8; }

}  // namespace

bool EndsAgain::is_due(size_t num_runs, bool is_drifting) const {
  return num_runs - last_ >= runs_between(is_drifting);
}

bool EndsAgain::take(size_t num_runs, bool is_drifting) {
  last_ = num_runs;
  return (num_runs / runs_between(is_drifting)) % 2 == 0;
}

bool Ends::is_good_next(size_t num_runs) { return num_runs % 4 == 0 || num_runs % 4 == 3; }

size_t Ends::num_first_runs() const { return options_.is_exact ? 2 : kFirstRuns; }

void Ends::update(const std::vector<double>& good, const std::vector<double>& bad,
                  double least_effect, double weight_of_reading) {
  good_ = good;
  bad_ = bad;
  least_effect_ = least_effect;
  weight_of_reading_ = weight_of_reading;
  if (options_.is_exact) {
    difference_ = exact_difference(good.front(), bad.front());
    difference_.above = difference_.mean >= least_effect ? 1.0 : 0.0;
    difference_.below = difference_.mean <= -least_effect ? 1.0 : 0.0;
  } else {
    difference_ = remembered_.of(good, bad, least_effect, options_.confidence, weight_of_reading);
  }
}

bool Ends::are_alike() const {
  const double most = 1 - options_.confidence;
  return difference_.above <= most && difference_.below <= most;
}

EndsState Ends::judge(bool is_drifting) {
  const size_t num_runs = good_.size() + bad_.size();
  if (options_.is_exact) {
    if (difference_.below > 0) return EndsState::swapped;
    return difference_.above > 0 ? EndsState::differ : EndsState::alike;
  }
  if (num_runs < kFirstRuns || num_runs % 2 == 1) return EndsState::open;
  const bool is_last = static_cast<int>(num_runs) >= (is_drifting ? 2 : 1) * options_.max_runs;
  if (is_better_afresh(is_last)) return EndsState::swapped;
  const bool is_worse = difference_.low > 0;
  if (is_worse && difference_.above >= kLikelyWorse) return EndsState::differ;
  if (are_alike()) return EndsState::alike;
  const bool is_being_looked_at = suspected_at_ && num_runs - *suspected_at_ < kFirstRuns;
  if (!is_last || is_being_looked_at) return EndsState::open;
  return is_worse && difference_.above > 0.5 ? EndsState::differ : EndsState::hidden;
}

// Who looks after every pair of runs sees noise pass any bound now and then, and a wrong "worse" is
// looked at again by the search, but nothing follows a wrong "better". So it has to be seen once
// more in runs that were made since, and these are looked at only when their number has doubled,
// and at the end.
bool Ends::is_better_afresh(bool is_last) {
  if (difference_.below < options_.confidence || difference_.high >= 0) {
    suspected_at_.reset();
    return false;
  }
  const size_t num_runs = good_.size() + bad_.size();
  if (!suspected_at_) suspected_at_ = num_runs;
  const size_t num_fresh = num_runs - *suspected_at_;
  if (num_fresh < kFirstRuns || !(is_last || std::has_single_bit(num_fresh))) return false;
  const auto each = static_cast<std::ptrdiff_t>(num_fresh / 2);
  const LevelDifference fresh =
      level_difference({good_.end() - each, good_.end()}, {bad_.end() - each, bad_.end()},
                       least_effect_, options_.confidence, weight_of_reading_);
  return fresh.below >= options_.confidence && fresh.high < 0;
}

EndsVerdict verdict_on(EndsState state, bool is_drift, const EndNames& names, bool was_searched) {
  switch (state) {
    case EndsState::swapped:
      return {HuntVerdict::unresolved,
              fmt::format("the bad {0} is better than the good one", names.end)};
    case EndsState::alike:
      if (is_drift) {
        return {HuntVerdict::environment_changed,
                fmt::format("runs of one {} drift with time; without the drift the {}s are alike",
                            names.run, names.end)};
      }
      if (was_searched) {
        return {HuntVerdict::no_change,
                fmt::format("with more runs the {}s turn out to be alike", names.end)};
      }
      return {HuntVerdict::no_change,
              fmt::format("the {}s do not differ by more than the least effect", names.end)};
    case EndsState::hidden:
      return {
          HuntVerdict::unresolved,
          fmt::format("the noise is too large to tell whether the {}s differ by the least effect",
                      names.end)};
    case EndsState::open:
    case EndsState::differ:
      break;
  }
  return {HuntVerdict::unresolved, "the ends are not judged yet"};
}

}  // namespace moetune::tuner
