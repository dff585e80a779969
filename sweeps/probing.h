// Probing a machine: short trials of one model in several sizes, and the figures of a hardware file
// that follow from what they measured.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "engine/spec/trial_status.h"
#include "sweeps/processes/process.h"
#include "sweeps/runner.h"
#include "tuner/probed_rates.h"

namespace moetune::sweeps {

struct ProbedTrial {
  std::string title;                        ///< "2 x 128 tokens a micro-batch"
  std::optional<spec::TrialStatus> status;  ///< none: not run
  std::string reason;
};

struct Probe {
  std::vector<ProbedTrial> trials;
  tuner::WorkRates rates;
  tuner::ProbedLinks links;  ///< of devices; a CPU's are emulated, so they are not measured
  tuner::ProbedHost host;    //
  spec::HardwareSpec hardware;
  std::vector<std::string> kept;  ///< keys of the file that nothing was measured for
};

/// What is run: the trial's model with plain data parallelism over all devices of its machine (on
/// the CPU: one rank), in micro-batches of different sizes. Nothing has to fit.
std::vector<spec::TrialSpec> probe_trials(const spec::TrialSpec& base);

/// Runs probe_trials() `rounds` times in turns, as a machine's speed changes within seconds.
/// Reports failed trials by `say` and leaves them out. Throws base::Error if all fail, and
/// base::EnvironmentFailure if they cannot run here. If interrupted, the probe has no rates.
Probe probe_machine(const spec::TrialSpec& base, int64_t rounds, ProcessRunner& processes,
                    const RunnerOptions& options,
                    const std::function<void(const std::string&)>& say);

nlohmann::json to_json(const Probe& probe);
/// A table for people.
std::string probe_text(const Probe& probe);

}  // namespace moetune::sweeps
