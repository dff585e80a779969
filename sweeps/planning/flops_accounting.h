// How sources of published runs count FLOPs, where that is not Megatron's way.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/spec/model_spec.h"

namespace moetune::sweeps {

/// FLOPs of a token in training, and whether the way to count them is known: where it is not, they
/// are Megatron's.
struct CountedFlops {
  double flops_per_token = 0;
  bool is_known = true;
};

/// By what a row says in `flops_accounting`, of which several are joined by semicolons; empty:
/// Megatron's way (ModelSpec::training_flops_per_token).
/// - "gpt-oss before container 26.06 ...": two products an expert instead of three, and no window.
/// - "lora ...": two thirds, as frozen weights have no gradient (forward and that of the inputs).
/// - "... core not halved": attention sees all keys, also later ones.
CountedFlops counted_flops(const spec::ModelSpec& model, int64_t seq_length,
                           std::string_view accounting);

}  // namespace moetune::sweeps
