// The Three Walls workflow as a search strategy: contract, fit, scale, profile, retune, validate.
// The walls are memory, communication and the host; compute is what remains.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/spec/sweep_spec.h"
#include "tuner/contest.h"
#include "tuner/cost_model.h"
#include "tuner/fit_intervals.h"
#include "tuner/judgement.h"
#include "tuner/memory_model.h"
#include "tuner/playbook.h"
#include "tuner/received_rows.h"
#include "tuner/search_space.h"
#include "tuner/strategy.h"

namespace moetune::tuner {

/// What times are predicted by. Searches use the best; benchmarks show what it is worth.
enum class TimePredictor : uint8_t {
  none,       ///< all points alike
  analytic,   ///< rooflines and links
  calibrated  ///< corrected by each trial
};

/// The workflow is written as one straight program (run()) that measures trials as it goes. ask()
/// runs it from the start with the outcomes known so far and stops it at the first one that is
/// missing: so it has no states to keep in step, and a resumed sweep takes the same way as the one
/// that was interrupted. Predictions are kept between runs.
class ThreeWalls final : public Strategy {
 public:
  explicit ThreeWalls(const spec::SweepSpec& sweep,
                      TimePredictor predictor = TimePredictor::calibrated);

  std::optional<TrialRequest> ask() override;
  void tell(const TrialRequest& request, const TrialOutcome& outcome) override;
  std::vector<Decision> take_decisions() override;
  void finish_soon() override { is_finishing_ = true; }
  [[nodiscard]] Progress progress() const override;
  [[nodiscard]] std::string best_hash() const override { return best_hash_; }
  [[nodiscard]] std::string first_fit_hash() const override {
    return first_fitting_ ? first_fitting_->request.hash : std::string();
  }

 private:
  /// A measured (or refused) configuration.
  struct Trial {
    TrialRequest request;
    TrialOutcome outcome;
    [[nodiscard]] bool is_ok() const { return outcome.status == spec::TrialStatus::ok; }
  };
  /// A measured configuration that may become the incumbent.
  struct Contender {
    Trial trial;
    Decision decision;                    ///< what it is: phase, wall, remedy, knob, values
    std::string name;                     ///< what the sentence about it begins with
    std::string why;                      ///< what the playbook says of its remedy
    bool is_settled = false;              ///< no further measurement is worth it
    std::optional<TrialOutcome> failure;  ///< it did not end well when it was measured again
  };
  /// Thrown by measure() when the outcome is not known yet.
  struct Pending {};
  /// Thrown when the budget, of trials or of time, leaves only the validation.
  struct BudgetSpent {};

  void run();
  /// False when the reference run failed or diverged: nothing can be judged then.
  bool contract();
  [[nodiscard]] TrialRequest reference_request() const;
  /// The one-device run that every other must agree with; false when it failed or diverged.
  bool measure_reference();
  void read_rows(const std::string& routing_profile);
  /// True, and told, where the losses of `trial`, which `what` is for people, exploded: no other
  /// would reproduce them.
  bool has_diverged(const Trial& trial, std::string_view what);
  /// Where the model is too large for one device: this trial takes its place.
  void take_as_reference(const Trial& trial);
  bool fit();
  /// The starting configuration is the first that fits. False: its losses have diverged.
  bool keep_start();
  /// That the starting configuration did not run.
  void tell_failed_start();
  /// Legal ones, in the order in which fit() tries them.
  std::vector<spec::Knobs> layouts_to_fit();
  /// Measures a configuration that may fit, and tells what became of it. None: nothing was run, as
  /// it is illegal, known by then or too large.
  std::optional<Trial> try_to_fit(const spec::Knobs& knobs);
  void scale();
  void retune();
  void validate();

