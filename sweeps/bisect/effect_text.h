// Effects of a hunt, for programs and for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tuner/bisect/vocabulary.h"
#include "tuner/stats/effect.h"

namespace moetune::sweeps {

/// "1 run", "2 runs"
std::string count_text(size_t count, const char* what);
/// "; 12 to 30 runs to go"; empty while nothing can be said, or when it is over.
std::string runs_left_text(const std::optional<tuner::RunsLeft>& left);
/// "+4.10 %"
std::string percent(double ratio);
/// "+4.10 % (+3.60 % to +4.60 %)"
std::string effect_text(const tuner::Effect& effect);

nlohmann::json effect_json(const tuner::Effect& effect);

}  // namespace moetune::sweeps
