// Word by word, with steps back.
#include "engine/spec/joined_words.h"

#include <algorithm>

namespace moetune::spec {

namespace {

class JoinedText {
 public:
  JoinedText(std::string_view text, std::span<const JoinedWord> table)
      : text_(text), table_(table), is_dead_(text.size() + 1) {}

  /// Whether the rest from `at` consists of words, whose meanings are then behind the others.
  bool take_from(size_t at, std::vector<int>& meanings) {
    if (at == text_.size()) return true;
    if (is_dead_[at]) return false;
    for (size_t length = text_.size() - at; length > 0; --length) {
      const std::string_view part = text_.substr(at, length);
      const auto found = std::ranges::find(table_, part, &JoinedWord::word);
      if (found == table_.end()) continue;
      meanings.push_back(found->meaning);
      if (take_from(at + length, meanings)) return true;
      meanings.pop_back();
    }
    is_dead_[at] = true;
    return false;
  }

 private:
  std::string_view text_;
  std::span<const JoinedWord> table_;
  std::vector<bool> is_dead_;  ///< no words from here to the end
};

}  // namespace

std::string letters_and_digits(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    if (c >= 'A' && c <= 'Z') kept += static_cast<char>(c - 'A' + 'a');
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) kept += c;
  }
  return kept;
}

std::optional<std::vector<int>> meanings_in(std::string_view text,
                                            std::span<const JoinedWord> table) {
  constexpr size_t kLongest = 80;
  const std::string joined = letters_and_digits(text);
  std::vector<int> meanings;
  if (joined.size() > kLongest || !JoinedText(joined, table).take_from(0, meanings)) {
    return std::nullopt;
  }
  return meanings;
}

}  // namespace moetune::spec
