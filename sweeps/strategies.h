// The only place that knows which search and which models the tuner has.
#pragma once

#include <memory>

#include "engine/spec/sweep_spec.h"
#include "tuner/strategy.h"

namespace moetune::sweeps {

std::unique_ptr<tuner::Strategy> make_strategy(const spec::SweepSpec& sweep);

/// What the models say about a trial that nothing was measured for: balanced routing, the
/// hardware's nominal speed. The knobs must satisfy the constraints.
tuner::Prediction predict(const spec::TrialSpec& spec);

/// Only its memory.
tuner::Prediction predict_memory(const spec::TrialSpec& spec);

}  // namespace moetune::sweeps