  /// A candidate over the validation's steps.
  struct LongRun {
    Trial candidate;
    Trial trial;
    StepLevel screening;    ///< of the candidate, by all its short runs
    double final_loss = 0;  ///< mean of the last steps
    double lowest_loss = 0;
    bool has_held = false;  ///< it ended well and has learned
  };
  /// `reference_tolerance`: once more, with this in place of the sweep's.
  LongRun run_long(const Trial& candidate, std::optional<double> reference_tolerance = {});
  /// A run that ended as wrong, once more where rounding alone takes training as far.
  LongRun judged_by_rounding(LongRun run);
  /// Measures a short trial, and once more where rounding explains a wrong end. Later trials use
  /// the band of a cleared one from the start.
  Trial measure_judged(TrialRequest request);
  /// For a trial that ended off the reference's losses: the wider tolerance for its second run,
  /// where rounding alone exceeds the one that it had. Told. None where the trial is wrong, or
  /// where nothing can be said.
  std::optional<double> band_of_rounding(const Trial& trial);
  /// How far rounding alone takes the losses of the first steps apart, by a second reference run
  /// that sums in another order; none where there is no such run. `num_more`: trials that the
  /// budget needs room for besides.
  std::optional<double> rounding_spread(int64_t num_steps, int64_t num_more);
  [[nodiscard]] bool is_off_reference(const Trial& trial) const;
  void tell_cleared(const Trial& first, const Trial& second);
  void tell_long_run(const LongRun& run, DecisionKind kind, const std::string& remark);
  /// What is to be added where it ended well but has not learned enough; else nothing.
  [[nodiscard]] std::string too_high_text(const LongRun& run) const;
  /// What the whole search came to.
  void tell_verdict(const Trial& trial);

  // three_walls_joint.cpp: all choices of a layout together.

  /// A legal layout with a micro-batch.
  struct Candidate {
    spec::Knobs layout;  ///< with the schedule that the sweep has so far
    std::string name;    ///< layout_text
    TrialRequest plain;  ///< with the cheapest recompute that fits
    // As far as it was looked at:
    std::optional<size_t> looked_at{};  ///< knowledge() then
    TrialRequest best{};                ///< with the choices that suit it
    double ratio = 1;                   ///< its predicted step over that of `plain`
    int64_t num_priced = 0;             ///< points that were compared for that
    // Of one ranking:
    bool is_again = false;  ///< its layout was measured
    double step_ns = 0;     ///< what it may reach
    bool is_last = false;
  };
  /// Knobs and their predicted step.
  struct Priced {
    spec::Knobs knobs;
    double step_ns = 0;
  };
  struct Choices {
    spec::Knobs knobs;
    int64_t num_priced = 0;
  };
  /// Of a layout at most so many micro-batches are ranked, and may be measured.
  static constexpr int kMostBatchesOfLayout = 2;

  /// Recompute settings and schedules of a layout.
  [[nodiscard]] int64_t num_choices() const;
  /// A layout with the cheapest recompute that fits, with a schedule that takes less memory where
  /// it needs that; none, and told, when none does.
  std::optional<TrialRequest> cheapest_fitting(const spec::Knobs& layout);
  std::optional<spec::Knobs> with_lean_schedule(const spec::Knobs& knobs);
  spec::Knobs with_lightest_recompute(const spec::Knobs& knobs);
  /// These knobs with the cheapest recompute setting that fits and recomputes no less than they do;
  /// none where none fits.
  std::optional<spec::Knobs> with_room(const spec::Knobs& knobs);
  /// Of the product of all schedules of a layout those that may be the fastest, with the lightest
  /// recompute, the fastest first.
  std::vector<Priced> promising_schedules(const spec::Knobs& plain, int64_t& num_priced);
  /// The recompute and schedule that are predicted to suit a layout.
  Choices best_choices(const spec::Knobs& plain);
  const Choices& choices_for(const TrialRequest& plain);
  /// With the recompute that it needs, where its step is below the limit.
  bool take_if_faster(const spec::Knobs& knobs, double limit_ns, Priced& best,
                      bool may_equal = false);
  void descend(Priced& best);
  void look_at(Candidate& candidate);
  /// By what each may reach with its best choices, the fastest first: the first `num_wanted` by
  /// what is known now.
  void rank_jointly(std::vector<Candidate>& candidates, size_t num_wanted);
  /// predicted_step_ns, kept.
  int64_t step_ns_of(const spec::Knobs& knobs);
  /// Grows with each trial that changes what is predicted.
  [[nodiscard]] size_t knowledge() const { return num_calibrations_ + fit_intervals_.num_failed(); }

