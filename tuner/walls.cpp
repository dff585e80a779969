// Adds up a step's shares by wall and by group, and picks the wall that binds.
#include "tuner/walls.h"

#include <algorithm>
#include <optional>

namespace moetune::tuner {
double WallReading::ceiling(Wall wall) const {
  const double left = 1.0 - std::clamp(share(wall), 0.0, 0.99);
  return 1.0 / left - 1.0;
}

std::vector<Wall> WallReading::order() const {
  std::vector<Wall> walls(base::kRecoverableWalls.begin(), base::kRecoverableWalls.end());
  std::stable_sort(walls.begin(), walls.end(), [&](Wall a, Wall b) { return share(a) > share(b); });
  walls.push_back(Wall::compute);
  const auto found = std::find(walls.begin(), walls.end(), binding);
  if (found != walls.end()) std::rotate(walls.begin(), found, found + 1);
  return walls;
}

WallReading read_walls(const TrialOutcome& outcome) {
  WallReading reading;
  if (outcome.ceilings.empty()) {
    for (const auto& [name, ratio] : outcome.shares) {
      base::add_share(name, std::clamp(ratio, 0.0, 1.0), reading.recoverable);
    }
  }
  for (const auto& [name, ratio] : outcome.ceilings) {
    const std::optional<Wall> wall = base::wall_from_name(name);
    if (wall) reading.recoverable[static_cast<size_t>(*wall)] = std::clamp(ratio, 0.0, 1.0);
  }
  for (const Wall wall : {Wall::compute, Wall::unknown}) {
    reading.recoverable[static_cast<size_t>(wall)] = 0;
  }
  reading.binding = outcome.wall.value_or(base::binding_wall(reading.recoverable));
  return reading;
}

double group_share(const TrialOutcome& outcome, std::string_view group) {
  double share = 0;
  const auto add = [&](const std::string& name) {
    const auto found = outcome.shares.find(name);
    if (found != outcome.shares.end()) share += found->second;
  };
  add(base::name_of(base::StepPart::transfer, group));
  if (group == "pp") add(base::name_of(base::StepPart::pipeline_bubble));
  return share;
}

std::string blocking_group(const TrialOutcome& outcome) {
  std::string group;
  double largest = 0;
  for (const auto& [name, ratio] : outcome.shares) {
    const std::optional<base::NamedPart> part = base::part_from_name(name);
    if (!part || part->row->id != base::StepPart::transfer || ratio <= largest) continue;
    group = part->group;
    largest = ratio;
  }
  return group;
}

}  // namespace moetune::tuner
