// A model and a cluster that are small enough to be trained on a CPU, with the proportions of the
// ones that somebody has: what computing, sending, launching and keeping cost in terms of each
// other. So a search over the miniature meets the same walls, if not in the same order everywhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/spec/hardware_spec.h"
#include "engine/spec/model_spec.h"

namespace moetune::tuner {

/// Sequences of one micro-batch, there and in the miniature.
struct SequenceLengths {
  int64_t there = 4096;
  int64_t here = 128;
};

struct Miniature {
  spec::ModelSpec model;
  spec::HardwareSpec hardware;
  /// What became smaller, for people: "hidden_size 2048 -> 128".
  std::vector<std::string> model_changes;
  std::vector<std::string> hardware_changes;
};

/// Whether a CPU trains this in a second or so a step, so that no miniature is needed.
bool is_trainable_on_cpu(const spec::ModelSpec& model, int64_t tokens_per_step);

/// `cpu`: a hardware file whose device is one core of a CPU, such as emulated-2x4. Widths, heads,
/// experts, layers and vocabulary shrink, each family's shape remains. With t the time of a
/// layer's median product, links move the hidden states of a micro-batch in the same multiple of
/// the experts' products (of t without experts), latencies and launches take the same multiple of
/// t, and all devices together hold the same multiple of the training state. Products there reach
/// the hardware's `efficiency`, or where it has none two thirds of the peak, experts' products a
/// quarter (docs/results.md, "The quick start's cluster"). At most 16 devices remain. Throws
/// base::UsageError for a model that the engine does not run (spec::engine_gap).
Miniature miniature_of(const spec::ModelSpec& model, const spec::HardwareSpec& hardware,
                       const SequenceLengths& lengths, const spec::HardwareSpec& cpu);

}  // namespace moetune::tuner
