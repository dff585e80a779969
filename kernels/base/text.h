// Blanks and lines of text that programs print.
#pragma once

#include <cstddef>
#include <string_view>

namespace moetune::base {

inline constexpr std::string_view kBlanks = " \t\n\v\f\r";

/// The text without the blanks at its start and at its end.
inline std::string_view trimmed(std::string_view text, std::string_view blanks = kBlanks) {
  const size_t start = text.find_first_not_of(blanks);
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(blanks) - start + 1);
}

/// The last line that holds more than blanks, trimmed; empty when there is none. A carriage return
/// ends a line too: progress bars are drawn with it.
inline std::string_view last_line(std::string_view text) {
  text = trimmed(text);
  const size_t end_of_previous = text.find_last_of("\n\r");
  return trimmed(end_of_previous == std::string_view::npos ? text
                                                           : text.substr(end_of_previous + 1));
}

}  // namespace moetune::base
