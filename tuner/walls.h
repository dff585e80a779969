// The walls as the tuner reads them from a measured trial: which one binds, how much of the step
// stands behind each, and how much of it a communication group blocks.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/step_parts.h"
#include "tuner/strategy.h"

namespace moetune::tuner {

using base::kNumWalls;
using base::Wall;

struct WallReading {
  Wall binding = Wall::compute;
  /// Share of the step that would vanish with the wall, 0..1: its ceiling by replay, or where there
  /// is none the parts that base::step_parts books to it. Compute has none: what remains is work.
  std::array<double, kNumWalls> recoverable{};

  [[nodiscard]] double share(Wall wall) const { return recoverable[static_cast<size_t>(wall)]; }
  /// Most that removing the wall can gain: 1 / (1 - share) - 1. A ceiling, no forecast.
  [[nodiscard]] double ceiling(Wall wall) const;
  /// The binding wall, then the others by recoverable share; compute last unless it binds. Unknown
  /// is none of them: no remedy is one for it.
  [[nodiscard]] std::vector<Wall> order() const;
};

/// The trial's own verdict where it was traced, else the largest share.
WallReading read_walls(const TrialOutcome& outcome);
/// Share of the step that one communication group blocks; "pp" includes the bubble.
double group_share(const TrialOutcome& outcome, std::string_view group);
/// The group whose communication blocks most of the step, bubbles aside; empty: none does.
std::string blocking_group(const TrialOutcome& outcome);

}  // namespace moetune::tuner
