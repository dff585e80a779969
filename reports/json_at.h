// Looking into JSON that anybody may have written (profiler/store/untrusted_json.h reads it).
#pragma once

#include <nlohmann/json.hpp>

namespace moetune::reports {

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
