// The runs of a hunt in the order of time, and what they say: the values of a metric at a commit,
// what two commits differ in, which commits could not be measured.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sweeps/bisect/vocabulary.h"
#include "tuner/stats/drift.h"

namespace moetune::sweeps {

/// A pseudo metric "config NAME": 0 where a run's configuration has the good end's value, else 1.
inline constexpr const char* kConfigPrefix = "config ";

double mean_of(const std::vector<double>& values);
/// False when there are none.
bool are_equal(const std::vector<double>& values);

/// Runs of an earlier call are kept from the beginning, but count only from where the hunt asks for
/// them: only so it goes the same way as the first time.
class HuntRuns {
 public:
  using Value = std::function<std::optional<double>(const CommitRun&)>;

  explicit HuntRuns(const HuntSetup& setup) : setup_(&setup) {}

  /// Index of the run. Those made to verify a suspect are counted apart.
  size_t keep(const HuntRun& run);
  void use(size_t index);
  /// The nth run at a position, none when there are fewer.
  [[nodiscard]] std::optional<size_t> nth(int position, size_t n, bool is_fresh) const;
  /// The first one at a position, used or not.
  [[nodiscard]] const CommitRun* first_at(int position) const;
  [[nodiscard]] const CommitRun& operator[](size_t index) const { return runs_[index].run; }
  /// A metric that is made from others of a run, under a name of its own.
  void define(const std::string& metric, Value value_of) { defined_[metric] = std::move(value_of); }
  /// How runs fail at the bad end, for kRunFailsMetric.
  void set_failure(RunStatus failure) { failure_ = failure; }

  [[nodiscard]] int num_used() const { return num_used_; }
  [[nodiscard]] int num_builds() const { return num_builds_; }
  [[nodiscard]] double seconds() const { return run_seconds_ + build_seconds_; }
  /// Of one build, in runs. Without a single build there is nothing to build.
  [[nodiscard]] double build_cost() const;

  [[nodiscard]] std::optional<double> value_of(const CommitRun& run,
                                               const std::string& metric) const;
  [[nodiscard]] std::vector<double> values_of(const std::string& metric, int position) const;
  /// Those that ended well, in the order of time.
  [[nodiscard]] RunList good_runs_at(int position) const;
  /// When a run began, in seconds of building and running.
  [[nodiscard]] double time_of(size_t index) const { return times_[index]; }
  [[nodiscard]] std::vector<tuner::TimedReading> timed(const std::string& metric,
                                                       const std::vector<int>& positions) const;
  /// The same of what a function makes of them.
  [[nodiscard]] std::vector<tuner::TimedReading> timed(const Value& value,
                                                       const std::vector<int>& positions) const;
  /// Numbers that every good run of both ends has.
  [[nodiscard]] std::set<std::string> common_metrics() const;
  /// In the effective configurations; nothing when one of them is not known.
  [[nodiscard]] std::vector<HuntAnswer::ConfigChange> config_changes_between(int before,
                                                                             int after) const;
  [[nodiscard]] std::vector<HuntAnswer::Skipped> skipped() const;
  /// Of the metric that was asked for: ns, bytes, or not known.
  [[nodiscard]] std::string unit() const;

 private:
  [[nodiscard]] std::vector<std::reference_wrapper<const HuntRun>> used_runs() const;
  [[nodiscard]] const std::map<std::string, std::string>& config_at(int position) const;
  [[nodiscard]] int last_position() const { return static_cast<int>(setup_->commits.size()) - 1; }

  const HuntSetup* setup_;
  std::vector<HuntRun> runs_;
  std::vector<double> times_;  ///< by run
  double next_time_ = 0.0;
  std::vector<bool> is_used_;  ///< by run
  std::map<int, std::vector<size_t>> by_position_;
  std::map<int, std::vector<size_t>> verified_by_position_;
  std::map<std::string, Value> defined_;
  std::optional<RunStatus> failure_;
  int num_used_ = 0;
  int num_builds_ = 0;
  double run_seconds_ = 0.0;
  double build_seconds_ = 0.0;
};

}  // namespace moetune::sweeps
