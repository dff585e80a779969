// Hunts the commits that changed a metric. The caller asks which commit to run next, runs it, and
// tells what was measured, until the hunt knows enough. Starts no processes and reads no files. The
// same readings give the same questions. So to go on with a hunt that was interrupted, tell it
// again what was measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tuner/bisect/ends.h"
#include "tuner/bisect/vocabulary.h"
#include "tuner/stats/change_points.h"
#include "tuner/stats/drift.h"
#include "tuner/stats/effect.h"

namespace moetune::tuner {

/// Whether the culprits of a deterministic metric and their parents are run once more.
enum class SecondLook : uint8_t {
  none,      ///< it is known to be exact
  in_doubt,  ///< unless enough neighbouring commits agree to the last bit
  always,
};

struct HuntOptions {
  int num_positions = 1;  ///< of the bad end; 0 is the good one
  bool is_higher_better = false;
  double min_effect_ratio = 0.02;  ///< of the good end's level
  double confidence = 0.95;
  std::vector<double> prior;  ///< [num_positions]: of each commit; empty: all alike
  /// A metric without noise: one run each, and plain bisection.
  bool is_deterministic = false;
  SecondLook second_look = SecondLook::none;  ///< of a deterministic metric
  /// Gives up if a deterministic metric changes more than once.
  bool wants_one = false;
  int max_runs = 400;
  /// Most runs of the two ends together to find out whether they differ; twice as many if the
  /// machine drifts.
  int max_end_runs = 60;
};

/// Changes below this share of the least effect are ignored. Those between the two are looked at:
/// they may reach the least effect within their interval.
inline constexpr double kSmallShare = 0.5;

/// What things cost, in units of one run, as far as it was measured.
struct HuntCosts {
  double build = 5.0;
};

struct RunRequest {
  int position = 0;
  RunPurpose purpose = RunPurpose::ends;
};

struct Culprit : Effect {
  int position = 0;
  double confidence = 0.0;
  double before = 0.0;  ///< the metric's level up to its parent
  double after = 0.0;
};

struct HuntResult : HuntOutcome {
  std::vector<Culprit> culprits;
  /// The verdict is `unresolved` because noise hides whether the ends differ.
  bool is_too_noisy = false;
  /// A metric that was taken as deterministic differs between runs of one commit.
  bool is_inexact = false;
  /// [num_positions + 1]: the probability that each position is a culprit; 0 at the good end.
  std::vector<double> posterior;
  /// The fewest positions that together have the asked confidence.
  std::vector<int> suspects;
};

class CommitHunt {
 public:
  /// Throws base::Error for options that make no sense.
  explicit CommitHunt(HuntOptions options);

  /// The next run, or none when the hunt is over. Answer with add or add_failure.
  [[nodiscard]] std::optional<RunRequest> next();
  /// `time` is when the reading was made, counted in runs from any start. It may differ from the
  /// order in which readings are told. The machine's drift is a function of this time.
  void add(int position, double value, double time);
  void add(int position, double value) { add(position, value, num_runs()); }
  /// The position cannot be measured: it is not asked for again.
  void add_failure(int position);
  /// The commit has been built: a run of it costs no build.
  void set_built(int position) { is_built_[static_cast<size_t>(position)] = true; }
  void set_costs(const HuntCosts& costs) { costs_ = costs; }

  /// What is known so far.
  [[nodiscard]] const HuntResult& result() const { return result_; }
  [[nodiscard]] int num_runs() const { return static_cast<int>(readings_.size()); }
  /// A guess from what is not known yet and what a run usually tells. Empty before the ends have
  /// told anything, 0 when the hunt is over.
  [[nodiscard]] std::optional<RunsLeft> expected_runs_left() const;
  /// Ends the hunt early. Keeps the culprits that were verified; the verdict is `unresolved`.
  void stop(const std::string& reason);

 private:
  /// After the ends are known to differ.
  std::optional<RunRequest> search();
  std::optional<RunRequest> compare_ends();
  std::optional<RunRequest> bisect_exactly();
  /// A second run of each exact culprit and its parent, where that is needed. Finishes when one
  /// cannot be run.
  std::optional<RunRequest> verify_exactly(const std::vector<int>& culprits);
  std::optional<RunRequest> verify(int suspect);
  void finish(HuntVerdict verdict, std::string reason);

  [[nodiscard]] std::vector<CommitReadings> by_commit() const;
  [[nodiscard]] std::vector<double> values_at(int first, int last) const;
  /// Whether the machine's drift explains the difference of the ends: it has a trend, or the ends
  /// differ only before the drift is subtracted.
  [[nodiscard]] bool drift_explains_ends() const;
  void finish_ends(EndsState state);
  void update_drift();
  /// The reading less the machine's drift, if any was noticed.
  [[nodiscard]] double freed(size_t reading) const {
    return readings_[reading].value - drift_.course_at(reading);
  }
  [[nodiscard]] LevelDifference difference_of(const std::vector<double>& a,
                                              const std::vector<double>& b) const;
  void update_posterior();
  void describe_effect();
  void add_culprits(const std::vector<int>& positions);
  /// By position, whether it is a suspect that cannot be told from its neighbours: a change is
  /// surely in its stretch of commits, but of those only the last can be measured.
  [[nodiscard]] std::vector<bool> unmeasurable_suspects() const;
  /// Whether a change at this position, if there is one, is expected to be far below the least
  /// effect.
  [[nodiscard]] bool is_too_small(int position) const;
  [[nodiscard]] double gain_of(int position, double separation) const;
  [[nodiscard]] double min_effect() const;
  [[nodiscard]] double scale() const;  ///< of the good end's level
  [[nodiscard]] bool can_measure(int position) const;

  HuntOptions options_;
  HuntCosts costs_;
  HuntResult result_;
  std::vector<TimedReading> readings_;  ///< more is worse
  DriftWatch drift_;
  std::vector<bool> is_built_;
  std::vector<bool> is_broken_;
  ChangePointPosterior posterior_;
  Ends ends_;
  bool is_searching_ = false;
  bool is_over_ = false;
  int suspect_ = 0;          ///< the position that is being verified; 0: none
  size_t suspected_at_ = 0;  ///< number of readings when that began
  EndsAgain ends_again_;
  std::vector<int> verified_;  ///< suspects that fresh runs have confirmed
};

}  // namespace moetune::tuner
