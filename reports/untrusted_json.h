// Looking into JSON that anybody may have written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace moetune::reports {

struct JsonLimits {
  size_t bytes = 0;
  int depth = 0;       ///< objects and arrays around a value
  int64_t values = 0;  ///< keys, values, objects and arrays
};

/// Discarded when it is no JSON, or not one that can be walked without harm.
nlohmann::json parse_within(const std::string& text, const JsonLimits& limits);

/// Null when there is no such key.
inline const nlohmann::json& at(const nlohmann::json& object, const char* key) {
  static const nlohmann::json kNone;
  if (!object.is_object()) {
    return kNone;
  }
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

}  // namespace moetune::reports
