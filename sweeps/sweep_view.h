// What a stored sweep says of its trials beside their rows: which of them matter, what each was
// tried for, which measurements of them count, and where these were made.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "profiler/store/store.h"
#include "profiler/store/verdict.h"

namespace moetune::sweeps {

class SweepView {
 public:
  SweepView(const store::Store& store, int64_t sweep_id);

  /// winner, baseline, first_fit: what a trial is to its sweep; mostly nothing. One that has not
  /// ended well is no winner, whatever the database says.
  [[nodiscard]] std::vector<std::string> marks_of(const store::TrialRow& trial) const;
  /// Whether the sweep took it over as its best so far.
  [[nodiscard]] bool is_kept(const store::TrialRow& trial) const;
  /// Whether it ended as wrong, and the second reference run took that back.
  [[nodiscard]] bool is_cleared(const store::TrialRow& trial) const {
    return cleared_.contains(trial.id);
  }
  /// What the long run of its configuration said, told with the short trial and with the long one.
  [[nodiscard]] store::Validation validation_of(const store::TrialRow& trial) const {
    return store::validation_of(decisions_, trial);
  }
  /// The first configuration that fitted and ran; null before there is one.
  [[nodiscard]] const store::TrialRow* first_fit() const;
  /// The configuration that a trial is a change of: the one it was compared with; else, of a
  /// remedy, the best so far, and of what was refused before it ran, the starting configuration.
  /// Null where there is none.
  [[nodiscard]] const store::TrialRow* parent_of(const store::TrialRow& trial) const;
  /// By attempt, those that no longer count among them.
  [[nodiscard]] const std::vector<store::MeasurementRow>& measurements_of(
      const store::TrialRow& trial) const;
  [[nodiscard]] int64_t num_counted(const store::TrialRow& trial) const;
  /// Environment of the measurements that count; null if there are none or it is unknown.
  [[nodiscard]] const store::EnvironmentRow* environment_of(const store::TrialRow& trial) const;
  [[nodiscard]] const store::EnvironmentRow* environment_of(
      const store::MeasurementRow& measurement) const;
  [[nodiscard]] const std::vector<store::EnvironmentRow>& environments() const {
    return environments_;
  }

 private:
  [[nodiscard]] const store::TrialRow* find(std::optional<int64_t> id) const;

  store::SweepRow sweep_;
  std::map<int64_t, store::TrialRow> trials_;  ///< by id
  std::vector<store::DecisionRow> decisions_;  ///< by ordinal
  std::set<int64_t> cleared_;                  ///< ids of trials
  std::vector<store::EnvironmentRow> environments_;
  std::map<int64_t, std::vector<store::MeasurementRow>> measurements_;  ///< by trial
};

/// {"ordinal", "host", "commit", "binary"}; null for none.
nlohmann::json environment_json(const store::EnvironmentRow* environment);
/// Everything of a measurement; its environment as above.
nlohmann::json measurement_json(const SweepView& view, const store::MeasurementRow& measurement);
/// "2: host x, commit y, binary z", one line.
std::string environment_text(const store::EnvironmentRow& environment);

}  // namespace moetune::sweeps
