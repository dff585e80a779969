// Keys and passwords that stand in a command: what is printed of a run is often passed on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/spec/dialects/run_config.h"

namespace moetune::sweeps {

/// What is told in the place of a secret.
inline constexpr std::string_view kHidden = "***";

/// Whether a setting or variable is one by its name ("--wandb-api-key", "HF_TOKEN") and its value.
/// What a dialect's table knows is none: "--tokenizer-type", "--moe-token-dispatcher-type".
bool is_secret(std::string_view key, std::string_view value,
               std::optional<spec::dialects::Dialect> dialect = std::nullopt);

/// Of all that a run's source says.
void hide_secrets(spec::dialects::RunConfig& config);
/// Of a command in one text, also those of lists and of commands in quotes:
/// "--export=ALL,HF_TOKEN=...", "bash -c 'HF_TOKEN=... torchrun'", of members of JSON objects and
/// of addresses: "https://user:password@host". Its time is linear.
std::string without_secrets(std::string_view command);

}  // namespace moetune::sweeps
