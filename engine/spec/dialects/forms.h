// What a text looks like, without reading it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace moetune::spec::dialects {

enum class Form : uint8_t { command, yaml, toml };

/// By its first lines: "key:" is YAML, "[table]" TOML, the rest a command.
Form form_of(std::string_view text);

/// Without the characters that end them.
std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace moetune::spec::dialects
