// Which search a sweep file asks for.
#pragma once

#include <memory>

#include "engine/spec/sweep_spec.h"
#include "tuner/strategy.h"

namespace moetune::sweeps {

std::unique_ptr<tuner::Strategy> make_strategy(const spec::SweepSpec& sweep);

}  // namespace moetune::sweeps
