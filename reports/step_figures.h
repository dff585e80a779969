// The figures of one step, measured or played: its timeline, and where its time went. Sections of
// a sweep and of a plan share them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/step_parts.h"
#include "reports/timeline_data.h"

namespace moetune::reports {

/// The slices of a step for its timeline; ranks may be added one after the other, so that only one
/// has to be held whole.
class StepSlices {
 public:
  /// What all ranks spent in one operation.
  struct OpTotal {
    std::string name;
    int64_t count = 0;
    int64_t ns = 0;
    int64_t wait_ns = 0;
  };

  explicit StepSlices(int64_t step_ns) : step_ns_(step_ns) {}
  /// Of one rank or several, all slices of each; they are merged to at most `most_slices`.
  void add(std::vector<Slice> slices, size_t most_slices);
  [[nodiscard]] size_t num_ranks() const { return ranks_.size(); }
  /// The figure with its table and its data. `unit`: what Slice::rank counts.
  [[nodiscard]] std::string figure(std::string description, std::string_view unit) const;

 private:
  int64_t step_ns_;
  std::vector<Slice> slices_;
  size_t num_before_ = 0;
  std::map<std::string, OpTotal> totals_;
  std::set<int64_t> ranks_;
};

/// A part of a step as it is stacked: of the step's vocabulary, or what that leaves over.
struct BudgetPart {
  size_t turn = 0;  ///< place in the stack, from below; those of one turn by their names
  std::string name;
  std::string_view color;  ///< empty: one of the colours that groups take in turns
  int hatch = 0;

  auto operator<=>(const BudgetPart&) const = default;
};
BudgetPart budget_part(const base::NamedPart& part);

/// A bar: a step, or one rank's.
struct BudgetBar {
  std::string label;  ///< at the axis
  std::string name;   ///< at the head of the tooltip
  std::string cell;   ///< HTML: in the table
  std::string wall;
  double step_ns = 0;
  std::map<BudgetPart, double> parts;  ///< ns
};

/// The figure with its table and its data. `what`: the title of the column of cells; `length`: of
/// the bars'.
std::string budget_figure(const std::vector<BudgetBar>& bars, std::string_view description,
                          std::string_view what, std::string_view length = "step");

}  // namespace moetune::reports
