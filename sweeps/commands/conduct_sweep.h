// What the commands sweep and tell have in common: one call of a sweep, from its file to what is
// printed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sweeps/commands/options.h"

namespace moetune::sweeps {

/// What somebody has brought who ran the next trial elsewhere.
struct ToldRun {
  std::vector<std::string> files;
  int exit_code = 0;
};

/// `told`: the result of the next trial, in place of running one. Returns the exit code.
int conduct_sweep(const CommandOptions& options, const std::optional<ToldRun>& told);

}  // namespace moetune::sweeps
