// What a stored sweep says of its trials beside their rows: which of them matter, which
// measurements of them count, and where these were made.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "profiler/store/store.h"

namespace moetune::sweeps {

class SweepView {
 public:
  SweepView(const store::Store& store, int64_t sweep_id);

  /// winner, baseline, first_fit: what a trial is to its sweep; mostly nothing.
  [[nodiscard]] std::vector<std::string> marks_of(const store::TrialRow& trial) const;
  /// By attempt, those that no longer count among them.
  [[nodiscard]] const std::vector<store::MeasurementRow>& measurements_of(
      const store::TrialRow& trial) const;
  [[nodiscard]] int64_t num_counted(const store::TrialRow& trial) const;
  /// Of the measurements that count; null where there is none, or nobody knows where it was made.
  [[nodiscard]] const store::EnvironmentRow* environment_of(const store::TrialRow& trial) const;
  [[nodiscard]] const store::EnvironmentRow* environment_of(
      const store::MeasurementRow& measurement) const;
  [[nodiscard]] const std::vector<store::EnvironmentRow>& environments() const {
    return environments_;
  }

 private:
  store::SweepRow sweep_;
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
