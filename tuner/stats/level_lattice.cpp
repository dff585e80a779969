#include "tuner/stats/level_lattice.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace moetune::tuner {

std::vector<double> level_lattice(const std::vector<LevelRange>& ranges, double step) {
  std::vector<int64_t> indices;
  for (const LevelRange& range : ranges) {
    const auto first = static_cast<int64_t>(std::floor((range.middle - range.reach) / step));
    const auto last = static_cast<int64_t>(std::ceil((range.middle + range.reach) / step));
    for (int64_t i = first; i <= last; ++i) indices.push_back(i);
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  std::vector<double> lattice;
  lattice.reserve(indices.size());
  for (const int64_t i : indices) lattice.push_back(static_cast<double>(i) * step);
  return lattice;
}

}  // namespace moetune::tuner