  /// By the cost model as it is.
  int64_t predicted_step_ns(const spec::Knobs& knobs);
  /// How much faster than predicted a trial may be: as much as the most surprising one so far.
  /// Measured over predicted, at most 1.
  double optimism();
  /// Whether it may gain enough over the incumbent, by optimism(). True while the sweep has made
  /// fewer trials than min_trials.
  bool is_promising(const TrialRequest& request);
  void tell_hopeless(const TrialRequest& request, std::string_view what);
  void tell_ranking(const std::vector<Candidate>& candidates, int64_t num_layouts,
                    int64_t num_unsure);
  /// The best few, ranked again after each.
  void measure_layouts(std::vector<Candidate> candidates, std::vector<Contender>& contenders);
  /// A knob and the value that it gets.
  struct Change {
    std::string knob;
    std::string value;
  };
  /// A change of the incumbent that may be worth a trial.
  struct Move {
    TrialRequest request;
    Decision decision;  ///< what it is: phase, wall, remedy, knob, values
    std::string why;
    Change change;  ///< the first of them
  };
  /// All that fit, the most promising first.
  std::vector<Move> moves();
  /// Those that the playbook names; `looked_at`: hashes of points that need not be named again.
  std::vector<Move> playbook_moves(std::set<std::string>& looked_at);
  /// The incumbent with these changes; none, and told, where that is not legal or does not fit.
  std::optional<Move> move_to(std::span<const Change> changes,
                              const std::set<std::string>& looked_at);
  std::optional<Move> move_to(const Change& change, const std::set<std::string>& looked_at) {
    return move_to(std::span(&change, 1), looked_at);
  }
  /// One pass over the playbook for the incumbent; true when a change was kept.
  bool retune_once();
  /// Its remedies, until one is clearly better; true then.
  bool try_remedies(std::vector<Contender>& contenders);
  [[nodiscard]] spec::Knobs with_less_recompute(const spec::Knobs& knobs);
  void note_wall();

  /// Rows of points that never run: enough to show the frontier, not so many that they drown the
  /// trials.
  static constexpr int64_t kMaxPrunedPerPhase = 8;
  static constexpr int64_t kMaxInvalidPerRule = 2;

  Trial measure(TrialRequest request);
  [[nodiscard]] int64_t num_started() const {
    return static_cast<int64_t>(measured_.size()) + num_repeats_;
  }

  // three_walls_contest.cpp: who is faster.

