// What scripts compute: "$((NODES * 8))", "(( NODES > 1 ))".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/spec/dialects/shell_words.h"

namespace moetune::spec::dialects {

/// The value of an expression over numbers and variables; none where a variable is not set or no
/// number, and for what is no expression or none that is read.
std::optional<int64_t> arithmetic_value(std::string_view text, const ShellVariables& variables);

/// A variable that an expression sets, and the expression of its value.
struct ArithmeticChange {
  std::string name;
  std::string value;
};
/// "x = 2", "x *= 2", "x++", "--x"; none for what sets nothing.
std::optional<ArithmeticChange> arithmetic_change(std::string_view text);

}  // namespace moetune::spec::dialects
