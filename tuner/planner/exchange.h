// Time of communication in a plan: published link costs, with what software really gets out of each
// kind of link.
#pragma once

#include "engine/spec/hardware_spec.h"
#include "tuner/planner/run.h"

namespace moetune::tuner::planner {

/// Seconds of a collective among `size` ranks that are `stride` apart; `bytes` as
/// spec::collective_ns takes them.
double group_seconds(const spec::HardwareSpec& hardware, spec::CollectiveKind kind, double size,
                     double stride, double bytes);

/// Multiprocessors that an exchange keeps from other work: as said, else as the dispatcher chooses.
double exchange_multiprocessors(const spec::PlanKnobs& knobs);

/// Seconds to bring the rows of a micro-batch to their experts, or the results back. Each
/// dispatcher reaches its own share of NVLink and of the network (arXiv 2603.07685, table 7).
double exchange_seconds(const PlanRun& run);
/// Rows of the busiest rank's experts over their share, as a step is played with them: as priced,
/// but at least balanced and at most all of the group.
double played_rows_ratio(const PlanRun& run);
/// exchange_seconds() over what the exchange of a program takes, which goes over links at their
/// full speed; 1 where nothing is exchanged. Only an all-to-all has the load of the busiest rank in
/// it.
double exchange_over_links(const PlanRun& run);

}  // namespace moetune::tuner::planner
