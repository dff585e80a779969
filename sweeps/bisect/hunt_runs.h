// The runs of a hunt through commits: values of a metric at a commit, differences between two
// commits, and which commits could not be measured.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sweeps/bisect/run_log.h"
#include "sweeps/bisect/vocabulary.h"
#include "tuner/stats/drift.h"

namespace moetune::sweeps {

/// Prefix of a pseudo metric "config NAME": 0 if a run's configuration has the good end's value,
/// else 1.
inline constexpr const char* kConfigPrefix = "config ";

double mean_of(const std::vector<double>& values);
/// Whether all values are the same; false if there are none.
bool are_equal(const std::vector<double>& values);

class HuntRuns : public RunLog {
 public:
  using Value = std::function<std::optional<double>(const CommitRun&)>;

  explicit HuntRuns(const HuntSetup& setup) : setup_(&setup) {}

  /// Keeps runs that verify a suspect apart from the others.
  size_t keep(const HuntRun& run) {
    return RunLog::keep(run, run.purpose == tuner::name_of(tuner::RunPurpose::verify));
  }
  /// The first run at a position, whether the hunt has used it or not.
  [[nodiscard]] const CommitRun* first_at(int position) const;
  /// Adds a metric that is computed from a run.
  void define(const std::string& metric, Value value_of) { defined_[metric] = std::move(value_of); }
  /// Says how runs fail at the bad end, for kRunFailsMetric.
  void set_failure(RunStatus failure) { failure_ = failure; }

  [[nodiscard]] std::optional<double> value_of(const CommitRun& run,
                                               const std::string& metric) const;
  [[nodiscard]] std::vector<double> values_of(const std::string& metric, int position) const;
  [[nodiscard]] std::vector<tuner::TimedReading> timed(const std::string& metric,
                                                       const std::vector<int>& positions) const;
  /// The same for a value that is computed from each run.
  [[nodiscard]] std::vector<tuner::TimedReading> timed(const Value& value,
                                                       const std::vector<int>& positions) const;
  /// Numbers that every good run of both ends has.
  [[nodiscard]] std::set<std::string> common_metrics() const;
  /// Differences of the effective configurations; empty if one of them is not known.
  [[nodiscard]] std::vector<reports::ConfigChange> config_changes_between(int before,
                                                                          int after) const;
  [[nodiscard]] std::vector<HuntAnswer::Skipped> skipped() const;
  /// Unit of the metric that was asked for: ns, bytes; empty: unknown.
  [[nodiscard]] std::string unit() const;

 private:
  [[nodiscard]] const std::map<std::string, std::string>& config_at(int position) const;
  [[nodiscard]] int last_position() const { return static_cast<int>(setup_->commits.size()) - 1; }

  const HuntSetup* setup_;
  std::map<std::string, Value> defined_;
  std::optional<RunStatus> failure_;
};

}  // namespace moetune::sweeps
