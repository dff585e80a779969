// Takes control characters and broken UTF-8 out of foreign text, and cuts it at a limit.
#include "sweeps/bisect/text.h"

#include <algorithm>

#include "kernels/base/utf8.h"
#include "sweeps/table.h"

namespace moetune::sweeps {
namespace {

constexpr std::string_view kBlanks = " \t\n\v\f\r";
constexpr std::string_view kEllipsis = "...";

unsigned char byte_at(std::string_view text, size_t at) {
  return static_cast<unsigned char>(text[at]);
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = base::utf8_length(text);
    if (length == 0) {
      result += "\xef\xbf\xbd";
      text.remove_prefix(1);
    } else {
      result += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return result;
}

std::string plain_text(std::string_view text, size_t max_bytes) {
  const std::string line = one_line(valid_utf8(text));
  const std::string_view kept = trimmed(line);
  if (kept.size() <= max_bytes) return std::string(kept);
  size_t length = max_bytes - std::min(max_bytes, kEllipsis.size());
  // Not in the middle of a character.
  while (length > 0 && (byte_at(kept, length) & 0xc0) == 0x80) --length;
  return std::string(trimmed(kept.substr(0, length))) + std::string(kEllipsis);
}

std::string_view trimmed(std::string_view text) {
  const size_t start = text.find_first_not_of(kBlanks);
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(kBlanks) - start + 1);
}

std::string_view last_line(std::string_view text) {
  text = trimmed(text);
  const size_t end_of_previous = text.find_last_of("\n\r");
  return trimmed(end_of_previous == std::string_view::npos ? text
                                                           : text.substr(end_of_previous + 1));
}

}  // namespace moetune::sweeps
