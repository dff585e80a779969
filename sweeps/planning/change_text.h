// What a change of a run buys, alone or as a step, in words and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sweeps/planning/change_path.h"

namespace moetune::sweeps {

/// tokens_per_s_per_gpu with both ends, and grade.
void put_speed(const Speed& speed, nlohmann::json& entry);
/// "1974, 2947".
std::string range_text(const Interval& interval);

nlohmann::json change_json(const KnobGain& change);
/// `capacity_bytes`: of a device, that may be used.
nlohmann::json step_json(const PathStep& step, double capacity_bytes);

/// The changes of a step: as the user's framework has them, else by their knobs.
std::string step_change_text(const PathStep& step);
/// What a change does alone.
std::string gain_text(const KnobGain& change);
/// The same behind what is changed, with its flags: a line or two.
void add_change(const KnobGain& change, std::string& text);
/// A table of steps. Its lines are not cut: flags are there to be copied.
std::string path_text(const std::vector<PathStep>& path);

}  // namespace moetune::sweeps
