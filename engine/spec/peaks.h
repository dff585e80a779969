// What a machine's data sheet says of the types that products compute in.
#pragma once

#include <algorithm>

#include "engine/spec/hardware_spec.h"
#include "engine/spec/plan_knobs.h"

namespace moetune::spec {

/// FLOP/s of the narrowest type that the recipe computes in.
inline double peak_flops_per_s(const HardwareSpec& hardware, PrecisionRecipe recipe) {
  const double wide = hardware.peak_flops_per_s;
  if (!is_product_narrow(recipe)) return wide;
  if (recipe != PrecisionRecipe::nvfp4) return std::max(wide, hardware.fp8_flops_per_s);
  return std::max({wide, hardware.fp8_flops_per_s, hardware.fp4_flops_per_s});
}

}  // namespace moetune::spec
