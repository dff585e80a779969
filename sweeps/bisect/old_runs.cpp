#include "sweeps/bisect/old_runs.h"

#include <algorithm>
#include <ctime>
#include <set>
#include <utility>

#include "profiler/store/store.h"
#include "tuner/stats/drift.h"

namespace moetune::sweeps {
namespace {

constexpr double kLongPauseSeconds = 3600;

EndRuns end_runs(const std::vector<HuntRun>& runs, int stretch, int position,
                 const LookAgain& look) {
  EndRuns end;
  for (const HuntRun& run : runs) {
    if (run.position != position || run.num_pauses != stretch) continue;
    if (const auto value = look.value_of(run.run)) {
      end.values.push_back(*value);
    } else {
      ++end.num_failed;
    }
  }
  return end;
}

/// Those in which an end was not what it is now.
std::set<int> changed_stretches(const std::vector<HuntRun>& runs, int oldest,
                                const LookAgain& look) {
  std::set<int> changed;
  for (const int end : {look.good, look.bad}) {
    const EndRuns now = end_runs(runs, 0, end, look);
    for (int stretch = 1; stretch <= oldest; ++stretch) {
      if (!is_as_it_was(end_runs(runs, stretch, end, look), now, look.min_effect_ratio,
                        look.confidence)) {
        changed.insert(stretch);
      }
    }
  }
  return changed;
}

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

std::optional<EarlierRuns> that_still_hold(std::vector<HuntRun> runs, const LookAgain& look) {
  int oldest = 0;
  for (const HuntRun& run : runs) oldest = std::max(oldest, run.num_pauses);
  if (oldest == 0) return EarlierRuns{std::move(runs)};
  const char* purpose = tuner::name_of(tuner::RunPurpose::reference);
  bool has_told = false;
  for (const int end : {look.good, look.bad, look.bad, look.good, look.good, look.bad}) {
    const EndRuns now = end_runs(runs, 0, end, look);
    if (now.values.size() + now.num_failed >= kLooks) continue;
    if (!std::exchange(has_told, true)) {
      look.tell("stored runs are old: both ends run first, to see whether they still hold");
    }
    std::optional<CommitRun> run = look.measure(end, purpose);
    if (!run) return std::nullopt;
    runs.push_back({end, purpose, std::move(*run)});
  }
  const std::set<int> dropped = changed_stretches(runs, oldest, look);
  if (!dropped.empty()) {
    look.tell("the machine is not what it was: what was measured then is not used");
  }
  std::erase_if(runs, [&](const HuntRun& run) { return dropped.contains(run.num_pauses); });
  return EarlierRuns{std::move(runs), !dropped.empty()};
}

}  // namespace moetune::sweeps
