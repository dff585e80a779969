// The search strategies by name; each is one file here and one row of the table.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/spec/sweep_spec.h"
#include "tuner/strategy.h"

namespace moetune::tuner {

struct StrategyRow {
  std::string_view name;
  std::string_view help;
  std::unique_ptr<Strategy> (*make)(const spec::SweepSpec& sweep);
};
std::span<const StrategyRow> strategy_table();

/// Throws base::UsageError naming the known ones.
std::unique_ptr<Strategy> make_strategy(const std::string& name, const spec::SweepSpec& sweep);

}  // namespace moetune::tuner
