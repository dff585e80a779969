// Whether runs of long ago still hold: the machine may have become another since.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sweeps/bisect/vocabulary.h"

namespace moetune::sweeps {

/// When a run ended, as the store wrote it, and how long it took.
struct RunTime {
  std::string ended_at;
  double seconds = 0.0;
};

/// For each run, in the order of time: the number of long pauses between it and now. Runs with the
/// same number form a stretch; 0 is the present one.
std::vector<int> pauses_since(const std::vector<RunTime>& runs);

/// Number of runs of each end with which stretches are compared.
inline constexpr size_t kLooks = 3;

/// Results of an end's runs in one stretch, in the order of time.
struct EndRuns {
  std::vector<double> values;
  size_t num_failed = 0;
};

/// Whether an end measures now as it did then. Only the first kLooks runs of now are used: later
/// ones must not change the answer with which a hunt has begun. With too few runs the answer is
/// true.
bool is_as_it_was(const EndRuns& then, const EndRuns& now, double min_effect_ratio,
                  double confidence);

/// How the ends of a hunt are measured again.
struct LookAgain {
  int good = 0;  ///< position
  int bad = 0;
  std::function<std::optional<double>(const CommitRun&)> value_of;
  /// Runs an end; empty if the hunt was stopped.
  std::function<std::optional<CommitRun>(int position, const std::string& purpose)> measure;
  std::function<void(const std::string&)> tell;
  double min_effect_ratio = 0.0;
  double confidence = 0.0;
};

struct EarlierRuns {
  std::vector<HuntRun> runs;
  bool has_dropped = false;
};

/// Returns the runs that still count, in the order of time, with the runs that were made to find
/// out. If some are from before a long pause, each end is run until it has kLooks runs of now. A
/// stretch does not count if an end measured otherwise in it than now. Empty if the hunt was
/// stopped.
std::optional<EarlierRuns> that_still_hold(std::vector<HuntRun> runs, const LookAgain& look);

}  // namespace moetune::sweeps
