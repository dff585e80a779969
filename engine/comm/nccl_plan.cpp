// The table of splits; see nccl_plan.h.
#include "engine/comm/nccl_plan.h"

#include <algorithm>
#include <array>

namespace moetune::engine {
namespace {

using plan::Group;

struct Row {
  NcclRole role;
  Group group;
  NcclRole parent;
  bool shares_with_parent;
};

constexpr std::array<Row, 7> kRows = {{
    {NcclRole::dp_cp, Group::dp_cp, NcclRole::world, false},
    {NcclRole::edp, Group::edp, NcclRole::dp_cp, true},
    {NcclRole::ep, Group::ep, NcclRole::world, false},
    {NcclRole::cp, Group::cp, NcclRole::world, false},
    {NcclRole::pp_up, Group::pp, NcclRole::world, false},
    {NcclRole::pp_down, Group::pp, NcclRole::world, false},
    {NcclRole::embedding, Group::embedding, NcclRole::world, false},
}};

// Ranks of one kind of group are equally many everywhere.
bool is_needed(const plan::Layout& layout, Group group) {
  return layout.group_ranks(group, 0).size() > 1;
}

bool is_member(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

const char* name_of(NcclRole role) {
  switch (role) {
    case NcclRole::world:
      return "world";
    case NcclRole::self:
      return "self";
    case NcclRole::dp_cp:
      return "dp_cp";
    case NcclRole::edp:
      return "edp";
    case NcclRole::ep:
      return "ep";
    case NcclRole::cp:
      return "cp";
    case NcclRole::pp_up:
      return "pp_up";
    case NcclRole::pp_down:
      return "pp_down";
    case NcclRole::embedding:
      return "embedding";
    case NcclRole::count:
      break;
  }
  return "?";
}

std::vector<NcclSplit> nccl_splits(const plan::Layout& layout, int rank) {
  std::vector<NcclSplit> splits;
  if (layout.world_size() > 1) splits.push_back({NcclRole::self, NcclRole::world, false, rank});
  for (const Row& row : kRows) {
    if (!is_needed(layout, row.group)) continue;
    const std::vector<int> ranks = layout.group_ranks(row.group, rank);
    std::optional<int> color;
    if (is_member(ranks, rank)) color = ranks.front();
    splits.push_back({row.role, row.parent, row.shares_with_parent, color});
  }
  return splits;
}

bool has_sharing_child(NcclRole role) {
  return std::any_of(kRows.begin(), kRows.end(), [role](const Row& row) {
    return row.parent == role && row.shares_with_parent;
  });
}

std::optional<NcclRole> nccl_role(const plan::Layout& layout, Group group, int rank) {
  const std::vector<int> ranks = layout.group_ranks(group, rank);
  if (!is_member(ranks, rank)) return std::nullopt;
  if (group == Group::world) return NcclRole::world;
  const auto* row = std::find_if(kRows.begin(), kRows.end(), [group](const Row& candidate) {
    return candidate.group == group;
  });
  if (ranks.size() > 1 && row != kRows.end()) return row->role;
  return layout.world_size() > 1 ? NcclRole::self : NcclRole::world;
}

}  // namespace moetune::engine
