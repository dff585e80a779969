// Words of a file in sentences about it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moetune::profiler {

/// The first bytes of a text as one line: valid UTF-8, blanks in place of control characters.
std::string shown_text(std::string_view text, size_t max_bytes);

}  // namespace moetune::profiler
