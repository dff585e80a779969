// A reference run on disk: a tiny model with its tokens and what the reference implementation made
// of them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/hf_weights.h"
#include "engine/spec/trial_spec.h"

namespace moetune::engine {

struct ReferenceRun {
  spec::ModelSpec model;
  spec::TrainingSpec training;  ///< batch, sequence length and optimizer of the run
  std::shared_ptr<const Checkpoint> weights;
  std::vector<int32_t> tokens;  ///< [steps, batch, seq + 1]
  std::vector<double> losses;   ///< per step
  std::vector<double> grad_norms;
  std::vector<double> logits;  ///< first step: [batch, seq, vocab]
  std::map<int64_t, std::vector<int32_t>>
      experts;  ///< first step, by MoE layer: [batch * seq, experts_per_token]
  std::map<std::string, std::vector<double>> gradients;  ///< first step, by tensor name
  std::shared_ptr<const HfNames> gradient_names;

  [[nodiscard]] int64_t num_steps() const { return static_cast<int64_t>(losses.size()); }
};

/// What config.json and expected.json say; no tensor is read. Throws base::UsageError naming file,
/// key or tensor for anything that is missing or does not fit together, as does what follows.
ReferenceRun load_reference_run(const std::string& folder);
/// Adds weights, tokens and results.
void load_reference_tensors(const std::string& folder, ReferenceRun& run);

}  // namespace moetune::engine
