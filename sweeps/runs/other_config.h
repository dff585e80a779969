// Whether a command or configuration is of another run than the logs beside it: scripts are changed
// and started again, and old logs stay; and one script starts runs of many sizes.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "sweeps/runs/run_facts.h"

namespace moetune::sweeps {

/// What both say, and say differently: "ep 32 where the log says 2". Empty: nothing.
std::vector<std::string> contradictions(const spec::dialects::RunConfig& config,
                                        const RunFacts& facts);

/// A sentence on a configuration that is of another run; empty: it may be of this one. What it
/// alone says otherwise and may have been said anew at the start (ranks or a batch; in a file of
/// torchtitan or Primus any size) gives way to the log in `config`, with a note.
std::string of_other_run(const std::string& source, const RunFacts& facts,
                         spec::dialects::RunConfig& config, std::vector<std::string>& notes);

/// Sets the ranks and what follows from them; false and as it was where the layout does not fit.
bool take_world_size(int64_t world_size, spec::dialects::RunConfig& config);

}  // namespace moetune::sweeps
