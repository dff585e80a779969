#include "tuner/stats/run_speed.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/base/error.h"
#include "profiler/analysis/stats.h"

namespace moetune::tuner {
namespace {

constexpr double kTail = 0.25;  ///< of the time, at either end of the ratios

}  // namespace

RunSpeed::RunSpeed(const std::vector<std::vector<double>>& runs) {
  MOETUNE_CHECK(!runs.empty() && !runs.front().empty(), "no runs or no parts");
  levels_.reserve(runs.front().size());
  for (size_t part = 0; part < runs.front().size(); ++part) {
    std::vector<double> durations;
    durations.reserve(runs.size());
    for (const std::vector<double>& run : runs) {
      MOETUNE_CHECK(run.size() == runs.front().size(), "{} parts instead of {}", run.size(),
                    runs.front().size());
      MOETUNE_CHECK(run[part] > 0, "a duration of {}", run[part]);
      durations.push_back(run[part]);
    }
    levels_.push_back(profiler::median(std::move(durations)));
  }
}

double RunSpeed::log_slowness(const std::vector<double>& parts) const {
  MOETUNE_CHECK(parts.size() == levels_.size(), "{} parts instead of {}", parts.size(),
                levels_.size());
  std::vector<std::pair<double, double>> ratios;  // and their weights
  ratios.reserve(parts.size());
  for (size_t part = 0; part < parts.size(); ++part) {
    MOETUNE_CHECK(parts[part] > 0, "a duration of {}", parts[part]);
    ratios.emplace_back(std::log(parts[part]) - std::log(levels_[part]), levels_[part]);
  }
  std::sort(ratios.begin(), ratios.end());
  const double whole = std::accumulate(levels_.begin(), levels_.end(), 0.0);
  double before = 0.0;
  double sum = 0.0;
  for (const auto& [ratio, weight] : ratios) {
    const double after = before + weight / whole;
    sum += ratio * std::max(0.0, std::min(after, 1 - kTail) - std::max(before, kTail));
    before = after;
  }
  return sum / (1 - 2 * kTail);
}

double RunSpeed::largest_share() const {
  return *std::max_element(levels_.begin(), levels_.end()) /
         std::accumulate(levels_.begin(), levels_.end(), 0.0);
}

}  // namespace moetune::tuner
