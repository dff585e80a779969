// The answer of moetune plan as an HTML page, and its played step as a trace.
#pragma once

#include <string>

#include "reports/plan_page.h"
#include "sweeps/planning/plan_answer.h"

namespace moetune::sweeps {

/// `model`: what the user calls it. Moves the played traces out of `result`, which are large.
/// `date`: of now, to be shown.
reports::PlanPage plan_page(PlanResult& result, const std::string& model, const std::string& date);

/// Writes the page to `path`, which reports::check_target has accepted; returns its size in bytes.
int64_t write_plan_page(const reports::PlanPage& page, const std::string& path);

}  // namespace moetune::sweeps
