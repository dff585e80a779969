// Which of a layout's groups get a communicator of their own, and which share another one's
// resources.
#include "engine/comm/nccl_plan.h"

#include <algorithm>

namespace moetune::engine {
namespace {

using plan::Axis;
using plan::Group;

/// The two data-parallel groups: who holds the same experts is part of a stage.
constexpr Group kSharing = Group::edp;
constexpr Group kShared = Group::stage;

// Groups that join tensor-parallel ranks with others are those others without it.
Group served_by(const plan::Layout& layout, Group group) {
  return layout.size(Axis::tp) == 1 ? plan::without(group, Axis::tp) : group;
}

// Ranks of one kind of group are equally many everywhere.
bool is_needed(const plan::Layout& layout, Group group) {
  return served_by(layout, group) == group && layout.group_size(group) > 1;
}

bool is_member(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

const char* name_of(NcclRole role) {
  switch (role) {
    case NcclRole::pp_up:
      return "pp_up";
    case NcclRole::self:
      return "self";
    case NcclRole::pp_down:
      return "pp_down";
    case NcclRole::count:
      return "?";
    default:
      return plan::name_of(static_cast<Group>(role));
  }
}

std::vector<NcclSplit> nccl_splits(const plan::Layout& layout, int rank) {
  std::vector<NcclSplit> splits;
  const auto add = [&](Group group, NcclRole parent) {
    if (!is_needed(layout, group)) return;
    const std::vector<int> ranks = layout.group_ranks(group, rank);
    std::optional<int> color;
    if (is_member(ranks, rank)) color = ranks.front();
    splits.push_back({role_of(group), parent, color});
    if (group == Group::pp) splits.push_back({NcclRole::pp_down, parent, color});
  };
  if (layout.world_size() > 1) splits.push_back({NcclRole::self, NcclRole::world, rank});
  for (const Group group : plan::all_groups()) {
    if (group == Group::world || group == kSharing) continue;
    add(group, NcclRole::world);
    if (group == served_by(layout, kShared)) add(kSharing, role_of(group));
  }
  return splits;
}

bool has_sharing_child(NcclRole role) {
  return role == role_of(kShared) || role == role_of(plan::without(kShared, Axis::tp));
}

std::optional<NcclRole> nccl_role(const plan::Layout& layout, Group group, int rank) {
  if (!is_member(layout.group_ranks(group, rank), rank)) return std::nullopt;
  if (group == Group::world) return NcclRole::world;
  group = served_by(layout, group);
  if (is_needed(layout, group)) return role_of(group);
  return layout.world_size() > 1 ? NcclRole::self : NcclRole::world;
}

}  // namespace moetune::engine
