// Which of the other numbers of the runs moved between two commits, or two configurations: phases,
// operations, memory groups, counters.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sweeps/bisect/vocabulary.h"

namespace moetune::sweeps {

/// Counters and bytes that are the same in all runs of a side first, by the ratio of their change;
/// then durations that moved beyond their noise, by what they add. Of those with a known unit only
/// what is a fair share of the change of `metric`, which was asked for, and no sums of others where
/// the runs are our own engine's.
std::vector<Moved> moved_between(const RunList& before, const RunList& after,
                                 const std::string& metric, double min_effect_ratio);

nlohmann::json moved_json(const std::vector<Moved>& moved);
/// "  moved: memory_experts_bytes 3.2 MiB -> 4.1 MiB", a line.
std::string moved_line(const char* lead, const Moved& moved);

}  // namespace moetune::sweeps
