// What a text looks like, without reading it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/run_config.h"

namespace moetune::spec::dialects {

enum class Form : uint8_t { command, yaml, toml };

/// By its first lines: "key:" is YAML, "[table]" TOML, the rest a command.
Form form_of(std::string_view text);

/// Whether a script or a command has a flag of the dialect in any place, comments left out.
bool has_unused_flags(std::string_view text, Dialect dialect);

/// Without the characters that end them.
std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace moetune::spec::dialects
