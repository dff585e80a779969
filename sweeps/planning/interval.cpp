#include "sweeps/planning/interval.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace moetune::sweeps {

Interval scaled(const Interval& interval, double factor) {
  return {interval.value * factor, interval.low * factor, interval.high * factor};
}

Interval inverse(double numerator, const Interval& interval) {
  return {numerator / interval.value, numerator / interval.high, numerator / interval.low};
}

Interval at_most(const Interval& interval, double most) {
  return {std::min(interval.value, most), std::min(interval.low, most),
          std::min(interval.high, most)};
}

void put(nlohmann::json& document, const std::string& key, const Interval& interval) {
  document[key] = interval.value;
  document[key + "_low"] = interval.low;
  document[key + "_high"] = interval.high;
}

void put_whole(nlohmann::json& document, const std::string& key, const Interval& interval) {
  document[key] = std::llround(interval.value);
  document[key + "_low"] = std::llround(interval.low);
  document[key + "_high"] = std::llround(interval.high);
}

}  // namespace moetune::sweeps
