// Finds out whether the two ends of a hunt differ, be they commits or configurations. Says which of
// them to run next, and what their runs show.
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
  alike,    ///< they differ by less than the least effect
  swapped,  ///< the bad end is better, and fresh runs have confirmed it
  hidden,   ///< the noise is too large to tell
};

struct EndsOptions {
  double confidence = 0.95;
  int max_runs = 60;      ///< most runs of both together; twice as many if the machine drifts
  bool is_exact = false;  ///< there is no noise: one run of each
};

class Ends {
 public:
  explicit Ends(const EndsOptions& options) : options_(options) {}

  /// Whether the good end is to be run next. The order is good, bad, bad, good, so that a steady
  /// drift falls on both alike.
  [[nodiscard]] static bool is_good_next(size_t num_runs);

  /// Takes all readings of each end so far, in the order of time; more is worse. Each end needs
  /// one. `least_effect` is in units of the readings, `weight_of_reading` as in level_difference.
  void update(const std::vector<double>& good, const std::vector<double>& bad, double least_effect,
              double weight_of_reading);

  /// Judges the readings of the last update, which have to be of both ends in turns.
  [[nodiscard]] EndsState judge(bool is_drifting);
  [[nodiscard]] const LevelDifference& difference() const { return difference_; }
  /// Whether it is sure that neither is worse than the other by the least effect.
  [[nodiscard]] bool are_alike() const;
  /// How many runs of both together are made before anything is decided.
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
  std::optional<size_t> suspected_at_;  ///< number of runs when the bad end began to look better
};

/// Says when one of the ends is run again during a search, so that a drift of the machine shows.
/// The ends take turns.
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

/// How many fresh runs confirm an answer, of each commit or set of changes that it rests on.
inline constexpr size_t kFreshRuns = 2;

/// What the ends are called in sentences.
struct EndNames {
  const char* end;  ///< end, configuration
  const char* run;  ///< what is run: commit, configuration
};

/// The verdict on ends that do not differ, and its reason.
struct EndsVerdict {
  HuntVerdict verdict = HuntVerdict::unresolved;
  std::string reason;
};
/// `is_drift`: the machine's drift explains the difference that the readings show. `was_searched`:
/// the ends had seemed to differ, so a search had begun.
EndsVerdict verdict_on(EndsState state, bool is_drift, const EndNames& names,
                       bool was_searched = false);

}  // namespace moetune::tuner
