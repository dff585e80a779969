// Steps with faults of known kind and strength that the engine runs: every rank a thread with real
// data, on the modelled clock, so that a step that is run again takes as long.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "tests/tuner/faulty_steps.h"

namespace moetune::engine::testing {

struct EmulatedRun {
  spec::TrialSpec trial;
  std::vector<tuner::testing::FaultyStep> steps;  ///< they differ by their tokens

  [[nodiscard]] double time() const;  ///< mean of the steps
};

/// Whether the engine can be given the fault in a layout of faulty_layouts(): launch queues that
/// fill are only played.
bool is_emulated(size_t layout, tuner::testing::Fault fault);
/// Noise and seed are not looked at.
EmulatedRun run_emulated(const tuner::testing::FaultyCase& faulty, int num_steps);
/// EmulatedRun::time of it, for which nothing is recorded.
double time_of(const tuner::testing::FaultyCase& faulty, int num_steps);
/// Share of the steps that goes when the faults are removed.
double emulated_gain(const tuner::testing::FaultyCase& faulty, const EmulatedRun& run);
/// The strength with which the fault's removal gains about `gain_ratio`; none where no strength
/// does.
std::optional<double> emulated_strength(size_t layout, tuner::testing::Fault fault,
                                        double gain_ratio);

}  // namespace moetune::engine::testing
