// A sweep file to start from, written for a model and a cluster, with comments that say what to
// change.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/spec/hardware_spec.h"
#include "engine/spec/model_spec.h"

namespace moetune::sweeps {

struct StartingPoint {
  std::string name;
  spec::ModelSpec model;
  /// What the file says for "model" where the model can be trained as it is: a path or a name.
  /// Empty for one that has neither: then the model itself is written.
  std::string model_text;
  spec::HardwareSpec hardware;
  std::string hardware_text;         ///< the same for "hardware"
  std::string hardware_source;       ///< in messages
  bool is_default_hardware = false;  ///< nobody named it
  std::string data_path;
  /// Whose devices are cores of a CPU: emulated-2x4.
  spec::HardwareSpec cpu;
  /// missing_host_times() of the hardware's file, and the cluster whose times a miniature has
  /// instead: without any, a host that is too slow could never be found.
  std::vector<std::string> missing_times;
  spec::HardwareSpec typical;
};

/// launch_ns and what follows it, as far as a hardware file leaves them out. Data sheets do.
std::vector<std::string> missing_host_times(const nlohmann::json& hardware);

/// What a miniature takes from `typical`, for people; empty where nothing is missing.
std::string missing_times_text(const StartingPoint& start);

/// Whether a CPU needs a miniature of this model, where it plays all devices of this hardware.
bool needs_miniature(const spec::ModelSpec& model, const spec::HardwareSpec& hardware);

/// The text of the file: JSON with comments. A model that a CPU cannot train within seconds a step
/// is replaced by its miniature, and the cluster by one of the same proportions
/// (tuner/miniature.h); the comments say so and list what changed. Throws base::UsageError for
/// hardware without a peak, or with which no miniature can run.
std::string starting_sweep(const StartingPoint& start);

}  // namespace moetune::sweeps
