// Kinds of measured runs: what is left of each behind the rates, which know nothing of date and
// routing.
#pragma once

#include <compare>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/hardware_spec.h"
#include "engine/spec/model_spec.h"
#include "engine/spec/source.h"

namespace moetune::sweeps {

/// Routing of models without experts.
inline constexpr std::string_view kDense = "dense";

/// What runs of one kind have in common.
struct CaseKey {
  std::string hardware;   ///< name of a hardware file, or of the hardware in it
  std::string precision;  ///< as the knob of plans
  std::string routing;    ///< routing_of_case
  std::string date;       ///< half-year of the software, as "2026-H1"

  auto operator<=>(const CaseKey&) const = default;
};

struct CalibrationCase {
  CaseKey key;
  int64_t num_runs = 1;
  double median_error = 0;  ///< |ln(predicted / measured)|, with the factor
  /// Step time of such runs over what the rates say, with an 80 % interval. The fewer models were
  /// measured, the nearer to 1.
  double time_factor = 1;
  double low = 1;
  double high = 1;
};

/// Of months after 2026-06.
std::string half_year_of(double months);
/// How rows are balanced over experts: what a run says (forced_balance, natural, unknown), or
/// dense.
std::string routing_of_case(const spec::ModelSpec& model, std::string_view stated);
/// The same of what is planned for: `load` as PlanRun::load; at 1 it is balanced.
std::string routing_of_load(const spec::ModelSpec& model, double load);

/// Whether a case is of this kind of device.
bool is_of_device(const CalibrationCase& one, const spec::HardwareSpec& hardware);

nlohmann::json to_json(const std::vector<CalibrationCase>& cases);
/// Throws base::UsageError where a figure is out of range.
std::vector<CalibrationCase> cases_from_json(const nlohmann::json& document,
                                             const spec::Source& source);

}  // namespace moetune::sweeps
