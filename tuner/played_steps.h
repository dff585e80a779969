// The steps of a trial in measured virtual time, played once more with robust durations: the
// program of every rank, with the rows as they were routed in that step, each operation taking what
// all operations like it took (stats/robust_ops.h). So a neighbour's load, which disturbs some
// durations of every step, moves the step time little, and an operation that became slower moves it
// fully.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/spec/trial_spec.h"

namespace moetune::tuner {

/// A step of one rank as the engine ran it.
struct MeasuredStep {
  int64_t step = 0;
  int rank = 0;
  /// Of its operations and of the host's work, in the order of the rank's program.
  std::vector<int64_t> durations_ns;
  /// Each time that the program makes a route, in order: rows sent to every peer, then received
  /// from every peer, chunk by chunk, forward, then backward.
  std::vector<int64_t> routed_rows;
  std::vector<int64_t> probe_ns;  ///< runs of the fixed probe beside it
};

/// What a trial's steps come to.
struct PlayedTrial {
  std::vector<int64_t> measured_ns;  ///< by step: played with its own durations
  std::vector<int64_t> played_ns;    ///< by step: with the robust ones
  int64_t step_ns = 0;               ///< median of the played ones
  int64_t low_ns = 0;  ///< interval of 95 %, by the durations', the steps' and the probe's
  int64_t high_ns = 0;
  int64_t probe_ns = 0;  ///< median of the probe's runs; 0 without any
  double slowness = 1;   ///< of the machine, over what it usually is
  int64_t num_classes = 0;
};

/// `steps`: of all ranks of the trial, at least one. `usual_probe_ns`: what the probe takes where
/// the machine is as fast as it is to be taken for; 0: as fast as it was. Throws base::Error where
/// a step is not one of the trial's program.
PlayedTrial play_trial(const spec::TrialSpec& trial, const std::vector<MeasuredStep>& steps,
                       double usual_probe_ns);

}  // namespace moetune::tuner
