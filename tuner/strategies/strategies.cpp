// The strategy table.
#include "tuner/strategies/strategies.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "kernels/base/error.h"
#include "tuner/strategies/three_walls.h"

namespace moetune::tuner {
namespace {

struct StrategyRow {
  std::string_view name;
  std::unique_ptr<Strategy> (*make)(const spec::SweepSpec& sweep);
};

constexpr std::array<StrategyRow, 1> kStrategies = {{
    {"three_walls",
     [](const spec::SweepSpec& sweep) -> std::unique_ptr<Strategy> {
       return std::make_unique<ThreeWalls>(sweep);
     }},
}};

}  // namespace

std::unique_ptr<Strategy> make_strategy(const std::string& name, const spec::SweepSpec& sweep) {
  std::string known;
  for (const StrategyRow& row : kStrategies) {
    if (row.name == name) return row.make(sweep);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  throw base::UsageError(fmt::format("strategy '{}' is unknown; known are: {}", name, known));
}

}  // namespace moetune::tuner
