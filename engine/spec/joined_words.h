// Texts that people put together from known words in many ways: "NVIDIA A100-SXM4-80GB",
// "fp8 (block scaling)", "flex/DeepEP". A table has the words, not what is made of them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::spec {

struct JoinedWord {
  std::string_view word;  ///< letters and digits only, small
  int meaning;
};

/// "H100-80G" as "h10080g".
std::string letters_and_digits(std::string_view text);

/// The meanings of the words that `text` consists of, in its order. Case, blanks and signs do not
/// count, and of words that begin alike the longest is tried first. No value where anything else is
/// in it, and of more than 80 letters and digits.
std::optional<std::vector<int>> meanings_in(std::string_view text,
                                            std::span<const JoinedWord> table);

}  // namespace moetune::spec
