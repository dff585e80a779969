// What may be missing, as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace moetune::reports {

template <typename T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

/// Null for an empty text.
inline nlohmann::json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::json() : nlohmann::json(text);
}

}  // namespace moetune::reports
