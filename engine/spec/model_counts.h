// Counting before a model is known to be sane: what decides whether its sizes are too large.
#pragma once

#include "engine/spec/model_spec.h"

namespace moetune::spec {

/// All parameters, with those of multi-token prediction. Exact below 2^53, and never an overflow.
double approximate_parameters(const ModelSpec& model);

}  // namespace moetune::spec
