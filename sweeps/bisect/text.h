// Foreign text (commit subjects, what programs print) made fit for messages and for JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moetune::sweeps {

/// Bytes that are not UTF-8 become U+FFFD; everything else, control characters too, stays.
std::string valid_utf8(std::string_view text);
/// Longest name or line of other people that is shown in a message.
inline constexpr size_t kMaxShownBytes = 120;

/// One line for people: valid UTF-8, control characters out, blanks around it off, and at most
/// `max_bytes`, with an ellipsis where it was cut.
std::string plain_text(std::string_view text, size_t max_bytes = kMaxShownBytes);
/// The last line that holds more than blanks, without the blanks around it; empty when there is
/// none. A carriage return ends a line too: progress bars are drawn with it.
std::string_view last_line(std::string_view text);
std::string_view trimmed(std::string_view text);

}  // namespace moetune::sweeps
