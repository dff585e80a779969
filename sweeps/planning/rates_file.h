// Files of fitted rates: what plans stand on until somebody calibrates on a cluster of their own.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sweeps/planning/calibration_cases.h"
#include "sweeps/planning/measured_figures.h"
#include "tuner/planner/fit.h"

namespace moetune::sweeps {

/// Rates and their origin.
struct Calibration {
  tuner::planner::Rates rates;
  std::vector<tuner::planner::FittedRate> fitted;
  std::string date;   ///< date of the software releases that they describe: "2026-06"
  std::string basis;  ///< what was fitted: "291 published runs"
  double median_error = 0;
  double p90_error = 0;
  /// What was fitted, by kind; none: unknown.
  std::optional<std::vector<CalibrationCase>> cases;
  std::vector<MeasuredFigure> measured;  ///< runs on one's own cluster

  /// This with the factors of runs on such devices, for each precision, among its rates. `routing`
  /// as of routing_of_case; where no such run was measured, those routed in another way count.
  /// `months` of the software, after 2026-06.
  [[nodiscard]] Calibration for_case(const spec::HardwareSpec& hardware, std::string_view routing,
                                     double months = 0) const;
};

nlohmann::json to_json(const Calibration& calibration);
/// Loads by path, or by name from the library's folder `calibration`. Throws base::UsageError.
Calibration load_calibration(const std::string& path_or_name);
/// The shipped fit to published runs; where it is not installed, the rates of the sources.
const Calibration& default_calibration();

}  // namespace moetune::sweeps
