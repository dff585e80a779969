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
  /// Rates of 16 bits are those that a probe of the machine has measured: no case says how far
  /// such runs are from them.
  bool is_probed = false;

  /// This with the factors of runs on such devices, for each precision, among its rates. `routing`
  /// as of routing_of_case; where no such run was measured, those routed in another way count.
  /// `months` of the software, after 2026-06.
  [[nodiscard]] Calibration for_case(const spec::HardwareSpec& hardware, std::string_view routing,
                                     double months = 0) const;
};

/// Whether a probe's curves say something of a recipe: it computes in 16 bits.
bool is_of_probe(spec::PrecisionRecipe precision);
/// With the curves of a hardware file that moetune probe has written on that machine in the place
/// of the rates of 16 bits; any other file changes nothing.
Calibration with_probed(Calibration calibration, const spec::HardwareSpec& hardware);
/// Puts what the file's curves say in the place of rates. Empty: nothing was taken.
std::vector<tuner::planner::FittedRate> take_curves(const spec::HardwareSpec& hardware,
                                                    Calibration& calibration);
/// Slowest device whose curves plans can use, FLOP/s: those of a CPU say nothing of GPUs.
inline constexpr double kSlowestGpu = 1e13;

nlohmann::json to_json(const Calibration& calibration);
/// Loads by path, or by name from the library's folder `calibration`. Throws base::UsageError.
Calibration load_calibration(const std::string& path_or_name);
/// The shipped fit to published runs; where it is not installed, the rates of the sources.
const Calibration& default_calibration();

}  // namespace moetune::sweeps
