// Interned strings: each distinct text is stored once, so copies and comparisons are cheap.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

namespace moetune::base {

/// An immutable interned string; thread-safe. Texts are never freed, so callers that read untrusted
/// input must bound its size.
class InternedString {
 public:
  InternedString() = default;
  // Implicit: a record takes whatever text names it.
  InternedString(std::string_view text) : text_(intern(text)) {}
  InternedString(const std::string& text) : text_(intern(text)) {}
  InternedString(const char* text) : text_(intern(text)) {}

  [[nodiscard]] const std::string& text() const { return text_ == nullptr ? empty_text() : *text_; }
  [[nodiscard]] bool empty() const { return text_ == nullptr; }
  operator const std::string&() const { return text(); }
  operator std::string_view() const { return text(); }

  friend bool operator==(InternedString a, InternedString b) { return a.text_ == b.text_; }
  friend bool operator==(InternedString a, std::string_view b) { return a.text() == b; }
  friend bool operator==(InternedString a, const std::string& b) { return a.text() == b; }
  friend bool operator==(InternedString a, const char* b) { return a.text() == b; }
  friend std::ostream& operator<<(std::ostream& out, InternedString name);

 private:
  static const std::string* intern(std::string_view text);
  static const std::string& empty_text();

  const std::string* text_ = nullptr;  ///< null: empty
};

}  // namespace moetune::base
