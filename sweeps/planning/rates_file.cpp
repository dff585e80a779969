// Reading and writing of fitted rates.
#include "sweeps/planning/rates_file.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/spec/document.h"
#include "engine/spec/json_reader.h"
#include "engine/spec/library.h"
#include "kernels/base/error.h"
#include "sweeps/load.h"

namespace moetune::sweeps {

using nlohmann::json;
using tuner::planner::FittedRate;
using tuner::planner::rate_table;
using tuner::planner::RateRow;

Calibration Calibration::for_case(const spec::HardwareSpec& hardware, std::string_view routing,
                                  double months) const {
  Calibration found = *this;
  found.rates.case_factor = tuner::planner::no_case_factors();
  if (!cases) return found;
  const std::string half_year = half_year_of(months);
  const auto take = [&](const auto& is_meant) {
    // Several kinds count by their runs.
    struct Sum {
      double logs = 0;
      double runs = 0;
    };
    std::array<Sum, std::tuple_size_v<tuner::planner::CaseFactors>> sums{};
    for (const CalibrationCase& one : *cases) {
      const auto precision = spec::find_by_name<spec::PrecisionRecipe>(one.key.precision);
      if (!precision || (is_probed && is_of_probe(*precision)) || one.key.date != half_year ||
          !is_meant(one.key.routing) || !is_of_device(one, hardware)) {
        continue;
      }
      const auto runs = static_cast<double>(one.num_runs);
      Sum& sum = sums[static_cast<size_t>(*precision)];
      sum.logs += runs * std::log(one.time_factor);
      sum.runs += runs;
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      if (sums[i].runs > 0) found.rates.case_factor[i] = std::exp(sums[i].logs / sums[i].runs);
    }
  };
  // One run of one's own, however it is routed, says more than none.
  if (routing != kDense) take([](const std::string& other) { return other != kDense; });
  take([&](const std::string& other) { return other == routing; });
  return found;
}

bool is_of_probe(spec::PrecisionRecipe precision) {
  return precision == spec::PrecisionRecipe::bf16 || precision == spec::PrecisionRecipe::fp16;
}

std::vector<FittedRate> take_curves(const spec::HardwareSpec& hardware, Calibration& calibration) {
  std::vector<FittedRate> probed = tuner::planner::take_probed(hardware, calibration.rates);
  for (const FittedRate& rate : probed) {
    std::erase_if(calibration.fitted, [&](const auto& row) { return row.name == rate.name; });
    calibration.fitted.push_back(rate);
  }
  return probed;
}

Calibration with_probed(Calibration calibration, const spec::HardwareSpec& hardware) {
  if (!is_probed_here(hardware) || hardware.peak_flops_per_s < kSlowestGpu) return calibration;
  if (take_curves(hardware, calibration).empty()) return calibration;
  calibration.is_probed = true;
  calibration.basis = fmt::format("the hardware file's probe, over {}", calibration.basis);
  return calibration;
}

json to_json(const Calibration& calibration) {
  json rates = json::array();
  for (const RateRow& row : rate_table()) {
    json entry = {{"name", row.name}, {"value", calibration.rates.*row.member}, {"help", row.help}};
    for (const FittedRate& fitted : calibration.fitted) {
      if (fitted.name != row.name) continue;
      entry["low"] = fitted.low;
      entry["high"] = fitted.high;
    }
    rates.push_back(std::move(entry));
  }
  json document = {{"date", calibration.date},
                   {"basis", calibration.basis},
                   {"median_error_ratio", calibration.median_error},
                   {"p90_error_ratio", calibration.p90_error},
                   {"rates", std::move(rates)}};
  if (calibration.cases) document["cases"] = to_json(*calibration.cases);
  if (!calibration.measured.empty()) document["measured"] = to_json(calibration.measured);
  return document;
}

namespace {

Calibration calibration_of(const spec::Document& document) {
  spec::JsonReader reader(document.json, document.source);
  Calibration calibration;
  calibration.date = reader.text("date");
  calibration.basis = reader.text("basis");
  calibration.median_error = reader.number_or("median_error_ratio", 0, 0, 100);
  calibration.p90_error = reader.number_or("p90_error_ratio", 0, 0, 100);
  if (reader.has("cases")) {
    calibration.cases = cases_from_json(reader.array("cases"), document.source.within("cases"));
  }
  if (reader.has("measured")) {
    calibration.measured =
        figures_from_json(reader.array("measured"), document.source.within("measured"));
  }
  const json& entries = reader.value("rates");
  if (!entries.is_array()) reader.fail("rates", "a list");
  for (const json& entry : entries) {
    spec::JsonReader rate(entry, document.source.within("rates"));
    const std::string name = rate.text("name");
    const RateRow* found = nullptr;
    for (const RateRow& row : rate_table()) {
      if (row.name == name) found = &row;
    }
    if (found == nullptr) rate.refuse("name", fmt::format("'{}' is no rate", name.substr(0, 60)));
    constexpr double kSlack = 1e-6;
    calibration.rates.*found->member =
        rate.number("value", found->low * (1 - kSlack), found->high * (1 + kSlack));
    rate.ignore("help");
    if (rate.has("low") && rate.has("high")) {
      calibration.fitted.push_back({name, calibration.rates.*found->member,
                                    rate.number("low", 0, 1e12), rate.number("high", 0, 1e12)});
    }
    rate.refuse_unknown_keys();
  }
  reader.refuse_unknown_keys();
  return calibration;
}

}  // namespace

Calibration load_calibration(const std::string& path_or_name) {
  std::string path = path_or_name;
  std::error_code ignored;  // also of a name that is too long: no file has it
  if (path.find('/') == std::string::npos && !std::filesystem::exists(path, ignored)) {
    path = spec::share_folder() / "calibration" / (path_or_name + ".json");
  }
  if (!std::filesystem::exists(path, ignored)) {
    throw base::UsageError(
        fmt::format("there is no calibration '{}'", path_or_name.substr(0, 200)));
  }
  return calibration_of(spec::read_document(read_spec_file(path), path));
}

const Calibration& default_calibration() {
  static const Calibration kDefault = [] {
    const auto path = spec::share_folder() / "calibration" / "published.json";
    if (std::filesystem::exists(path)) return load_calibration(path);
    Calibration calibration;
    calibration.date = "2026-06";
    calibration.basis = "rates of the sources";
    return calibration;
  }();
  return kDefault;
}

}  // namespace moetune::sweeps
