// Small pieces of HTML that several sections share: numbers with units, marks for statuses, phases
// and walls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "profiler/store/store.h"

namespace moetune::reports {

/// "3.2 MiB", "4.56 ms", "12.3k": a dash when not known. Plain text.
std::string bytes_text(std::optional<int64_t> bytes);
std::string ns_text(std::optional<int64_t> ns);
std::string count_text(std::optional<double> count);
/// "+12.3 %", "-4.5 %", from a ratio.
std::string signed_percent(double ratio);
/// "1.84" with `digits` behind the point; a dash when not finite.
std::string number_text(std::optional<double> value, int digits);

/// A coloured label with a shape of its own, so that colour is not the only difference.
std::string status_badge(std::string_view status);
std::string phase_badge(std::string_view phase);
std::string wall_badge(std::string_view wall);
std::string kind_badge(std::string_view kind);

/// "oom (out of memory)": a status with what it means, where it is first met. HTML.
std::string status_in_words(std::string_view status);
/// What a status means; empty for one that is not known.
std::string_view status_words(std::string_view status);

/// Escaped, and may break after commas and underscores: knob names and sets are long words. Empty:
/// a dash.
std::string breakable(std::string_view text);

/// As base::shortened, with the ellipsis of pages. Plain text.
std::string shortened(const std::string& text, size_t most_bytes);

/// A link to the row of a trial: "#12".
std::string trial_link(int64_t ordinal);

/// "<td class=num data-value=...>text</td>": sortable by the value, not by the text.
std::string number_cell(std::optional<double> value, std::string_view text);

/// FLOP/s, tokens a second: a whole number, or three digits where that says nothing.
std::string speed_number(double value);

std::optional<double> as_double(std::optional<int64_t> value);

}  // namespace moetune::reports
