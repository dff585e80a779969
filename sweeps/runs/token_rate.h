// Tokens a second of a device where no log says them: what a step trains on by the time it takes.
#pragma once

#include <optional>

#include "engine/spec/dialects/run_config.h"
#include "sweeps/runs/run_facts.h"

namespace moetune::sweeps {

/// Whether the batch grows while the run goes on, as its command or what it echoes says.
bool has_growing_batch(const spec::dialects::RunConfig& config, const RunFacts& facts);

/// Sets it where batch, sequence, ranks and step time are known; each step counts by its own batch.
/// Nothing where batches differ and lines do not tell which step had which. `traced_s`: of a step
/// by the traces, where no log says it.
void derive_tokens(std::optional<double> traced_s, RunFacts& facts);

}  // namespace moetune::sweeps
