// A place in a text: what the small readers of this folder have in common.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/base/error.h"
#include "kernels/base/utf8.h"

namespace moetune::spec::dialects {

inline constexpr size_t kMaxTextBytes = size_t{4} << 20;
inline constexpr size_t kMaxLineBytes = size_t{64} << 10;

/// A part of a text that fits into a message, with what is not printable replaced.
inline std::string shown(std::string_view text) {
  constexpr size_t kMostShown = 60;
  std::string result(text.substr(0, kMostShown));
  for (char& c : result) c = c < 0x20 || c > 0x7E ? '?' : c;
  return result + (text.size() > kMostShown ? "..." : "");
}

/// Throws base::UsageError for a text that no person wrote: NUL characters, bytes that are not
/// UTF-8, endless lines, too large.
inline void check_text(std::string_view text, const std::string& source) {
  if (text.size() > kMaxTextBytes) {
    throw base::UsageError(
        fmt::format("{}: has {} bytes, expected at most {}", source, text.size(), kMaxTextBytes));
  }
  if (text.find('\0') != std::string_view::npos) {
    throw base::UsageError(fmt::format("{}: holds a NUL character, expected text", source));
  }
  if (const size_t at = base::first_not_utf8(text); at < text.size()) {
    throw base::UsageError(fmt::format("{}: line {}: byte 0x{:02X} is not UTF-8, expected text",
                                       source, 1 + std::ranges::count(text.substr(0, at), '\n'),
                                       static_cast<unsigned char>(text[at])));
  }
  int64_t line = 1;
  for (size_t first = 0; first < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', first), text.size());
    if (end - first > kMaxLineBytes) {
      throw base::UsageError(fmt::format("{}: line {} has {} bytes, expected at most {}", source,
                                         line, end - first, kMaxLineBytes));
    }
    first = end + 1;
  }
}

class Cursor {
 public:
  Cursor(std::string_view text, std::string source) : text_(text), source_(std::move(source)) {}

  [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }
  /// The next character, or one further; NUL behind the end.
  [[nodiscard]] char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  [[nodiscard]] bool starts_with(std::string_view part) const {
    return text_.substr(std::min(at_, text_.size())).starts_with(part);
  }
  char next() {
    const char c = peek();
    ++at_;
    if (c == '\n') {
      ++line_;
      line_start_ = at_;
    }
    return c;
  }
  void skip(size_t count) {
    while (count-- > 0) next();
  }
  bool take(char c) {
    if (peek() != c || at_end()) return false;
    next();
    return true;
  }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t') next();
  }
  void skip_line() {
    while (!at_end() && peek() != '\n') next();
  }
  [[nodiscard]] size_t at() const { return at_; }
  [[nodiscard]] std::string_view from(size_t first) const {
    return text_.substr(first, std::min(at_, text_.size()) - first);
  }
  [[nodiscard]] int64_t line() const { return line_; }
  /// Characters before this one on its line.
  [[nodiscard]] size_t column() const { return at_ - line_start_; }
  [[nodiscard]] bool at_line_end() const { return at_end() || peek() == '\n' || peek() == '\r'; }
  [[nodiscard]] const std::string& source() const { return source_; }
  [[noreturn]] void fail(const std::string& what) const { fail(line_, what); }
  [[noreturn]] void fail(int64_t line, const std::string& what) const {
    throw base::UsageError(fmt::format("{}: line {}: {}", source_, line, what));
  }

 private:
  std::string_view text_;
  std::string source_;
  size_t at_ = 0;
  size_t line_start_ = 0;
  int64_t line_ = 1;
};

/// Reads the rest of an escape behind \u, four digits, and adds its character. False where it is
/// none of ASCII: those stand in texts as they are.
inline bool read_escaped_code(Cursor& in, std::string& text) {
  unsigned code = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = in.at_line_end() ? ' ' : in.next();
    const bool is_digit = c >= '0' && c <= '9';
    const bool is_letter = (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (!is_digit && !is_letter) return false;
    const int digit = is_digit ? c - '0' : (c | 0x20) - 'a' + 10;
    code = code * 16 + static_cast<unsigned>(digit);
  }
  if (code == 0 || code > 0x7F) return false;
  text += static_cast<char>(code);
  return true;
}

}  // namespace moetune::spec::dialects
