// The search over the settings of somebody else's engine: baseline, what makes it fit, layouts, the
// wall of the best one, changes for that wall, a long run. It knows no word of any engine: what may
// be changed, what is legal and what is promising it asks a SettingsSpace.
//
// Who is faster is asked of contest.h, as in every search. Only runs that are not profiled are
// compared; of the incumbent alone a profiled run is made, to see its wall. The baseline's losses
// are what every later run has to reproduce.
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
  std::string remedy;        ///< the rule that speaks for it; empty: it is only allowed
  std::string why;           ///< its sentence
  double ceiling_ratio = 0;  ///< of the step, what it can save at most; 0: nobody knows
};

/// Whoever knows the engine's words. Pure: the same question gets the same answer.
class SettingsSpace {
 public:
  virtual ~SettingsSpace() = default;
  /// The user's own configuration.
  [[nodiscard]] virtual Settings base() const = 0;
  /// Spec, hash, settings and prediction of a run over so many steps.
  [[nodiscard]] virtual TrialRequest request(const Settings& settings, bool is_profiled,
                                             int64_t num_steps) const = 0;
  /// The rule that it breaks, "name: sentence"; empty: none that is known.
  [[nodiscard]] virtual std::string broken_rule(const Settings& settings) const = 0;
  /// Why it is predicted not to fit in memory; empty where it fits, or where nobody knows.
  [[nodiscard]] virtual std::string too_large(const TrialRequest& request) const = 0;
  /// Whether the engine can be made to write a trace.
  [[nodiscard]] virtual bool can_profile() const = 0;
  /// All combinations of sizes of the layout and of the batch that the space allows.
  [[nodiscard]] virtual std::vector<Settings> layouts() const = 0;
  /// Single changes that are allowed, the most promising first. `seen`: what the last look at the
  /// configuration (a profiled run, or one that failed) has shown.
  [[nodiscard]] virtual std::vector<SettingsMove> moves(const Settings& from,
                                                        const TrialOutcome& seen) const = 0;
  /// What everybody has to know who reads the figures; may be empty.
  [[nodiscard]] virtual std::string remark() const = 0;
  /// "tp 1 -> 2, micro_batch_size 2 -> 1".
  [[nodiscard]] virtual std::string change_text(const Settings& from, const Settings& to) const = 0;
};

/// One straight program that starts from the top at each ask(), as ThreeWalls.
class SettingsSearch final : public Strategy {
 public:
  SettingsSearch(const spec::SweepSpec& sweep, std::unique_ptr<SettingsSpace> space);

  std::optional<TrialRequest> ask() override;
  void tell(const TrialRequest& request, const TrialOutcome& outcome) override;
  std::vector<Decision> take_decisions() override;
  void finish_soon() override { is_finishing_ = true; }
  [[nodiscard]] Progress progress() const override;
  [[nodiscard]] std::string best_hash() const override { return best_hash_; }
  [[nodiscard]] std::string first_fit_hash() const override {
    return first_fit_ ? first_fit_->request.hash : std::string();
  }

 private:
  struct Trial {
    Settings settings;
    TrialRequest request;
    TrialOutcome outcome;
    [[nodiscard]] bool is_ok() const { return outcome.status == spec::TrialStatus::ok; }
  };
  struct Pending {};      ///< an outcome is not known yet
  struct BudgetSpent {};  ///< only the validation is left

  void run();
  bool contract();
  bool fit(const Trial& baseline);
  void scale();
  void retune();
  void validate();

  Trial measure(const Settings& settings, const std::string& title, bool is_profiled = false);
  Trial measure(TrialRequest request, const Settings& settings);
  /// False where the point was refused: illegal, or predicted not to fit or to win.
  bool is_worth_running(const Settings& settings, const std::string& title);
  void refuse(TrialRequest request, Action action, const std::string& reason);
  void take_as_first(const Trial& trial);
  /// One against the incumbent, with the repeats that it takes; true where it became it.
  bool contest(const Trial& candidate, const SettingsMove& move);
  std::optional<TrialOutcome> repeat(const Trial& trial, Purpose purpose, const std::string& rival);
  [[nodiscard]] std::optional<double> predicted_ratio(const Trial& candidate) const;
  /// Whether it only takes back what has gained.
  [[nodiscard]] bool goes_back(const Settings& settings) const;
  /// Looks into the incumbent, and tells its wall.
  TrialOutcome profile();
  Decision& decide(Phase phase, DecisionKind kind, std::string text);
  void describe(const Trial& candidate, const SettingsMove& move, Decision& decision) const;
  [[nodiscard]] int64_t num_started() const { return static_cast<int64_t>(started_.size()); }

  spec::SweepSpec sweep_;
  std::unique_ptr<SettingsSpace> space_;
  Contests contests_;
  using Key = std::pair<std::string, int64_t>;
  std::map<Key, TrialOutcome> outcomes_;

  // Of one pass.
  std::optional<TrialRequest> pending_;
  std::vector<Decision> decisions_;
  std::set<Key> started_;
  std::set<std::string> measured_;
  std::set<std::string> refused_;
  /// Names and values that a clearly better one has taken the place of.
  std::set<std::pair<std::string, std::string>> beaten_;
  std::map<std::string, int64_t> attempts_;
  int64_t num_repeats_ = 0;
  std::vector<double> reference_loss_;
  std::optional<Trial> first_fit_;
  std::optional<Trial> incumbent_;
  std::optional<Trial> runner_up_;
  std::string best_hash_;
  Phase phase_ = Phase::contract;
  bool is_validating_ = false;

  size_t num_taken_ = 0;
  bool is_finishing_ = false;
  bool is_done_ = false;
};

}  // namespace moetune::tuner
