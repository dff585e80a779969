// Cases of a calibration as JSON, and where they hold.
#include "sweeps/planning/calibration_cases.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/spec/json_reader.h"
#include "sweeps/planning/machines.h"

namespace moetune::sweeps {

using nlohmann::json;

std::string half_year_of(double months) {
  const double years = 2026.0 + (months + 5.5) / 12;
  return fmt::format("{:.0f}-H{}", std::floor(years), years - std::floor(years) < 0.5 ? 1 : 2);
}

std::string routing_of_case(const spec::ModelSpec& model, std::string_view stated) {
  if (model.num_experts == 0) return std::string(kDense);
  return stated == "forced_balance" || stated == "natural" ? std::string(stated) : "unknown";
}

std::string routing_of_load(const spec::ModelSpec& model, double load) {
  return routing_of_case(model, load > 1 ? "natural" : "forced_balance");
}

bool is_of_device(const CalibrationCase& one, const spec::HardwareSpec& hardware) {
  return one.key.hardware == hardware.name || is_device_of(one.key.hardware, hardware);
}

json to_json(const std::vector<CalibrationCase>& cases) {
  json list = json::array();
  for (const CalibrationCase& one : cases) {
    list.push_back({{"hardware", one.key.hardware},
                    {"precision", one.key.precision},
                    {"routing", one.key.routing},
                    {"date", one.key.date},
                    {"num_runs", one.num_runs},
                    {"median_error_ratio", one.median_error},
                    {"time_factor", one.time_factor},
                    {"low", one.low},
                    {"high", one.high}});
  }
  return list;
}

std::vector<CalibrationCase> cases_from_json(const json& document, const spec::Source& source) {
  std::vector<CalibrationCase> cases;
  for (const json& entry : document) {
    spec::JsonReader reader(entry, source);
    CalibrationCase one;
    one.key = {reader.text("hardware"), reader.text("precision"), reader.text("routing"),
               reader.text("date")};
    constexpr int64_t kMostRuns = 1'000'000;
    one.num_runs = reader.integer("num_runs", 1, kMostRuns);
    one.median_error = reader.number_or("median_error_ratio", 0, 0, 100);
    // Beyond that a factor would be no correction.
    constexpr double kMost = 10;
    one.time_factor = reader.number_or("time_factor", 1, 1 / kMost, kMost);
    one.low = reader.number_or("low", one.time_factor, 1 / kMost, one.time_factor);
    one.high = reader.number_or("high", one.time_factor, one.time_factor, kMost);
    reader.refuse_unknown_keys();
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace moetune::sweeps
