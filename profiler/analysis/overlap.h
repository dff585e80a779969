// Communication over all ranks, per group: how much was hidden, how much blocked, and how much of a
// collective was waiting for a late rank and not the network.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "profiler/analysis/budget.h"
#include "profiler/record.h"

namespace moetune::profiler {

/// Which instance of a group a rank belongs to: (rank, group name) -> any key that its members
/// share and no other instance of that group has, such as the lowest member rank. A missing entry
/// means one instance for all ranks.
using GroupInstances = std::map<std::pair<int32_t, std::string>, int64_t>;

/// One collective as its participants saw it.
struct CollectiveInstance {
  std::string group;
  int64_t instance_key = 0;
  int64_t sequence = 0;
  int num_participants = 0;
  int32_t late_rank = -1;  ///< the participant with the shortest duration: all others waited for it
  int64_t transfer_proxy_ns = 0;  ///< shortest duration over the participants
  int64_t jitter_ns = 0;          ///< sum over the participants of duration - proxy
  int64_t bytes = 0;              ///< sum over the participants
};

/// Sorted by group, instance and sequence. Collectives with one participant are included (no
/// bandwidth claim can be made of them). Point-to-point transfers and records without a sequence
/// are left out.
std::vector<CollectiveInstance> match_collectives(const std::vector<StepTrace>& traces,
                                                  const GroupInstances& instances);

/// Sums over ranks, per group.
struct GroupOverlap {
  std::string group;
  int64_t count = 0;
  int64_t bytes = 0;
  int64_t volume_ns = 0;
  int64_t busy_ns = 0;
  int64_t exposed_ns = 0;
  int64_t blocking_transfer_ns = 0;
  int64_t blocking_wait_ns = 0;
  double overlap_ratio = 0;  ///< (busy - exposed) / busy
  int64_t num_matched = 0;   ///< collectives with at least two traced participants
  int64_t num_unmatched = 0;
  int64_t transfer_proxy_ns = 0;  ///< sum over matched collectives
  int64_t jitter_ns = 0;          ///< sum over matched collectives and participants
  int32_t late_rank = -1;         ///< the rank that made others wait longest, -1 without jitter
  double late_rank_ratio = 0;     ///< its share of jitter_ns
};

/// `budgets[i]` is the budget of `traces[i]`. Longest blocking first.
std::vector<GroupOverlap> group_overlaps(const std::vector<StepTrace>& traces,
                                         const std::vector<StepBudget>& budgets,
                                         const GroupInstances& instances);

}  // namespace moetune::profiler
