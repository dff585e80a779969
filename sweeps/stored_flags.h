// The flags of Megatron-LM of a stored trial: what show, sweep and the report print.
#pragma once

#include <optional>
#include <string>

#include "engine/spec/megatron_flags.h"
#include "profiler/store/store.h"

namespace moetune::sweeps {

/// Nothing where this moetune cannot read the stored spec.
std::optional<spec::MegatronFlags> flags_of(const store::TrialRow& trial);

/// spec::shell_block of the same; empty where there is none.
std::string flags_block(const store::TrialRow& trial);

}  // namespace moetune::sweeps
