// JSON that anybody may have written: of a database, a log, a file that is only looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace moetune::store {

struct JsonLimits {
  size_t bytes = std::numeric_limits<size_t>::max();
  int depth = 64;  ///< objects and arrays around a value; copies and prints recurse
  int64_t values = std::numeric_limits<int64_t>::max();  ///< keys, values, objects and arrays
  bool has_comments = false;                             ///< they are left out
};

/// Discarded if it is no JSON or beyond the limits. Never throws for what the text holds.
nlohmann::json parse_untrusted(std::string_view text, const JsonLimits& limits = {});

}  // namespace moetune::store
