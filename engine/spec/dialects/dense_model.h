// Whether a run says that its model has no experts.
#pragma once

#include "engine/spec/dialects/run_config.h"

namespace moetune::spec::dialects {

/// By its name, or by its sizes, whole or not: a run that says neither may have experts.
bool says_dense_model(const RunConfig& run);

}  // namespace moetune::spec::dialects
