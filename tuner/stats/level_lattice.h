// The levels that a posterior is summed over: a lattice near what was measured.
#pragma once

#include <vector>

namespace moetune::tuner {

struct LevelRange {
  double middle = 0.0;
  double reach = 0.0;
};

/// Multiples of `step` that lie in one of the ranges or just outside, ascending, each once.
std::vector<double> level_lattice(const std::vector<LevelRange>& ranges, double step);

}  // namespace moetune::tuner
