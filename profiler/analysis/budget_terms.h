// The terms of a step budget by the names under which they are stored: one row each, read by who
// writes metrics and by who takes the step apart.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "profiler/analysis/budget.h"

namespace moetune::profiler {

struct BudgetTerm {
  std::string_view name;
  int64_t (*value)(const StepBudget&);
};
std::span<const BudgetTerm> budget_terms();
/// Throws base::Error for a name that no term has.
int64_t budget_term(const StepBudget& budget, std::string_view name);

/// False of what moves data on the device only: a dispatcher kernel, a copy.
bool is_network(std::string_view group);

}  // namespace moetune::profiler
