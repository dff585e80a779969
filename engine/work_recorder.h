// What a trial's operations took on each rank, untraced step by untraced step, and how their rows
// travelled: enough to play the same steps once more. Beside each step a fixed piece of work is
// timed.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/exec/observers.h"
#include "engine/probe.h"
#include "engine/spec/trial_spec.h"
#include "profiler/store/shard.h"

namespace moetune::engine {

/// Each rank's thread uses what is its own.
class WorkRecorder final : public RouteObserver {
 public:
  /// Whether a trial's steps can be played: in measured virtual time, all ranks being here.
  static bool is_for(const spec::TrialSpec& trial);

  explicit WorkRecorder(const std::vector<int>& ranks);

  /// Before a step of `rank`; its durations go to what this returns.
  std::vector<int64_t>* begin(int rank);
  void on_route(int rank, int64_t layer, int64_t micro_batch, const plan::Route& route) override;
  /// Of the step that `rank` has begun.
  store::ShardWork end(int rank, int64_t step);

 private:
  struct OfRank {
    Probe probe;
    store::ShardWork work;
  };
  std::map<int, OfRank> ranks_;  ///< never changed once it is made
};

}  // namespace moetune::engine
