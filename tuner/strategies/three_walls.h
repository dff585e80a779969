// The Three Walls workflow as a search strategy: contract, fit, scale, profile, retune, validate.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/spec/sweep_spec.h"
#include "tuner/cost_model.h"
#include "tuner/judgement.h"
#include "tuner/memory_model.h"
#include "tuner/playbook.h"
#include "tuner/received_rows.h"
#include "tuner/search_space.h"
#include "tuner/strategy.h"

namespace moetune::tuner {

/// The workflow is written as one straight program (run()) that measures trials as it goes. ask()
/// runs it from the start with the outcomes known so far and stops it at the first one that is
/// missing: so it has no states to keep in step, and a resumed sweep takes the same way as the one
/// that was interrupted. Predictions are kept between runs.
class ThreeWalls final : public Strategy {
 public:
  explicit ThreeWalls(const spec::SweepSpec& sweep);

  std::optional<TrialRequest> ask() override;
  void tell(const TrialRequest& request, const TrialOutcome& outcome) override;
  std::vector<Decision> take_decisions() override;
  void finish_soon() override { is_finishing_ = true; }
  [[nodiscard]] Progress progress() const override;
  [[nodiscard]] std::string best_hash() const override { return best_hash_; }

 private:
  /// A measured (or refused) configuration.
  struct Trial {
    TrialRequest request;
    TrialOutcome outcome;
    [[nodiscard]] bool is_ok() const { return outcome.status == spec::TrialStatus::ok; }
  };
  /// Thrown by measure() when the outcome is not known yet.
  struct Pending {};
  /// Thrown when the budget, of trials or of time, leaves only the validation.
  struct BudgetSpent {};

  void run();
  /// False when the reference run failed: nothing can be judged then.
  bool contract();
  /// The one-device run that every other must agree with; false when it failed.
  bool measure_reference();
  /// Where the model is too large for one device: this trial takes its place.
  void take_as_reference(const Trial& trial);
  bool fit();
  void scale();
  void retune();
  void validate();

  /// One pass over the playbook for the incumbent; true when a change was kept.
  bool retune_once();
  void note_wall();

  /// Rows of points that never run: enough to show the frontier, not so many that they drown the
  /// trials.
  static constexpr int64_t kMaxPrunedPerPhase = 8;
  static constexpr int64_t kMaxInvalidPerRule = 2;

  Trial measure(TrialRequest request);
  [[nodiscard]] int64_t num_started() const { return static_cast<int64_t>(measured_.size()); }
  TrialRequest request_for(const spec::Knobs& knobs, Phase phase, std::string title);
  /// Stores a point that will not run, unless enough of its kind are stored already.
  void refuse(TrialRequest request, Action action, const std::string& reason, int64_t limit);
  /// True, and refused as invalid, when the knobs break a rule.
  bool is_illegal(const spec::Knobs& knobs, Phase phase, const std::string& title);
  /// The axis of recompute settings, cheapest first.
  [[nodiscard]] std::vector<std::string> recompute_ladder() const;
  void predict(TrialRequest& request);
  bool fits(const TrialRequest& request);
  [[nodiscard]] spec::TrialSpec validation_spec(const spec::Knobs& knobs) const;
  [[nodiscard]] std::string over_capacity_text(const TrialRequest& request) const;
  Decision& decide(Phase phase, std::string kind, std::string text);
  /// What was measured before and after, and what was expected, into the decision.
  static void add_comparison(const TrialOutcome& before, const Trial& after,
                             const Comparison& change, Decision& decision);

  spec::SweepSpec sweep_;
  SearchSpace space_;

  // Known for good.
  std::map<std::string, TrialOutcome> outcomes_;
  std::map<std::pair<std::string, size_t>, Prediction> predictions_;  ///< by hash and calibration
  std::vector<CostModel> cost_models_;
  std::map<std::string, int64_t> long_run_peaks_;  ///< by hash of the short trial
  size_t num_taken_ = 0;
  bool is_done_ = false;
  bool is_finishing_ = false;

  // Of the current run of the program.
  std::optional<TrialRequest> pending_;
  std::vector<Decision> decisions_;
  size_t num_calibrations_ =
      0;  ///< outcomes the cost model knows; cost_models_[n] is the one for n
  ReceivedRows rows_;
  std::vector<double> reference_loss_;
  bool is_too_large_for_one_ = false;  ///< device, so that there is no reference run
  std::optional<Trial> baseline_;
  std::optional<Trial> first_fitting_;
  std::optional<Trial> incumbent_;
  std::optional<Trial> runner_up_;
  std::set<std::string> refused_;               ///< hashes
  std::map<std::string, int64_t> num_refused_;  ///< by kind
  std::set<std::string> measured_;              ///< hashes of the trials that ran
  bool is_validating_ = false;
  Phase phase_ = Phase::contract;
  std::string best_hash_;
};

}  // namespace moetune::tuner
