// Foreign text (commit subjects, what programs print) made fit for messages and for JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moetune::sweeps {

/// Longest name or line of other people that is shown in a message.
inline constexpr size_t kMaxShownBytes = 120;

/// One line for people: valid UTF-8, control characters out, blanks around it off, and at most
/// `max_bytes`, with an ellipsis where it was cut.
std::string plain_text(std::string_view text, size_t max_bytes = kMaxShownBytes);

}  // namespace moetune::sweeps
