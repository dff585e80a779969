// What tests of scripts say: "[ -z NAME ]", "[[ A == B* && ... ]]", "test 1 -lt 2".
#pragma once

#include <cstdint>
#include <span>

#include "engine/spec/dialects/shell_words.h"

namespace moetune::spec::dialects {

enum class Truth : uint8_t { no, yes, unknown };

Truth truth_of(bool is_true);
Truth contrary_of(Truth truth);

/// A word of a test, or what stands between words: "&&", "(", "<".
struct TestWord {
  ShellOperand operand;
  bool is_operator = false;
};

/// Whether a text matches a pattern; unknown for patterns that are not read.
Truth truth_of_match(const ShellOperand& text, const ShellOperand& pattern);

/// Unknown for what depends on files and commands, and for what is no test.
Truth truth_of_test(std::span<const TestWord> words, const ShellVariables& variables);

}  // namespace moetune::spec::dialects
