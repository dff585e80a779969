// Hunts the changes of a configuration that moved a metric. The caller asks which set of changes to
// apply onto the good configuration, runs that, and tells what was measured. This is delta
// debugging (Zeller and Hildebrandt 2002, "Simplifying and isolating failure-inducing input") over
// noisy readings: a set counts as moving the metric, or as not moving it, when the posterior of its
// level says so. Once a minimal set is found and confirmed by fresh runs, the hunt goes on in the
// bad configuration without it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tuner/bisect/ends.h"
#include "tuner/bisect/vocabulary.h"
#include "tuner/stats/drift.h"
#include "tuner/stats/effect.h"
#include "tuner/stats/subset_levels.h"

namespace moetune::tuner {

/// Which of the changes are applied onto the good configuration. With all of them it is the bad
/// one.
using ChangeSet = std::vector<bool>;

struct ConfigHuntOptions {
  int num_changes = 1;
  bool is_higher_better = false;
  double min_effect_ratio = 0.02;  ///< of the good configuration's level
  double confidence = 0.95;
  /// A metric without noise: one run each.
  bool is_deterministic = false;
  int max_runs = 400;
  int max_end_runs = 60;  ///< most runs of both ends to find out whether they differ
};

struct ConfigRequest {
  ChangeSet changes;
  RunPurpose purpose = RunPurpose::ends;
};

/// A smallest set of changes that moves the metric: none can be left out.
struct ConfigCulprit : Effect {
  std::vector<int> changes;  ///< indices, ascending
  /// Probability that the set moves the metric and that no set with one change less does: the
  /// product over these sets.
  double confidence = 0.0;
  double before = 0.0;  ///< level of the good configuration
  double after = 0.0;   ///< with this set alone
  /// More than one change, and none of them moves the metric alone.
  bool is_interaction = false;
  bool is_improvement = false;  ///< it makes the metric better, which another culprit hides
  /// How many sets with one change less could not be classified. If there are any, the culprit may
  /// hold changes that it does not need.
  int num_untold = 0;
  /// The bad configuration without this culprit and those before it was run, and differs from the
  /// good one by less than the least effect.
  bool is_good_restored = false;
};

struct ConfigHuntResult : HuntOutcome {
  std::vector<ConfigCulprit> culprits;  ///< in the order in which they were found
  /// Probability that the bad configuration without all culprits differs from the good one by less
  /// than the least effect; 0 when that could not be measured.
  double complete = 0.0;
  std::vector<int> suspects;  ///< the changes that are still searched
  /// Probability that the last set was classified rightly, as moving the metric or not; 0 before
  /// the first.
  double certainty = 0.0;
  int num_failed = 0;  ///< sets that could not be measured
};

class ConfigHunt {
 public:
  /// Throws base::Error for options that make no sense.
  explicit ConfigHunt(ConfigHuntOptions options);

  /// The next run, or none when the hunt is over. Answer with add or add_failure.
  [[nodiscard]] std::optional<ConfigRequest> next();
  /// `time` as in CommitHunt::add.
  void add(const ChangeSet& changes, double value, double time);
  void add(const ChangeSet& changes, double value) { add(changes, value, num_runs()); }
  /// The set cannot be measured (an invalid combination, a crash): it is not asked for again.
  void add_failure(const ChangeSet& changes);

  /// What is known so far.
  [[nodiscard]] const ConfigHuntResult& result() const { return result_; }
  [[nodiscard]] int num_runs() const { return static_cast<int>(readings_.size()); }
  /// A guess, as if one change was to blame. Empty before the ends have told anything, 0 when the
  /// hunt is over.
  [[nodiscard]] std::optional<RunsLeft> expected_runs_left() const;

 private:
  enum class Outcome : uint8_t { moved, same, untold, pending };
  /// One search: which sets within `top` move the metric in the direction of `sign`.
  struct Stage {
    ChangeSet top;
    double sign = 1.0;
    double threshold = 0.0;
    std::vector<size_t> likely;  ///< sets whose level a set that moves the metric may have
  };
  /// A classification that an answer rests on.
  struct Check {
    ChangeSet set;
    bool is_moved = false;
  };

  std::optional<ConfigRequest> compare_ends();
  std::optional<ConfigRequest> search();
  void ask_for_reference();
  /// How the stage's top without `found` compares with the good configuration: 1 worse, -1 better,
  /// 0 alike. Empty while a run is pending or when it cannot be measured.
  std::optional<int> direction_of(const Stage& before, const ChangeSet& found);
  Stage stage_of(const ChangeSet& top, int direction);
  /// A smallest set that moves the metric. The empty set if after more runs not even the stage's
  /// top moves it; no value while a run is pending.
  std::optional<ChangeSet> minimize(const Stage& stage);
  /// The members of `set` that move the metric together with each other and `context`, which moves
  /// nothing alone. Searches each half while the other is applied (Zeller 1999, "Yesterday, my
  /// program worked"; Junker 2004, "QuickXplain"). A guess where changes hide one another.
  std::optional<ChangeSet> interfering(const Stage& stage, const ChangeSet& set,
                                       const ChangeSet& context);
  /// Whether `found` has been confirmed by enough runs. If not, asks for one more.
  bool verify(const Stage& stage, const ChangeSet& found);
  ConfigCulprit describe(const Stage& stage, const ChangeSet& found);
  void describe_effect();
  void update_drift();
  /// Whether the machine's drift explains the difference of the ends: it has a trend, or the ends
  /// differ only before the drift is subtracted.
  [[nodiscard]] bool drift_explains_ends() const;
  void finish_ends(EndsState state);
  /// Difference of the levels of two sets, given by their indices.
  LevelDifference difference_of(size_t a, size_t b);
  void finish(HuntVerdict verdict, std::string reason);

  Outcome outcome_of(const ChangeSet& set, const Stage& stage, double needed, double prior);
  /// Probability that the set moves the metric; it needs a reading.
  double probability_of(const ChangeSet& set, const Stage& stage);
  LevelSides sides_of(size_t set, const std::vector<size_t>& likely, double threshold);
  [[nodiscard]] std::vector<Check> checks_of(const ChangeSet& found) const;
  void ask(const ChangeSet& set, RunPurpose purpose);
  size_t index_of(const ChangeSet& set);
  [[nodiscard]] bool can_measure(const ChangeSet& set);
  [[nodiscard]] double scale() const;  ///< of the good configuration's level
  [[nodiscard]] double min_effect() const { return options_.min_effect_ratio * scale(); }

  ConfigHuntOptions options_;
  ConfigHuntResult result_;
  ChangeSet none_;
  ChangeSet all_;
  std::map<ChangeSet, size_t> indices_;  ///< of sets in levels_; 0: none_, 1: all_
  std::vector<TimedReading> readings_;   ///< position: the index of the set; more is worse
  DriftWatch drift_;
  SubsetLevels levels_;  ///< from readings freed of the machine's drift
  Ends ends_;
  std::map<std::pair<size_t, size_t>, RememberedDifference> differences_;
  std::vector<bool> is_broken_;  ///< by index
  EndsAgain ends_again_;
  bool is_searching_ = false;
  bool is_over_ = false;
  std::optional<ConfigRequest> pending_;
  /// For each answer that is verified, how many runs each of its sets had when that began.
  std::map<ChangeSet, std::map<ChangeSet, size_t>> suspected_at_;
};

}  // namespace moetune::tuner
