// Files of fitted rates: what plans stand on until somebody calibrates on a cluster of their own.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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
  /// What was fitted, by hardware, precision, routing and half-year (cases_of); null: unknown.
  nlohmann::json cases;
};

nlohmann::json to_json(const Calibration& calibration);
/// Loads by path, or by name from the library's folder `calibration`. Throws base::UsageError.
Calibration load_calibration(const std::string& path_or_name);
/// The shipped fit to published runs; where it is not installed, the rates of the sources.
const Calibration& default_calibration();

}  // namespace moetune::sweeps
