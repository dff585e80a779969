// Parsing of JSON documents, with the lines that messages name.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/spec/source.h"

namespace moetune::spec {

struct Document {
  nlohmann::json json;
  Source source;
};

/// Parses a document; comments (`//` and `/* */`) are left out. A syntax error becomes a
/// base::UsageError with line and column (in characters); also refused: a key twice in one object,
/// NUL characters, deep nesting. All of these are told at once.
Document read_document(std::string_view text, const std::string& name);

/// The same for a text that no person has written: only its value.
nlohmann::json parse_json(std::string_view text, const std::string& source);

/// Short text of a value for messages: at most a line, never a whole document.
std::string describe(const nlohmann::json& value);
/// How much of a key or of a value such a message shows.
inline constexpr size_t kMostShownBytes = 80;

}  // namespace moetune::spec
