// Single values between texts and members: numbers with limits, switches, names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/spec/plan_knobs.h"

namespace moetune::spec::dialects {

/// A whole number without rest, also as 4096.0 or 2_000; none for anything else.
std::optional<int64_t> parse_integer(std::string_view text);
/// A finite number; none for anything else.
std::optional<double> parse_number(std::string_view text);
/// true, false, and Python's spelling of them.
std::optional<bool> parse_switch(std::string_view text);
/// The same with all other words that YAML has for them, and 1 and 0.
std::optional<bool> parse_yaml_switch(std::string_view text);

/// The shortest text that is read as the same number.
std::string number_text(double value);

/// In moetune's words.
std::string text_of(const PlanKnobs& knobs, const PlanKnobMember& member);
/// Sets the member; false where the text is none of its values.
bool set_text(PlanKnobs& knobs, const PlanKnobMember& member, std::string_view text);
/// What set_text takes, for messages: "an integer from 1 to 1000000".
std::string values_of(const PlanKnobMember& member);

/// Without a pair of quotes around all of it: quoted twice, a word comes with one.
std::string unquoted(const std::string& text);

}  // namespace moetune::spec::dialects
