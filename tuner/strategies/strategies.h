// The search strategies by name; each is one file here and one row of a table.
#pragma once

#include <memory>
#include <string>

#include "engine/spec/sweep_spec.h"
#include "tuner/strategy.h"

namespace moetune::tuner {

/// Throws base::UsageError naming the known ones.
std::unique_ptr<Strategy> make_strategy(const std::string& name, const spec::SweepSpec& sweep);

}  // namespace moetune::tuner
