// Makes text of others, such as commit subjects and output of programs, fit for messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moetune::sweeps {

/// Longest name or line of others that a message shows.
inline constexpr size_t kMaxShownBytes = 120;

/// The text as one line of valid UTF-8, trimmed, with blanks for control characters. It has at most
/// `max_bytes`, with an ellipsis if it was cut.
std::string plain_text(std::string_view text, size_t max_bytes = kMaxShownBytes);

}  // namespace moetune::sweeps
