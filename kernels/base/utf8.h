// Characters of UTF-8 text: which bytes are some, which control a terminal, where to cut.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace moetune::base {

/// Length of the character at the start of `text`, which is not empty; 0 where there is none (RFC
/// 3629: shortest forms, no surrogates, up to U+10FFFF).
inline size_t utf8_length(std::string_view text) {
  const auto byte_at = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char first = byte_at(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte_at(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte_at(1);
  const bool is_wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
  return is_wrong ? 0 : length;
}

/// Where the first byte stands that is no part of a character; the size where all are.
inline size_t first_not_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return text.size();
}

/// Whether the character at the start of `text`, which is not empty, is a control character: of
/// ASCII, or of the C1 set, which terminals obey, too.
inline bool is_control(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x20 || first == 0x7f) return true;
  return first == 0xc2 && text.size() > 1 && static_cast<unsigned char>(text[1]) < 0xa0;
}

/// The text on one line, with a blank for each control character. So a stored text cannot move the
/// cursor of a terminal or colour its screen.
inline std::string one_line(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = std::max<size_t>(1, utf8_length(text));
    result += is_control(text) ? std::string_view(" ") : text.substr(0, length);
    text.remove_prefix(length);
  }
  return result;
}

/// The text with U+FFFD for each byte that is no part of a character. Control characters stay.
inline std::string valid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    result += length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, length);
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return result;
}

/// The first bytes of UTF-8 text, whole characters.
inline std::string_view cut_text(std::string_view text, size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  // Not within a character of several bytes: all behind its first one begin with the bits 1, 0.
  while (most_bytes > 0 && (static_cast<unsigned char>(text[most_bytes]) & 0xc0U) == 0x80U) {
    --most_bytes;
  }
  return text.substr(0, most_bytes);
}

/// The text if it has no more than `most_bytes` bytes; else so much of it, and the ellipsis.
inline std::string shortened(std::string_view text, size_t most_bytes,
                             std::string_view ellipsis = "...") {
  if (text.size() <= most_bytes) return std::string(text);
  return std::string(cut_text(text, most_bytes)).append(ellipsis);
}

}  // namespace moetune::base
