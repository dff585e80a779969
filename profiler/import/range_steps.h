// Which ranges that a trainer marked are its steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "profiler/imported_trace.h"

namespace moetune::profiler {

/// What a name like "iteration 7" says.
struct StepName {
  size_t word = 0;  ///< which of the words that mean a step
  std::optional<int64_t> number;
};
/// Nothing for a name that says more than that it is a step: "optimizer.step" is a part of one.
std::optional<StepName> step_name_of(std::string_view name);

/// The ranges of one word on one thread, which do not overlap: of all such sets the one that
/// recurs, and of these the one that takes the longest. Numbers are those of the names; if one has
/// none, they are counted from 0.
std::vector<ImportedStep> steps_in_ranges(const Chunks<HostRange>& ranges, const NameTable& names);

}  // namespace moetune::profiler
