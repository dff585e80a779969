#include "engine/spec/dialects/shell_arithmetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "engine/spec/dialects/values.h"

namespace moetune::spec::dialects {
namespace {

constexpr int kDeepestExpression = 32;

struct ArithmeticOperator {
  std::string_view text;
  int level;  ///< those of a higher one bind tighter
};
/// Longer ones first.
constexpr std::array kOperators = {
    ArithmeticOperator{"||", 0}, ArithmeticOperator{"&&", 1}, ArithmeticOperator{"==", 2},
    ArithmeticOperator{"!=", 2}, ArithmeticOperator{"<=", 3}, ArithmeticOperator{">=", 3},
    ArithmeticOperator{"<", 3},  ArithmeticOperator{">", 3},  ArithmeticOperator{"+", 4},
    ArithmeticOperator{"-", 4},  ArithmeticOperator{"*", 5},  ArithmeticOperator{"/", 5},
    ArithmeticOperator{"%", 5},
};
constexpr int kTightest = 5;

class Arithmetic {
 public:
  Arithmetic(std::string_view text, const ShellVariables& variables)
      : text_(text), variables_(variables) {}

  std::optional<int64_t> all() {
    const auto value = level(0, 0);
    skip_blanks();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) {
      ++at_;
    }
  }

  [[nodiscard]] const ArithmeticOperator* operator_at(int level) const {
    const std::string_view rest = text_.substr(at_);
    const auto found = std::ranges::find_if(
        kOperators, [&](const ArithmeticOperator& row) { return rest.starts_with(row.text); });
    if (found == kOperators.end() || found->level != level) return nullptr;
    // "x = 1", "x <<= 1": what changes variables is not read.
    return rest.size() > found->text.size() && rest[found->text.size()] == '=' ? nullptr : &*found;
  }

  std::optional<int64_t> level(int which, int depth) {
    if (which > kTightest) return atom(depth);
    auto left = level(which + 1, depth);
    while (true) {
      skip_blanks();
      const ArithmeticOperator* found = operator_at(which);
      if (found == nullptr) return left;
      at_ += found->text.size();
      const auto right = level(which + 1, depth);
      left = left && right ? applied(found->text, *left, *right) : std::nullopt;
    }
  }

  static std::optional<int64_t> applied(std::string_view what, int64_t left, int64_t right) {
    int64_t value = 0;
    if (what == "+") return __builtin_add_overflow(left, right, &value) ? none() : value;
    if (what == "-") return __builtin_sub_overflow(left, right, &value) ? none() : value;
    if (what == "*") return __builtin_mul_overflow(left, right, &value) ? none() : value;
    if (what == "/" || what == "%") {
      if (right <= 0) return std::nullopt;  // nothing that a script counts is divided by less
      return what == "/" ? left / right : left % right;
    }
    if (what == "==") return left == right;
    if (what == "!=") return left != right;
    if (what == "<=") return left <= right;
    if (what == ">=") return left >= right;
    if (what == "<") return left < right;
    if (what == ">") return left > right;
    return what == "&&" ? left != 0 && right != 0 : left != 0 || right != 0;
  }
  static std::optional<int64_t> none() { return std::nullopt; }

  std::optional<int64_t> atom(int depth) {
    skip_blanks();
    if (at_ == text_.size() || depth == kDeepestExpression) return std::nullopt;
    const char c = text_[at_];
    if (c == '(') {
      ++at_;
      const auto value = level(0, depth + 1);
      skip_blanks();
      if (at_ == text_.size() || text_[at_] != ')') return std::nullopt;
      ++at_;
      return value;
    }
    if (c == '-' || c == '!') {
      ++at_;
      const auto value = atom(depth + 1);
      if (!value) return value;
      return c == '-' ? applied("-", 0, *value) : std::optional<int64_t>(*value == 0);
    }
    const size_t first = at_;
    while (at_ < text_.size() && is_name_part(text_[at_])) ++at_;
    const std::string_view word = text_.substr(first, at_ - first);
    if (word.empty()) return std::nullopt;
    if (!is_name_start(word[0])) return number(word);
    const auto found = variables_.find(word);
    return found == variables_.end() ? std::nullopt : number(joined(found->second));
  }

  /// The shell takes a zero in front for octal digits, and others do not write one.
  static std::optional<int64_t> number(std::string_view text) {
    const bool is_plain =
        !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
    if (!is_plain || (text.size() > 1 && text[0] == '0')) return std::nullopt;
    return parse_integer(text);
  }

  std::string_view text_;
  const ShellVariables& variables_;
  size_t at_ = 0;
};

}  // namespace

std::optional<int64_t> arithmetic_value(std::string_view text, const ShellVariables& variables) {
  return Arithmetic(text, variables).all();
}

std::optional<ArithmeticChange> arithmetic_change(std::string_view text) {
  const auto skip_blanks = [&] {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\n"), text.size()));
  };
  const auto take_step = [&] {
    for (const char* step : {"++", "--"}) {
      if (!text.starts_with(step)) continue;
      text.remove_prefix(2);
      return std::string(1, *step);
    }
    return std::string();
  };
  skip_blanks();
  std::string step = take_step();
  const size_t size = std::ranges::find_if_not(text, is_name_part) - text.begin();
  if (size == 0 || !is_name_start(text[0])) return std::nullopt;
  const std::string name(text.substr(0, size));
  text.remove_prefix(size);
  skip_blanks();
  if (step.empty()) step = take_step();
  if (!step.empty()) return ArithmeticChange{name, fmt::format("{} {} 1", name, step)};
  const size_t equals = text.find('=');
  const std::string_view what = text.substr(0, equals);
  constexpr std::string_view kOthers = "<>!";  // "<=" and its kin compare
  const bool is_shift = what == "<<" || what == ">>";
  const bool is_change = equals != std::string_view::npos &&
                         !text.substr(equals + 1).starts_with('=') &&
                         (what.empty() || is_shift ||
                          (what.size() == 1 && kOthers.find(what[0]) == std::string_view::npos));
  if (!is_change) return std::nullopt;
  const std::string_view value = text.substr(equals + 1);
  if (what.empty()) return ArithmeticChange{name, std::string(value)};
  return ArithmeticChange{name, fmt::format("{} {} ({})", name, what, value)};
}

}  // namespace moetune::spec::dialects
