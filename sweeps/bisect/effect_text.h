// Effects of a hunt, for programs and for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tuner/stats/effect.h"

namespace moetune::sweeps {

/// "1 run", "2 runs"
std::string count_text(size_t count, const char* what);
/// "+4.10 %"
std::string percent(double ratio);
/// "+4.10 % (+3.60 % to +4.60 %)"
std::string effect_text(const tuner::Effect& effect);
/// "12.3 ms", "3.2 MiB", or the plain number where the unit is neither ns nor bytes.
std::string value_text(double value, const std::string& unit);
/// ns or bytes by the end of a metric's name; else empty.
std::string unit_of(const std::string& metric);
/// "step_time: +4.1 % between the ends (+3.6 % to +4.6 %), noise ..."; empty while nothing is
/// known.
std::string ends_line(const std::string& metric, const char* between,
                      const tuner::EndsEffect& ends);

inline constexpr const char* kFailuresAreKept =
    "failures are kept, too: with --fresh all is measured again\n";

/// What the machine did meanwhile, as lines; empty when that did not show.
std::string machine_text(bool has_drift, bool has_dropped_earlier);

nlohmann::json effect_json(const tuner::Effect& effect);
/// The effect and what could have been seen, as members of a hunt's object.
void add_ends(const tuner::EndsEffect& ends, nlohmann::json& document);

}  // namespace moetune::sweeps
