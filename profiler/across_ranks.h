// Finds what needs the traces of several ranks: how long communication really moved data, and how
// far the clocks of hosts are apart.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "profiler/record.h"

namespace moetune::profiler {

/// Sets transfer_ns of all communication of one step: of a collective that several of the ranks
/// took part in, the shortest duration of any participant (the last to arrive only transfers); else
/// the shortest of the same op with the same bytes.
void resolve_transfers(const std::vector<StepTrace*>& traces,
                       const CommunicatorKeys& communicators);

/// Brings the traces of one step onto the clock of the first of them. `clocks` names the clock of
/// each trace; those of one name are right already. Collectives end on all participants at about
/// the same time, so the offset between two clocks is the median difference of the ends of those
/// that ranks of both took part in, seen directly or over a third clock; where there is none, of
/// the starts of the steps.
void align_clocks(const std::vector<StepTrace*>& traces, const std::vector<std::string>& clocks,
                  const CommunicatorKeys& communicators);

}  // namespace moetune::profiler
