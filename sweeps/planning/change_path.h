// What lies between the run of today and the first plan: each change alone, and the way there step
// by step, on which every step has its part of the whole gain.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "sweeps/planning/estimate.h"
#include "sweeps/planning/rates_file.h"
#include "tuner/planner/run.h"

namespace moetune::sweeps {

/// One difference between two configurations and its effect.
struct KnobGain {
  std::string knob;
  std::string from;
  std::string to;
  /// Tokens a second after / before - 1, by this change alone; 0.1 is a tenth faster. Empty if the
  /// change alone is illegal or has no price.
  std::optional<double> gain;
  std::optional<double> bytes;       ///< additional memory of the worst rank
  std::string broken_rule{};         ///< the rule that the change alone breaks; empty: it is legal
  bool is_priced = true;             ///< in time: false where neither formula nor figure is known
  std::optional<Verdict> verdict{};  ///< of the run with this change alone; empty: it is illegal
  bool is_within = false;            ///< that run's predicted peak is: what plans are made of
  std::string rule_text{};           ///< what the broken rule says of it
  /// The change in the words of somebody's framework; empty where nobody's are known, and where it
  /// has none for it.
  std::vector<std::string> flags{};
  std::optional<Speed> speed{};  ///< with this change alone; empty where gain is
};

/// Changes that are made together, on top of those of the steps before.
struct PathStep {
  std::vector<KnobGain> changes;   ///< knob, from and to alone
  std::vector<std::string> flags;  ///< the same in the words of the user's framework
  Speed speed;                     ///< with this step
  double speed_ratio = 1;          ///< of that to the same before the step
  double cumulative_ratio = 1;     ///< of that to the same of the run of today
  double peak_bytes = 0;           ///< of the worst rank, with graph pools and dispatcher buffers
  double allocated_bytes = 0;      ///< the same without these
  Verdict verdict = Verdict::fits;
  bool is_priced = true;          ///< in time, at least one of its changes
  bool is_within = false;         ///< its predicted peak is: what plans are made of
  tuner::planner::PlanRun run{};  ///< with this step

  /// speed_ratio - 1; none where that is 0 because nothing of it has a price.
  [[nodiscard]] std::optional<double> gain() const {
    constexpr double kTold = 0.0005;
    const double gain = speed_ratio - 1;
    return is_priced || std::abs(gain) >= kTold ? std::optional(gain) : std::nullopt;
  }
};

/// The knobs that differ, as text, in the order of the table; then the stages set by hand, the
/// batch and the length of its sequences. Of a model without experts none that is about experts.
std::vector<KnobGain> differences(const tuner::planner::PlanRun& from,
                                  const tuner::planner::PlanRun& to);

/// Two runs of one model on one machine, and what their changes are judged by.
struct ChangeEnds {
  const tuner::planner::PlanRun& today;
  const tuner::planner::PlanRun& goal;
  double capacity_bytes = 0;  ///< that a device may use
  const Calibration& calibration;
  /// The run of today as its framework has it; null: flags are not told.
  const spec::dialects::RunConfig* words = nullptr;
};

/// Fills in what each of the differences alone does to the run of today, and sorts them: the best
/// in front, those that are predicted not to fit behind, then the illegal ones. Where that is so of
/// the run itself and no change alone mends it, the least memory leads.
void judge_changes(const ChangeEnds& ends, std::vector<KnobGain>& changes);

/// The way over all `changes`, which are the differences of the two ends. A step is the smallest
/// set of at most three changes that is legal, is predicted to fit and makes the run faster (or
/// fit); of these the fastest. Without one, the fastest of one or two that fits, or of three where
/// no smaller set does. If none fits, of the smallest sets that lower the peak the one that lowers
/// it most, else all that remains. Three are tried together where at most 16 changes remain. Stages
/// written by hand come with their pipeline, a schedule with stages of another kind. `today_per_s`,
/// `goal_per_s`: predicted tokens a second of a device at the two ends; the product of the steps'
/// ratios is goal_per_s / today_per_s.
std::vector<PathStep> change_path(const ChangeEnds& ends, const std::vector<KnobGain>& changes,
                                  double today_per_s, double goal_per_s);

}  // namespace moetune::sweeps
