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

/// For runs in the order of time: how many long pauses lie between each and now. Runs with the same
/// number were made in one stretch; 0 is the present one.
std::vector<int> pauses_since(const std::vector<RunTime>& runs);

/// Runs of each end that a stretch is compared by.
inline constexpr size_t kLooks = 3;

/// What the runs of an end in one stretch gave, in the order of time.
struct EndRuns {
  std::vector<double> values;
  size_t num_failed = 0;
};

/// Whether an end is what it was then, by the first kLooks runs of now: later ones must not change
/// the answer that a hunt has begun with. With too few runs to tell it counts as the same.
bool is_as_it_was(const EndRuns& then, const EndRuns& now, double min_effect_ratio,
                  double confidence);

/// How the ends of a hunt are looked at again.
struct LookAgain {
  int good = 0;  ///< position
  int bad = 0;
  std::function<std::optional<double>(const CommitRun&)> value_of;
  /// Runs an end; none when the hunt was stopped.
  std::function<std::optional<CommitRun>(int position, const std::string& purpose)> measure;
  std::function<void(const std::string&)> tell;
  double min_effect_ratio = 0.0;
  double confidence = 0.0;
};

struct EarlierRuns {
  std::vector<HuntRun> runs;
  bool has_dropped = false;
};

/// Of runs in the order of time, those that still hold, and those that showed it. Where some are
/// from before a long pause, each end is run until it has kLooks runs of now; a stretch in which an
/// end was not what it is now does not count. None when the hunt was stopped.
std::optional<EarlierRuns> that_still_hold(std::vector<HuntRun> runs, const LookAgain& look);

}  // namespace moetune::sweeps
