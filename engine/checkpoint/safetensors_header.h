// The JSON header of a safetensors file, parsed token by token, so that a hostile header is refused
// at its first wrong token and never costs more memory than its own size.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/safetensors.h"

namespace moetune::engine {

struct SafetensorsHeader {
  std::vector<TensorInfo>
      tensors;  ///< name, dtype, shape and offsets as written; nothing about their sense is checked
  std::map<std::string, std::string> metadata;
};

/// Throws base::UsageError naming `source`, for anything but an object of tensors and an optional
/// `__metadata__` object of strings: other types, unknown, missing or duplicate keys, deeper
/// nesting, invalid UTF-8.
SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& source);

}  // namespace moetune::engine
