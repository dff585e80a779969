// Whether a command or configuration is of another run than the logs beside it: scripts are changed
// and started again, and old logs stay.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "sweeps/runs/run_facts.h"

namespace moetune::sweeps {

/// What both say, and say differently: "ep 32 where the log says 2". Empty: nothing.
std::vector<std::string> contradictions(const spec::dialects::RunConfig& config,
                                        const RunFacts& facts);

/// A sentence on a configuration that is of another run; empty: it may be of this one.
std::string of_other_run(const spec::dialects::RunConfig& config, const std::string& source,
                         const RunFacts& facts);

}  // namespace moetune::sweeps
