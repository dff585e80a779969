// What a hunt through commits is told and what it answers: the question, its runs, the source that
// makes them, the findings. Knows neither git nor the database, so that tests hunt in synthetic
// histories.
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

/// A commit as its author wrote it: valid UTF-8, but control characters and markup come through as
/// they are; who shows it has to make it harmless.
struct CommitInfo {
  std::string id;  ///< all hex digits
  std::string subject;
  std::string author;
  std::string author_date;  ///< ISO 8601
};

enum class RunStatus : uint8_t {
  ok,
  /// By no fault of the commit's, it seems: an object or a submodule is out of reach, or the build
  /// speaks of a full disk. Not kept.
  not_prepared,
  build_failed,  ///< also: it could not be built in time
  crashed,
  oom,
  hung,
  no_metric,  ///< it ended well, but the value is not there, or no number that can be measured
  interrupted,
};
const char* name_of(RunStatus status);
/// Of a run whose trial ended so. One that has not ended well and is none of the others has
/// crashed.
RunStatus run_status_of(spec::TrialStatus status);

/// What one measurement gave.
struct CommitRun {
  RunStatus status = RunStatus::ok;
  std::optional<double> value;            ///< of the wanted metric; there when ok
  std::map<std::string, double> metrics;  ///< all numbers found
  /// The configuration that the run says it had, defaults filled in: JSON texts by dotted name.
  /// Empty where it says none.
  std::map<std::string, std::string> config;
  std::string message;  ///< why it is not ok: one plain line of at most 500 bytes
  double build_seconds = 0;
  double run_seconds = 0;
  bool was_built_now = false;  ///< a build was tried in this call, with whatever result
};

/// One run as it is kept.
struct HuntRun {
  int position = 0;
  std::string purpose;  ///< of tuner::RunPurpose
  CommitRun run;
  int num_pauses = 0;  ///< long ones since, in which the machine may have become another
};

/// Runs that others keep.
using RunList = std::vector<std::reference_wrapper<const CommitRun>>;

/// Where runs come from and where they are kept.
class HuntSource {
 public:
  virtual ~HuntSource() = default;
  /// Builds and runs the commit at a position, and keeps the answer before it returns.
  virtual CommitRun measure(int position, const std::string& purpose) = 0;
  /// Whether a run there needs no build.
  [[nodiscard]] virtual bool is_built(int position) const = 0;
  /// The next run there builds anew: what was built once may not be any more, through no fault of
  /// the commit's. Nothing to do where nothing is built.
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
  double max_seconds = 0;  ///< of building and running, measured earlier included; 0: no limit
  /// Runs that need not be repeated, in the order of time. Those from before a long pause are
  /// compared at the ends with newer ones, made for that if need be, and not used where they
  /// differ.
  std::vector<HuntRun> earlier;
  std::function<void(const std::string&)> on_progress;
  std::function<bool()> is_stop_asked;
};

/// Of the commits.
inline int last_position(const HuntSetup& setup) {
  return static_cast<int>(setup.commits.size()) - 1;
}

/// A number that changed between two commits or two configurations.
struct Moved {
  std::string name;
  double before = 0.0;
  double after = 0.0;
};

/// What a hunt through commits and one through configurations both answer.
struct AnyHuntAnswer {
  std::string metric;         ///< that was asked for
  std::string hunted_metric;  ///< that was followed in the end
  std::string note;           ///< how the answer was found, or what else is worth knowing
  /// When it is the run itself that fails at the bad end: how (oom, crashed, ...); else empty.
  std::string failure;
  std::string
      unit;  ///< of the metric that was asked for: ns, bytes, s, or empty where it is not known
  /// What changed with each culprit, by culprit: largest first.
  std::vector<std::vector<Moved>> moved;
  bool is_interrupted = false;
  bool has_dropped_earlier = false;  ///< the machine is not what it was then
  int num_runs = 0;
  int num_builds = 0;
  double seconds = 0.0;
};

struct HuntAnswer : AnyHuntAnswer {
  tuner::HuntResult result;
  /// The metric that the culprit's effect was measured on; empty: the one that was asked for.
  std::string effect_metric;
  std::vector<Moved> moved_between_ends;
  /// Values of the effective configuration that the two ends fill in differently for the same spec;
  /// the same by culprit, between it and its parent.
  std::vector<reports::ConfigChange> config_changes;
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
