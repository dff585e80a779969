// Texts that stand in millions of records, held once each: a copy is a pointer, and equality
// compares pointers.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

namespace moetune::base {

/// Reads as a string that cannot be changed. Every distinct text is kept until the program ends, so
/// what reads them from strangers bounds their bytes. May be made on any thread.
class Name {
 public:
  Name() = default;
  // Implicit: a record takes whatever text names it.
  Name(std::string_view text) : text_(held(text)) {}
  Name(const std::string& text) : text_(held(text)) {}
  Name(const char* text) : text_(held(text)) {}

  [[nodiscard]] const std::string& text() const { return text_ == nullptr ? nothing() : *text_; }
  [[nodiscard]] bool empty() const { return text_ == nullptr; }
  operator const std::string&() const { return text(); }
  operator std::string_view() const { return text(); }

  friend bool operator==(Name a, Name b) { return a.text_ == b.text_; }
  friend bool operator==(Name a, std::string_view b) { return a.text() == b; }
  friend bool operator==(Name a, const std::string& b) { return a.text() == b; }
  friend bool operator==(Name a, const char* b) { return a.text() == b; }
  friend std::ostream& operator<<(std::ostream& out, Name name);

 private:
  static const std::string* held(std::string_view text);
  static const std::string& nothing();

  const std::string* text_ = nullptr;  ///< null: empty
};

}  // namespace moetune::base
