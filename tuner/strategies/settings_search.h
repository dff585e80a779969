// The search over the settings of another engine: baseline, a change that makes it fit, layouts,
// the wall of the best one, changes for that wall, a long run. It does not know the settings of any
// engine: a SettingsSpace says what may be changed, what is legal and what is promising.
//
// contest.h decides who is faster, as in every search. Profiled runs are not compared: only the
// incumbent is profiled, to see its wall. Every later run has to reproduce the baseline's losses.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/spec/sweep_spec.h"
#include "tuner/contest.h"
#include "tuner/strategy.h"

namespace moetune::tuner {

/// Values by name, as text.
using Settings = std::map<std::string, std::string, std::less<>>;

/// A change of a configuration that may be worth a trial.
struct SettingsMove {
  Settings settings;
  std::string remedy;        ///< rule that recommends it; empty: it is only allowed
  std::string why;           ///< sentence of that rule
  double ceiling_ratio = 0;  ///< upper bound of the saving, as a share of the step; 0: unknown
};

/// Knows the engine's settings. Pure: the same question gets the same answer.
class SettingsSpace {
 public:
  virtual ~SettingsSpace() = default;
  /// The user's own configuration.
  [[nodiscard]] virtual Settings base() const = 0;
  /// Spec, hash, settings and prediction of a run over `num_steps` steps.
  [[nodiscard]] virtual TrialRequest request(const Settings& settings, bool is_profiled,
                                             int64_t num_steps) const = 0;
  /// The rule that `settings` break, "name: sentence"; empty: no known one.
  [[nodiscard]] virtual std::string broken_rule(const Settings& settings) const = 0;
  /// Why the run is predicted not to fit in memory; empty if it fits or nobody knows.
  [[nodiscard]] virtual std::string too_large(const TrialRequest& request) const = 0;
  /// Whether the engine can be made to write a trace.
  [[nodiscard]] virtual bool can_profile() const = 0;
  /// Whether a run makes as many steps as it is asked for; else as many as it makes by itself.
  [[nodiscard]] virtual bool asks_for_steps() const { return true; }
  /// All combinations of layout and batch sizes that the space allows.
  [[nodiscard]] virtual std::vector<Settings> layouts() const = 0;
  /// Single changes that are allowed, the most promising first. `seen`: outcome of the last
  /// profiled or failed run of the configuration.
  [[nodiscard]] virtual std::vector<SettingsMove> moves(const Settings& from,
                                                        const TrialOutcome& seen) const = 0;
  /// A remark for everybody who reads the figures; may be empty.
  [[nodiscard]] virtual std::string remark() const = 0;
  /// "tp 1 -> 2, micro_batch_size 2 -> 1".
  [[nodiscard]] virtual std::string change_text(const Settings& from, const Settings& to) const = 0;
};

/// A sequential program that starts from the top at each ask(), like ThreeWalls. Known outcomes are
/// replayed.
class SettingsSearch final : public Strategy {
 public:
  SettingsSearch(const spec::SweepSpec& sweep, std::unique_ptr<SettingsSpace> space);

  std::optional<TrialRequest> ask() override;
  void tell(const TrialRequest& request, const TrialOutcome& outcome) override;
  std::vector<Decision> take_decisions() override;
  void finish_soon() override { is_finishing_ = true; }
  [[nodiscard]] Progress progress() const override;
  [[nodiscard]] std::string best_hash() const override { return pass_.best_hash; }
  [[nodiscard]] std::string first_fit_hash() const override {
    return pass_.first_fit ? pass_.first_fit->request.hash : std::string();
  }

 private:
  struct Trial {
    Settings settings;
    TrialRequest request;
    TrialOutcome outcome;
    [[nodiscard]] bool is_ok() const { return outcome.status == spec::TrialStatus::ok; }
  };
  struct Pending {};      ///< thrown when an outcome is not known yet
  struct BudgetSpent {};  ///< thrown when only the validation is left

  void run();
  bool contract();
  bool fit(const Trial& baseline);
  void scale();
  void retune();
  void validate();

  /// `why`: see TrialRequest.
  Trial measure(const Settings& settings, const std::string& title, std::string why,
                bool is_profiled = false);
  Trial measure(TrialRequest request, const Settings& settings);
  /// False if the point was refused: it is illegal, or predicted not to fit or not to win.
  bool is_worth_running(const Settings& settings, const std::string& title);
  void refuse(TrialRequest request, Action action, const std::string& reason);
  void take_as_first(const Trial& trial);
  /// Compares the candidate with the incumbent, repeating runs as needed. True if it wins.
  bool contest(const Trial& candidate, const SettingsMove& move);
  std::optional<TrialOutcome> repeat(const Trial& trial, Purpose purpose, const std::string& rival,
                                     std::string why);
  [[nodiscard]] std::optional<double> predicted_ratio(const Trial& candidate) const;
  /// Whether `settings` only undo changes that have gained.
  [[nodiscard]] bool goes_back(const Settings& settings) const;
  /// Profiles the incumbent and reports its wall.
  TrialOutcome profile();
  /// "Predicted to take 610 ms a step, the best so far 640 ms." with a blank before it; empty: not
  /// predicted.
  [[nodiscard]] std::string prediction_text(const Settings& settings) const;
  Decision& decide(Phase phase, DecisionKind kind, std::string text);
  void describe(const Trial& candidate, const SettingsMove& move, Decision& decision) const;
  [[nodiscard]] int64_t num_started() const { return static_cast<int64_t>(pass_.started.size()); }

  spec::SweepSpec sweep_;
  std::unique_ptr<SettingsSpace> space_;
  Contests contests_;
  using Key = std::pair<std::string, int64_t>;
  std::map<Key, TrialOutcome> outcomes_;

  /// What one pass from the top has found so far.
  struct Pass {
    std::optional<TrialRequest> pending;
    std::vector<Decision> decisions;
    std::set<Key> started;
    std::set<std::string> measured;
    std::set<std::string> refused;
    /// Names and values that a clearly better one has replaced.
    std::set<std::pair<std::string, std::string>> beaten;
    std::map<std::string, int64_t> attempts;
    int64_t num_repeats = 0;
    std::vector<double> reference_loss;
    std::optional<Trial> first_fit;
    std::optional<Trial> incumbent;
    std::optional<Trial> runner_up;
    std::string best_hash;
    Phase phase = Phase::contract;
    bool is_validating = false;
  };
  Pass pass_;

  size_t num_taken_ = 0;
  bool is_finishing_ = false;
  bool is_done_ = false;
};

}  // namespace moetune::tuner
