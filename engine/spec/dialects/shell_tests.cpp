#include "engine/spec/dialects/shell_tests.h"

#include <algorithm>
#include <optional>

#include "engine/spec/dialects/values.h"

namespace moetune::spec::dialects {
namespace {

constexpr int kDeepestTest = 32;

Truth either_of(Truth a, Truth b) {
  if (a == Truth::yes || b == Truth::yes) return Truth::yes;
  return a == Truth::no && b == Truth::no ? Truth::no : Truth::unknown;
}
Truth both_of(Truth a, Truth b) { return contrary_of(either_of(contrary_of(a), contrary_of(b))); }

/// A number as a test takes it: nothing counts as 0.
std::optional<int64_t> count_in_test(const std::string& text) {
  return text.empty() ? 0 : parse_integer(text);
}

class TestReader {
 public:
  TestReader(std::span<const TestWord> words, const ShellVariables& variables)
      : words_(words), variables_(variables) {}

  Truth all() {
    if (words_.empty()) return Truth::no;
    const Truth truth = any_of(0);
    return at_ == words_.size() && !is_broken_ ? truth : Truth::unknown;
  }

 private:
  [[nodiscard]] bool is(std::string_view text, size_t ahead = 0) const {
    return at_ + ahead < words_.size() && words_[at_ + ahead].operand.text == text;
  }

  Truth any_of(int depth) {
    Truth truth = all_of(depth);
    while (is("||") || is("-o")) {
      ++at_;
      truth = either_of(truth, all_of(depth));
    }
    return truth;
  }

  Truth all_of(int depth) {
    Truth truth = one(depth);
    while (is("&&") || is("-a")) {
      ++at_;
      truth = both_of(truth, one(depth));
    }
    return truth;
  }

  Truth one(int depth) {
    if (at_ >= words_.size() || depth == kDeepestTest) return broken();
    if (is("!")) {
      ++at_;
      return contrary_of(one(depth + 1));
    }
    if (is("(")) {
      ++at_;
      const Truth truth = any_of(depth + 1);
      if (!is(")")) return broken();
      ++at_;
      return truth;
    }
    if (words_[at_].is_operator) return broken();
    const ShellOperand& left = words_[at_].operand;
    if (at_ + 2 < words_.size() && is_comparison(words_[at_ + 1].operand.text)) {
      const std::string& what = words_[at_ + 1].operand.text;
      const ShellOperand& right = words_[at_ + 2].operand;
      at_ += 3;
      return compared(left, what, right);
    }
    const bool is_unary = left.text.size() == 2 && left.text[0] == '-' && at_ + 1 < words_.size() &&
                          !words_[at_ + 1].is_operator;
    if (is_unary) {
      at_ += 2;
      return unary(left.text[1], words_[at_ - 1].operand);
    }
    ++at_;
    return is_filled(left);
  }

  static Truth is_filled(const ShellOperand& operand) {
    if (operand.is_outside) return Truth::yes;
    return operand.is_known ? truth_of(!operand.text.empty()) : Truth::unknown;
  }

  [[nodiscard]] Truth unary(char what, const ShellOperand& operand) const {
    if (what == 'n') return is_filled(operand);
    if (what == 'z') return contrary_of(is_filled(operand));
    if (what == 'v' && operand.is_known) return truth_of(variables_.contains(operand.text));
    return Truth::unknown;
  }

  static bool is_comparison(std::string_view text) {
    constexpr std::string_view kNames[] = {"=",   "==",  "!=",  "=~",  "<",   ">",
                                           "-eq", "-ne", "-lt", "-le", "-gt", "-ge"};
    return std::ranges::find(kNames, text) != std::end(kNames);
  }

  /// Of regular expressions only plain texts are read, anywhere or at the begin.
  static Truth found_in(std::string_view text, std::string_view expression) {
    const bool is_at_start = expression.starts_with('^');
    if (is_at_start) expression.remove_prefix(1);
    const bool is_plain = std::ranges::all_of(
        expression, [](char c) { return is_name_part(c) || c == '-' || c == '/' || c == ' '; });
    if (!is_plain) return Truth::unknown;
    const size_t at = text.find(expression);
    return truth_of(is_at_start ? at == 0 : at != std::string_view::npos);
  }

  static Truth compared(const ShellOperand& left, std::string_view what,
                        const ShellOperand& right) {
    if (what == "=" || what == "==") return truth_of_match(left, right);
    if (what == "!=") return contrary_of(truth_of_match(left, right));
    if (!left.is_known || !right.is_known) return Truth::unknown;
    if (what == "=~") return found_in(left.text, right.text);
    const auto a = count_in_test(left.text);
    const auto b = count_in_test(right.text);
    if (!a || !b || what[0] != '-') return Truth::unknown;
    if (what == "-eq") return truth_of(*a == *b);
    if (what == "-ne") return truth_of(*a != *b);
    if (what == "-lt") return truth_of(*a < *b);
    if (what == "-le") return truth_of(*a <= *b);
    if (what == "-gt") return truth_of(*a > *b);
    return truth_of(*a >= *b);
  }

  Truth broken() {
    is_broken_ = true;
    return Truth::unknown;
  }

  std::span<const TestWord> words_;
  const ShellVariables& variables_;
  size_t at_ = 0;
  bool is_broken_ = false;
};

}  // namespace

Truth truth_of(bool is_true) { return is_true ? Truth::yes : Truth::no; }
Truth contrary_of(Truth truth) {
  return truth == Truth::unknown ? truth : truth_of(truth == Truth::no);
}

Truth truth_of_match(const ShellOperand& text, const ShellOperand& pattern) {
  constexpr size_t kMost = size_t{1} << 20;  // comparisons of characters
  const bool is_read = pattern.text.find_first_of("[\\") == std::string::npos &&
                       text.text.size() * pattern.text.size() <= kMost;
  if (pattern.text == "*") return Truth::yes;
  if (!text.is_known || !pattern.is_known || !is_read) return Truth::unknown;
  return truth_of(matches_pattern(text.text, pattern.text));
}

Truth truth_of_test(std::span<const TestWord> words, const ShellVariables& variables) {
  return TestReader(words, variables).all();
}

}  // namespace moetune::spec::dialects
