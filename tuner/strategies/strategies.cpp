// The strategy table.
#include "tuner/strategies/strategies.h"

#include <fmt/format.h>

#include <array>

#include "kernels/base/error.h"
#include "tuner/strategies/three_walls.h"

namespace moetune::tuner {
namespace {

constexpr std::array<StrategyRow, 1> kStrategies = {{
    {"three_walls", "contract, fit, scale, profile, retune, validate",
     [](const spec::SweepSpec& sweep) -> std::unique_ptr<Strategy> {
       return std::make_unique<ThreeWalls>(sweep);
     }},
}};

}  // namespace

std::span<const StrategyRow> strategy_table() { return kStrategies; }

std::unique_ptr<Strategy> make_strategy(const std::string& name, const spec::SweepSpec& sweep) {
  std::string known;
  for (const StrategyRow& row : kStrategies) {
    if (row.name == name) return row.make(sweep);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  throw base::UsageError(fmt::format("strategy '{}' is unknown; known are: {}", name, known));
}

}  // namespace moetune::tuner