  /// Once more. Nothing where the budget has no room for it, or no noise asks for it.
  std::optional<TrialOutcome> repeat(const Trial& trial, Purpose purpose,
                                     const std::string& rival = {});
  /// The incumbent once more when it was run once only, or so long ago that the machine may have
  /// become another.
  void look_at_incumbent_again();
  [[nodiscard]] std::optional<double> predicted_ratio(const Trial& incumbent,
                                                      const Contender& contender);
  Judgement judge(const Contender& contender);
  /// With as many further measurements as it takes and the budget leaves.
  Judgement settle(Contender& contender);
  /// The last contender, which has just been measured: the incumbent when it clearly is better.
  /// Then it is no contender any more, and what became of the others in a retuning is told.
  bool take_if_better(std::vector<Contender>& contenders);
  /// True, and told, when it did not end well.
  bool reject_failed(const Contender& contender);
  /// Those that may be better after all, by all that is known by now, the most promising first.
  /// True when one became the incumbent; until there is none, or only the first.
  bool look_again(std::vector<Contender>& contenders, bool only_first);
  void become_incumbent(Contender contender, const Judgement& judgement);
  [[nodiscard]] bool is_taken(const Contender& contender, const Judgement& judgement) const;
  /// What became of those that did not.
  void conclude(const std::vector<Contender>& contenders);
  void describe_change_in(const Contender& contender, Decision& decision) const;
  Decision& decide_on(const Contender& contender, const Judgement& judgement, DecisionKind kind,
                      std::string text);
  void note_noise();
  TrialRequest request_for(const spec::Knobs& knobs, Phase phase, std::string title);
  /// Stores a point that will not run, unless enough of its kind are stored already.
  void refuse(TrialRequest request, Action action, const std::string& reason, int64_t limit);
  /// True, and refused as invalid, when the knobs break a rule.
  bool is_illegal(const spec::Knobs& knobs, Phase phase, const std::string& title);
  /// The axis of recompute settings, cheapest first.
  [[nodiscard]] std::vector<std::string> recompute_ladder() const;
  /// What the knobs of a point alone decide.
  struct Point {
    std::string hash;
    std::vector<spec::Violation> violations;
  };
  const Point& point_of(const spec::Knobs& knobs);
  [[nodiscard]] bool is_legal(const spec::Knobs& knobs) {
    return point_of(knobs).violations.empty();
  }
  /// Of a spec with the knobs and steps of this one. Several predictions of a point follow each
  /// other.
  const CompiledStep& compiled(const spec::TrialSpec& spec);
  void predict(TrialRequest& request);
  /// By the cost model of so many outcomes.
  const Prediction& prediction_of(const TrialRequest& request, size_t num_calibrations);
  /// Of its short trial and, as far as the routing of the reference run can tell, of the long
  /// validation.
  int64_t longest_peak(const TrialRequest& request);
  PeakInterval peak_of(const TrialRequest& request) {
    return fit_intervals_.interval(request.prediction, longest_peak(request));
  }
  Room room_for(const TrialRequest& request);
  /// For certain, or as far as only a trial can tell.
  bool fits(const TrialRequest& request) { return room_for(request) != Room::none; }
  [[nodiscard]] spec::TrialSpec validation_spec(const spec::Knobs& knobs) const;
  std::string over_capacity_text(const TrialRequest& request);
  /// What a decision says of a predicted peak.
  nlohmann::json peak_evidence(const TrialRequest& request);
  Decision& decide(Phase phase, DecisionKind kind, std::string text);
  spec::SweepSpec sweep_;
  SearchSpace space_;

  // Known for good.
  std::map<std::pair<std::string, int64_t>, TrialOutcome> outcomes_;  ///< by hash and attempt
  ReceivedRows rows_;  ///< of the reference run, which comes first
  std::map<std::pair<std::string, size_t>, Prediction> predictions_;  ///< by hash and calibration
  std::vector<CostModel> cost_models_;
  std::map<std::string, Point> points_;                      ///< by knobs_key
  std::map<std::pair<std::string, size_t>, int64_t> steps_;  ///< by hash and calibration
  /// What suits a layout, by the hash it has without and knowledge().
  std::map<std::pair<std::string, size_t>, Choices> choices_;
  std::optional<CompiledStep> last_compiled_;  ///< with these knobs, for so many steps:
  std::pair<spec::Knobs, int64_t> last_compiled_key_;
  std::map<std::string, int64_t> long_run_peaks_;  ///< by hash of the short trial
  Contests contests_;  ///< its runs are those of the current run of the program
  TimePredictor predictor_;
  size_t num_taken_ = 0;
  bool is_done_ = false;
  bool is_finishing_ = false;

  // Of the current run of the program.
  std::optional<TrialRequest> pending_;
  std::vector<Decision> decisions_;
  size_t num_calibrations_ =
      0;  ///< outcomes the cost model knows; cost_models_[n] is the one for n
  FitIntervals fit_intervals_;
  std::vector<double> reference_loss_;
  std::optional<double> rounding_band_;  ///< of short trials, in place of the sweep's tolerance
  bool is_too_large_for_one_ = false;    ///< device, so that there is no reference run
  std::optional<Trial> baseline_;
  std::optional<Trial> first_fitting_;
  std::optional<Trial> incumbent_;
  std::optional<Trial> runner_up_;
  std::set<std::string> refused_;               ///< hashes
  std::map<std::string, int64_t> num_refused_;  ///< by kind
  std::set<std::string> measured_;              ///< hashes of the trials that ran
  std::map<std::string, int64_t> attempts_;     ///< the last one, by hash
  /// Outcomes that the cost model knew before a trial ran, by hash.
  std::map<std::string, size_t> calibrations_before_;
  int64_t num_repeats_ = 0;
  bool is_validating_ = false;
  Phase phase_ = Phase::contract;
  std::string best_hash_;
};

}  // namespace moetune::tuner
