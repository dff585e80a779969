// Which of the other numbers of the runs moved between two commits, or two configurations: phases,
// operations, memory groups, counters.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sweeps/bisect/vocabulary.h"

namespace moetune::sweeps {

/// The largest changes of each kind; `metric` is the one that was asked for and is left out.
/// - First counters and bytes that are equal in all runs of a side, by the ratio of their change,
///   from `min_effect_ratio` on.
/// - Then durations that moved beyond their noise, by the time they add. A duration with a known
///   unit has to make up 3 % of the change of `metric` at least.
/// In runs of our own engine, durations and memory that are sums of others are left out.
std::vector<Moved> moved_between(const RunList& before, const RunList& after,
                                 const std::string& metric, double min_effect_ratio);

nlohmann::json moved_json(const std::vector<Moved>& moved);
/// "  moved: memory_experts_bytes 3.2 MiB -> 4.1 MiB", a line.
std::string moved_line(const char* lead, const Moved& moved);

}  // namespace moetune::sweeps
