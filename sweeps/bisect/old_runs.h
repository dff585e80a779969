// Whether runs of long ago still hold: the machine may have become another since.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace moetune::sweeps {

/// When a run ended, as the store wrote it, and how long it took.
struct RunTime {
  std::string ended_at;
  double seconds = 0.0;
};

/// Of runs in the order of time: the long pauses between each and now. What has the same number was
/// made in one stretch, 0 of them is the present.
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

/// Of the stretches 1..oldest, those in which an end was not what it is now. `end_runs`: of the
/// good end or the bad one, in a stretch.
std::set<int> changed_stretches(int oldest,
                                const std::function<EndRuns(bool is_bad, int stretch)>& end_runs,
                                double min_effect_ratio, double confidence);

}  // namespace moetune::sweeps
