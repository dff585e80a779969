// Checks out submodules at the commits that a checkout names. Writes to no config of the user.
#pragma once

#include <chrono>
#include <string>

#include "sweeps/bisect/git_program.h"

namespace moetune::sweeps {

/// Checks out the submodules of the worktree `folder`, and theirs. Those that `known_modules` (a
/// "modules" folder of the user's repository) holds at the wanted commit are copied from there, so
/// that no network is needed; the others are fetched. Throws base::Error naming the submodule and
/// git's reason.
void update_submodules(const GitProgram& git, const std::string& folder,
                       const std::string& known_modules, std::chrono::milliseconds limit);

}  // namespace moetune::sweeps
