// Comparison of the engine with a reference implementation: the same weights and tokens must give
// the same logits, routing, gradients, losses and gradient norms, on one rank and on any layout.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/spec/knobs.h"

namespace moetune::engine {

/// How far the engine is from the reference. A value that is no number makes the comparison fail.
struct VerifyResult {
  bool ok = false;
  double logits_max_abs = 0;     ///< first step, all positions
  double loss_max_abs = 0;       ///< over all steps
  double grad_norm_max_rel = 0;  ///< over all steps
  double gradient_worst_rel_l2 =
      0;  ///< first step: |ours - reference| / |reference| of the worst tensor
  std::string gradient_worst_name;
  int64_t router_mismatches =
      0;  ///< first step: tokens with another set of experts, over all MoE layers
};

/// What single precision allows: about ten times the reference's own distance from double
/// precision.
struct VerifyTolerance {
  static constexpr double kLogits = 5e-5;
  static constexpr double kGradient = 5e-5;
  static constexpr double kLoss = 1e-5;
  static constexpr double kGradNorm = 1e-5;
};

/// Trains on the reference's tokens from its weights. `folder` holds config.json, the weights,
/// tokens.safetensors, expected.json, activations.safetensors and gradients.safetensors. Throws
/// base::UsageError for a folder that cannot be read, a family that is not supported, and, before
/// any tensor is read, a layout that the model or the batch does not allow. A dense model has
/// nothing that expert parallelism could split: it runs without.
VerifyResult verify(const std::string& folder, spec::Knobs knobs);

/// {"ok", "logits_max_abs", "loss_max_abs", "grad_norm_max_rel", "gradient_worst_rel_l2",
/// "gradient_worst_name", "router_mismatches"}.
nlohmann::json to_json(const VerifyResult& result);

}  // namespace moetune::engine
