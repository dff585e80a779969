// What would make a plan possible where nothing fits.
#pragma once

#include <string>

#include "sweeps/planning/plan_answer.h"

namespace moetune::sweeps {

/// Fills PlanResult::ways_out where nothing fits: more of the devices of `machine_name`, a hardware
/// file or its name, first, then single changes, those that leave least missing in front.
void find_ways_out(const std::string& machine_name, const Calibration& calibration,
                   PlanResult& result);

}  // namespace moetune::sweeps
