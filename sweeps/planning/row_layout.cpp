#include "sweeps/planning/row_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "kernels/base/error.h"

namespace moetune::sweeps {

namespace {

using spec::PlanKnobs;

/// As many as RowReader::integer takes for world_size.
constexpr int64_t kMostRanksOfRow = int64_t{1} << 28;

/// Ranks of all replicas; none where they are more than any run has.
int64_t num_ranks(const PlanKnobs& knobs) {
  const int64_t replica = knobs.replica_ranks();
  if (replica > kMostRanksOfRow / knobs.dp) {
    throw base::UsageError(fmt::format("tp {} x cp {} x pp {} x dp {} are more than {} ranks",
                                       knobs.tp, knobs.cp, knobs.pp, knobs.dp, kMostRanksOfRow));
  }
  return replica * knobs.dp;
}

struct OpenSize {
  const char* key;
  int32_t PlanKnobs::*member;
};

/// Sizes that many leave out where they are 1.
constexpr OpenSize kMayBeOpen[] = {{"cp", &PlanKnobs::cp}, {"pp", &PlanKnobs::pp}};

/// Whether the row says that there are several stages without saying how many.
bool has_stages(const RowReader& row) {
  return row.has("pipeline_layout") || row.has("pipeline_split") || row.size("vpp", 1) > 1;
}

/// The sizes that are not stated: the only one is what the others leave of all ranks.
void take_open_sizes(const RowReader& row, PublishedRow& result) {
  PlanKnobs& knobs = result.run.knobs;
  std::vector<OpenSize> open;
  std::ranges::copy_if(kMayBeOpen, std::back_inserter(open),
                       [&](const OpenSize& size) { return !row.has(size.key); });
  if (open.size() == 1 && row.has("world_size") && row.has("dp")) {
    const OpenSize& size = open.front();
    const int64_t all = row.integer("world_size", 0, 0);
    const int64_t others = num_ranks(knobs);
    if (all >= others && all % others == 0) {
      knobs.*size.member = static_cast<int32_t>(all / others);
      result.assumed.push_back(fmt::format("{} {}: what the other sizes leave of world_size",
                                           size.key, knobs.*size.member));
      return;
    }
  }
  for (const OpenSize& size : open) {
    if (size.member == &PlanKnobs::pp && has_stages(row)) {
      throw base::UsageError("does not state pp, and has stages");
    }
    result.assumed.push_back(fmt::format("{} 1: the row does not say", size.key));
    ++result.num_unknown;
  }
}

}  // namespace

int64_t read_layout(const RowReader& row, PublishedRow& result) {
  PlanKnobs& knobs = result.run.knobs;
  if (!row.has("tp")) throw base::UsageError("does not state tp");
  knobs.tp = row.size("tp", 1);
  knobs.cp = row.size("cp", 1);
  knobs.pp = row.size("pp", 1);
  knobs.dp = row.size("dp", 1);
  take_open_sizes(row, result);
  if (!row.has("world_size")) {
    if (!row.has("dp")) throw base::UsageError("does not state world_size, nor dp");
    const int64_t ranks = num_ranks(knobs);
    result.assumed.push_back(fmt::format("world_size {}: tp x cp x pp x dp", ranks));
    return ranks;
  }
  const int64_t ranks = row.integer("world_size", 0, 0);
  if (!row.has("dp")) {
    knobs.dp = static_cast<int32_t>(std::max<int64_t>(1, ranks / knobs.replica_ranks()));
  }
  if (num_ranks(knobs) != ranks) {
    throw base::UsageError(fmt::format("tp {} x cp {} x pp {} x dp {} are not world_size {}",
                                       knobs.tp, knobs.cp, knobs.pp, knobs.dp, ranks));
  }
  return ranks;
}

}  // namespace moetune::sweeps
