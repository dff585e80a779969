// Effects of a hunt, for programs and for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tuner/bisect/effect.h"

namespace moetune::sweeps {

/// "+4.10 %"
std::string percent(double ratio);
/// "+4.10 % (+3.60 % to +4.60 %)"
std::string effect_text(const tuner::Effect& effect);
/// "noise of one run 0.49 %; as many runs could have shown 0.97 %, with 20 more 0.60 %"
std::string noise_text(const tuner::EndsEffect& ends);

/// What the machine did meanwhile, as lines; empty when that did not show.
std::string machine_text(bool has_drift, bool has_dropped_earlier);

nlohmann::json effect_json(const tuner::Effect& effect);
/// The effect and what could have been seen, as members of a hunt's object.
void add_ends(const tuner::EndsEffect& ends, nlohmann::json& document);

}  // namespace moetune::sweeps
