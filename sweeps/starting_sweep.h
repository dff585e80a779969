// A sweep file to start from, written for a model and a cluster, with comments that say what to
// change.
#pragma once

#include <string>

#include "engine/spec/hardware_spec.h"
#include "engine/spec/model_spec.h"

namespace moetune::sweeps {

struct StartingPoint {
  std::string name;
  spec::ModelSpec model;
  /// What the file says for "model" where the model can be trained as it is: a path or a name.
  std::string model_text;
  spec::HardwareSpec hardware;
  std::string hardware_text;
  std::string data_path;
  /// Whose devices are cores of a CPU: emulated-2x4.
  spec::HardwareSpec cpu;
};

/// The text of the file: JSON with comments. A model that a CPU cannot train within seconds a step
/// is replaced by its miniature, and the cluster by one of the same proportions
/// (tuner/miniature.h); the comments say so and list what changed. Throws base::UsageError for
/// hardware without a peak.
std::string starting_sweep(const StartingPoint& start);

}  // namespace moetune::sweeps
