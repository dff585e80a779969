// Shares of walls and groups; see walls.h.
#include "tuner/walls.h"

#include <algorithm>

namespace moetune::tuner {
namespace {

constexpr std::array<const char*, kNumWalls> kNames = {"communication", "host", "memory",
                                                       "compute"};
/// Below this share a wall does not bind by itself.
constexpr double kThresholdRatio = 0.10;

Wall wall_of_share(std::string_view name) {
  if (name == "recompute") return Wall::memory;
  if (name == "launch_starved") return Wall::host;
  if (name == "compute" || name == "dependency_stalled") return Wall::compute;
  return Wall::communication;  // blocking_<group>, transfer, jitter, bubble
}

}  // namespace

const char* name_of(Wall wall) { return kNames[static_cast<size_t>(wall)]; }

std::optional<Wall> wall_from_name(std::string_view name) {
  for (size_t i = 0; i < kNumWalls; ++i) {
    if (name == kNames[i]) return static_cast<Wall>(i);
  }
  return std::nullopt;
}

double WallReading::ceiling(Wall wall) const {
  const double left = 1.0 - std::clamp(share(wall), 0.0, 0.99);
  return 1.0 / left - 1.0;
}

std::vector<Wall> WallReading::order() const {
  std::vector<Wall> walls = {Wall::communication, Wall::host, Wall::memory};
  std::stable_sort(walls.begin(), walls.end(), [&](Wall a, Wall b) { return share(a) > share(b); });
  walls.push_back(Wall::compute);
  const auto found = std::find(walls.begin(), walls.end(), binding);
  std::rotate(walls.begin(), found, found + 1);
  return walls;
}

WallReading read_walls(const TrialOutcome& outcome) {
  WallReading reading;
  for (const auto& [name, ratio] : outcome.shares) {
    const Wall wall = wall_of_share(name);
    if (wall != Wall::compute) {
      reading.recoverable[static_cast<size_t>(wall)] += std::clamp(ratio, 0.0, 1.0);
    }
  }
  double largest = kThresholdRatio;
  for (const Wall wall : {Wall::communication, Wall::host, Wall::memory}) {
    if (reading.share(wall) < largest || reading.share(wall) == 0) continue;
    if (reading.binding != Wall::compute && reading.share(wall) == largest) continue;
    largest = reading.share(wall);
    reading.binding = wall;
  }
  if (const auto wall = wall_from_name(outcome.wall)) reading.binding = *wall;
  reading.dominant_group = outcome.dominant_group;
  return reading;
}

double group_share(const TrialOutcome& outcome, std::string_view group) {
  double share = 0;
  const auto add = [&](const std::string& name) {
    const auto found = outcome.shares.find(name);
    if (found != outcome.shares.end()) share += found->second;
  };
  add("blocking_" + std::string(group));
  if (group == "pp") {
    add("bubble");
    add("pipeline_bubble");
  }
  // A trial that says only which group dominates: all blocking counts as its.
  if (share == 0 && group == outcome.dominant_group) {
    add("transfer");
    add("jitter");
  }
  return share;
}

}  // namespace moetune::tuner
