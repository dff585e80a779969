// Input and output of a hunt through commits: the question, the runs, the source that makes them,
// the findings. Does not depend on git or the database, so that tests can use synthetic histories.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/trial_status.h"
#include "reports/hunt_result.h"
#include "tuner/bisect/commit_search.h"

namespace moetune::sweeps {

/// A commit as its author wrote it. The texts are valid UTF-8 but may contain control characters
/// and markup: escape them before showing them.
struct CommitInfo {
  std::string id;  ///< all hex digits
  std::string subject;
  std::string author;
  std::string author_date;  ///< ISO 8601
};

enum class RunStatus : uint8_t {
  ok,
  /// Probably not the commit's fault: an object or a submodule cannot be fetched, or the build
  /// reports a full disk. Such runs are not kept.
  not_prepared,
  build_failed,  ///< or the build took too long
  crashed,
  oom,
  hung,
  no_metric,  ///< it ended well, but the value is missing or is not a usable number
  interrupted,
};
const char* name_of(RunStatus status);
/// Status of a run whose trial ended with `status`. A failure without a RunStatus of its own counts
/// as crashed.
RunStatus run_status_of(spec::TrialStatus status);

/// Result of one measurement.
struct CommitRun {
  RunStatus status = RunStatus::ok;
  std::optional<double> value;            ///< value of the wanted metric; set if the status is ok
  std::map<std::string, double> metrics;  ///< all numbers found
  /// The configuration that the run reports, defaults filled in: JSON texts by dotted name. Empty
  /// if it reports none.
  std::map<std::string, std::string> config;
  std::string message;  ///< why it is not ok: one plain line of at most 500 bytes
  double build_seconds = 0;
  double run_seconds = 0;
  bool was_built_now = false;  ///< this call has tried a build, successful or not
};

/// One run as it is stored.
struct HuntRun {
  int position = 0;
  std::string purpose;  ///< name of a tuner::RunPurpose
  CommitRun run;
  int num_pauses = 0;  ///< long pauses since the run, in which the machine may have changed
};

/// Runs that are stored elsewhere.
using RunList = std::vector<std::reference_wrapper<const CommitRun>>;

/// Makes runs and stores them.
class HuntSource {
 public:
  virtual ~HuntSource() = default;
  /// Builds and runs the commit at a position; stores the result before it returns.
  virtual CommitRun measure(int position, const std::string& purpose) = 0;
  /// Whether a run at that position needs no build.
  [[nodiscard]] virtual bool is_built(int position) const = 0;
  /// Makes the next run at that position build anew. A commit that was built once may no longer
  /// build, without being at fault. Does nothing for sources that do not build.
  virtual void discard_build(int /*position*/) {}
};

enum class MetricKind : uint8_t { automatic, exact, noisy };

struct HuntSetup {
  std::vector<CommitInfo> commits;  ///< [positions + 1]: the good end first, the bad one last
  std::string metric = "step_time";
  bool is_higher_better = false;
  double min_effect_ratio = 0.02;
  double confidence = 0.95;
  MetricKind kind = MetricKind::automatic;
  int max_runs = 400;
  double max_seconds = 0;  ///< for building and running, earlier calls included; 0: no limit
  /// Runs that need not be repeated, in the order of time. Runs from before a long pause are used
  /// only if the ends still measure the same: if need be, the ends are run again for that.
  std::vector<HuntRun> earlier;
  std::function<void(const std::string&)> on_progress;
  std::function<bool()> is_stop_asked;
};

/// Position of the bad end.
inline int last_position(const HuntSetup& setup) {
  return static_cast<int>(setup.commits.size()) - 1;
}

/// A number that changed between two commits or two configurations.
struct Moved {
  std::string name;
  double before = 0.0;
  double after = 0.0;
};

/// The common part of the answers of hunts through commits and through configurations.
struct AnyHuntAnswer {
  std::string metric;         ///< the metric that was asked for
  std::string hunted_metric;  ///< the metric that was followed in the end
  std::string note;           ///< how the answer was found, or what else is worth knowing
  /// How the run fails at the bad end (oom, crashed, ...), if that is the regression; else empty.
  std::string failure;
  std::string unit;  ///< unit of `metric`: ns, bytes, s; empty: unknown
  /// By culprit: the numbers that changed with it, largest change first.
  std::vector<std::vector<Moved>> moved;
  bool is_interrupted = false;
  bool has_dropped_earlier = false;  ///< earlier runs were not used, as the machine has changed
  int num_runs = 0;
  int num_builds = 0;
  double seconds = 0.0;
};

struct HuntAnswer : AnyHuntAnswer {
  tuner::HuntResult result;
  /// The metric in which the culprit's effect was measured; empty: the one that was asked for.
  std::string effect_metric;
  std::vector<Moved> moved_between_ends;
  /// Values of the effective configuration that differ between the two ends for the same spec.
  std::vector<reports::ConfigChange> config_changes;
  /// By culprit: values that differ between it and its parent.
  std::vector<std::vector<reports::ConfigChange>> culprit_config_changes;
  /// Commits that could not be measured.
  struct Skipped {
    int position = 0;
    std::string status;
    std::string message;
  };
  std::vector<Skipped> skipped;
};

}  // namespace moetune::sweeps
