// The common part of the commands sweep and tell: one call of a sweep, from its file to the output.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sweeps/commands/options.h"

namespace moetune::sweeps {

/// The next trial as the user has run it elsewhere.
struct ToldRun {
  std::vector<std::string> files;
  std::optional<int> exit_code;  ///< none: it was not said
};

/// Conducts a sweep and returns the exit code. `told`: the result of the next trial; none is run
/// then.
int conduct_sweep(const CommandOptions& options, const std::optional<ToldRun>& told);

}  // namespace moetune::sweeps
