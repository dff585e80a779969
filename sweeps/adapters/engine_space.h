// What may be changed in the user's run, as the search asks for it: rules and predictions of the
// planner, remedies of the table that diagnoses runs, words of the dialect's tables.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sweeps/adapters/user_run.h"
#include "tuner/strategies/settings_search.h"

namespace moetune::sweeps {

/// "Rules and names of settings are those of Megatron-LM core_v0.19.0 (...)": the user's engine may
/// be of another release.
std::string whose_rules(spec::dialects::Dialect dialect);

class EngineSpace final : public tuner::SettingsSpace {
 public:
  explicit EngineSpace(std::shared_ptr<const UserRun> run) : run_(std::move(run)) {}

  [[nodiscard]] tuner::Settings base() const override { return settings_of(*run_); }
  [[nodiscard]] tuner::TrialRequest request(const tuner::Settings& settings, bool is_profiled,
                                            int64_t num_steps) const override;
  [[nodiscard]] std::string broken_rule(const tuner::Settings& settings) const override;
  [[nodiscard]] std::string too_large(const tuner::TrialRequest& request) const override;
  [[nodiscard]] bool can_profile() const override;
  [[nodiscard]] bool asks_for_steps() const override;
  [[nodiscard]] std::vector<tuner::Settings> layouts() const override;
  [[nodiscard]] std::vector<tuner::SettingsMove> moves(
      const tuner::Settings& from, const tuner::TrialOutcome& seen) const override;
  [[nodiscard]] std::string remark() const override;
  [[nodiscard]] std::string change_text(const tuner::Settings& from,
                                        const tuner::Settings& to) const override;

  /// Axes without a legal value: each value breaks a rule, both in the user's configuration and in
  /// the legal ones of up to 500 sampled layouts. Name of the axis, and the first rule that was
  /// broken.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> illegal_axes() const;

 private:
  [[nodiscard]] tuner::Prediction predict(const spec::PlanKnobs& knobs) const;
  void add_remedies(const tuner::Settings& from, const tuner::TrialOutcome& seen,
                    std::vector<tuner::SettingsMove>& moves) const;

  std::shared_ptr<const UserRun> run_;
};

}  // namespace moetune::sweeps
