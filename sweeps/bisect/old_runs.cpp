#include "sweeps/bisect/old_runs.h"

#include <algorithm>
#include <ctime>

#include "profiler/store/store.h"
#include "tuner/stats/drift.h"

namespace moetune::sweeps {
namespace {

constexpr double kLongPauseSeconds = 3600;

}  // namespace

std::vector<int> pauses_since(const std::vector<RunTime>& runs) {
  std::vector<int> pauses(runs.size(), 0);
  int count = 0;
  auto later = static_cast<double>(std::time(nullptr));
  for (size_t i = runs.size(); i-- > 0;) {
    const double ended_at = store::seconds_of(runs[i].ended_at);
    count += later - ended_at > kLongPauseSeconds;
    pauses[i] = count;
    later = ended_at - runs[i].seconds;
  }
  return pauses;
}

bool is_as_it_was(const EndRuns& then, const EndRuns& now, double min_effect_ratio,
                  double confidence) {
  if (then.values.empty()) return then.num_failed == 0 || now.values.empty();
  if (now.values.empty()) return now.num_failed == 0;
  std::vector<double> first = now.values;
  first.resize(std::min(first.size(), kLooks));
  return !tuner::levels_differ(then.values, first, min_effect_ratio, confidence);
}

std::set<int> changed_stretches(int oldest,
                                const std::function<EndRuns(bool is_bad, int stretch)>& end_runs,
                                double min_effect_ratio, double confidence) {
  std::set<int> changed;
  for (const bool is_bad : {false, true}) {
    const EndRuns now = end_runs(is_bad, 0);
    for (int stretch = 1; stretch <= oldest; ++stretch) {
      if (!is_as_it_was(end_runs(is_bad, stretch), now, min_effect_ratio, confidence)) {
        changed.insert(stretch);
      }
    }
  }
  return changed;
}

}  // namespace moetune::sweeps
