// Completion scripts for shells, written from the tables of commands and options.
#pragma once

#include <span>
#include <string>

#include "sweeps/commands/commands.h"

namespace moetune::sweeps {

/// The script for "bash" or "zsh"; throws base::UsageError for another shell.
std::string completion_script(std::string_view shell, std::span<const CommandRow> commands);

}  // namespace moetune::sweeps
