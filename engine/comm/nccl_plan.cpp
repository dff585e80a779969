// The rows by which NCCL's communicators are split off each other, and what a layout makes of them.
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

constexpr std::array<Row, 10> kRows = {{
    {NcclRole::dp_cp, Group::dp_cp, NcclRole::world, false},
    {NcclRole::stage, Group::stage, NcclRole::world, false},
    {NcclRole::edp, Group::edp, NcclRole::dp_cp, true},
    {NcclRole::ep, Group::ep, NcclRole::world, false},
    {NcclRole::cp, Group::cp, NcclRole::world, false},
    {NcclRole::tp, Group::tp, NcclRole::world, false},
    {NcclRole::tp_cp, Group::tp_cp, NcclRole::world, false},
    {NcclRole::pp_up, Group::pp, NcclRole::world, false},
    {NcclRole::pp_down, Group::pp, NcclRole::world, false},
    {NcclRole::embedding, Group::embedding, NcclRole::world, false},
}};

// Ranks of one kind of group are equally many everywhere. Groups that join tensor-parallel ranks
// with others are those others without it.
bool is_needed(const plan::Layout& layout, Group group) {
  if (layout.tp == 1 && (group == Group::tp_cp || group == Group::stage)) return false;
  return layout.group_ranks(group, 0).size() > 1;
}

// Ranks with the same experts differ in tensor parallelism too.
NcclRole parent_of(const Row& row, const plan::Layout& layout) {
  return row.role == NcclRole::edp && layout.tp > 1 ? NcclRole::stage : row.parent;
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
    case NcclRole::tp:
      return "tp";
    case NcclRole::tp_cp:
      return "tp_cp";
    case NcclRole::stage:
      return "stage";
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
    splits.push_back({row.role, parent_of(row, layout), row.shares_with_parent, color});
  }
  return splits;
}

bool has_sharing_child(NcclRole role) {
  return role == NcclRole::stage || std::any_of(kRows.begin(), kRows.end(), [role](const Row& row) {
           return row.parent == role && row.shares_with_parent;
         });
}

std::optional<NcclRole> nccl_role(const plan::Layout& layout, Group group, int rank) {
  const std::vector<int> ranks = layout.group_ranks(group, rank);
  if (!is_member(ranks, rank)) return std::nullopt;
  if (group == Group::world) return NcclRole::world;
  if (layout.tp == 1 && group == Group::tp_cp) group = Group::cp;
  if (layout.tp == 1 && group == Group::stage) group = Group::dp_cp;
  const auto* row = std::find_if(kRows.begin(), kRows.end(), [group](const Row& candidate) {
    return candidate.group == group;
  });
  if (is_needed(layout, group) && row != kRows.end()) return row->role;
  return layout.world_size() > 1 ? NcclRole::self : NcclRole::world;
}

}  // namespace moetune::engine
