// A figure between its ends: a predicted one, or a stated one with what its unit leaves open.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace moetune::sweeps {

struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
};

Interval scaled(const Interval& interval, double factor);
/// `numerator` over it: the ends change places.
Interval inverse(double numerator, const Interval& interval);
Interval at_most(const Interval& interval, double most);

/// As `key`, `key`_low and `key`_high.
void put(nlohmann::json& document, const std::string& key, const Interval& interval);
/// The same in whole numbers.
void put_whole(nlohmann::json& document, const std::string& key, const Interval& interval);

}  // namespace moetune::sweeps
