// Whether the two ends of a hunt differ, be they commits or configurations: which of them to run
// next, and what their runs say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tuner/bisect/vocabulary.h"
#include "tuner/stats/drift.h"
#include "tuner/stats/levels.h"

namespace moetune::tuner {

enum class EndsState : uint8_t {
  open,     ///< more runs are needed
  differ,   ///< the bad end is worse
  alike,    ///< by less than the least effect
  swapped,  ///< the bad end is better, and freshly run still is
  hidden,   ///< the noise is too large to tell
};

struct EndsOptions {
  double confidence = 0.95;
  int max_runs = 60;      ///< of both together; twice as many where the machine drifts
  bool is_exact = false;  ///< there is no noise: one run of each
};

class Ends {
 public:
  explicit Ends(const EndsOptions& options) : options_(options) {}

  /// In the order good, bad, bad, good: a drift that goes on evenly falls on both alike.
  [[nodiscard]] static bool is_good_next(size_t num_runs);

  /// What has been read of each so far, in the order of time; more is worse, and at least one of
  /// each. `least_effect` in units of the readings, `weight_of_reading` as in level_difference.
  void update(const std::vector<double>& good, const std::vector<double>& bad, double least_effect,
              double weight_of_reading);

  /// Of the last update, with each end's runs in turns.
  [[nodiscard]] EndsState judge(bool is_drifting);
  [[nodiscard]] const LevelDifference& difference() const { return difference_; }
  /// Neither is worse than the other by the least effect.
  [[nodiscard]] bool are_alike() const;
  /// Of both, before anything is decided.
  [[nodiscard]] size_t num_first_runs() const;

 private:
  [[nodiscard]] bool is_better_afresh(bool is_last);

  EndsOptions options_;
  RememberedDifference remembered_;
  LevelDifference difference_;
  std::vector<double> good_;
  std::vector<double> bad_;
  double least_effect_ = 0.0;
  double weight_of_reading_ = 1.0;
  std::optional<size_t> suspected_at_;  ///< runs of both when the bad end began to look better
};

/// Once a search is under way: when one of the ends is run again, in turns, so that a drift of the
/// machine shows.
class EndsAgain {
 public:
  /// Whether an end is due after `num_runs` runs of the whole hunt.
  [[nodiscard]] bool is_due(size_t num_runs, bool is_drifting) const;
  /// Notes that an end is run now; true: the good one.
  bool take(size_t num_runs, bool is_drifting);
  void begin(size_t num_runs) { last_ = num_runs; }

 private:
  size_t last_ = 0;
};

/// Of each commit or set of changes that an answer rests on, after the search has come to it.
inline constexpr size_t kFreshRuns = 2;

/// What the ends are called in sentences.
struct EndNames {
  const char* end;  ///< end, configuration
  const char* run;  ///< what a run is of: commit, configuration
};

/// The verdict on ends that do not differ, and its reason. `is_drift`: the machine drifted, and
/// that explains what difference the raw runs show. `was_searched`: they had seemed to differ.
struct EndsVerdict {
  HuntVerdict verdict = HuntVerdict::unresolved;
  std::string reason;
};
EndsVerdict verdict_on(EndsState state, bool is_drift, const EndNames& names,
                       bool was_searched = false);

}  // namespace moetune::tuner
