// Which communicators a layout needs and how they come from each other, as data.
//
// Communicators that share resources save hundreds of MB, but NCCL runs their operations one after
// the other, whatever streams they are on. So the groups whose traffic is meant to overlap (expert,
// context, pipeline, data parallel) have resources of their own, and the two data-parallel groups,
// which the engine uses on one stream, share theirs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/plan/layout.h"

namespace moetune::engine {

/// A communicator: that of a group by the group's number, or one of two more. Pipeline messages go
/// by direction: a stage that sends to the next one must not keep it from sending back, and NCCL
/// runs the operations of one communicator in order.
enum class NcclRole : uint8_t {
  world = static_cast<uint8_t>(plan::Group::world),
  pp_up = static_cast<uint8_t>(plan::Group::pp),
  self = static_cast<uint8_t>(plan::Group::count),  ///< this rank alone: groups of one
  pp_down,
  count
};
constexpr NcclRole role_of(plan::Group group) { return static_cast<NcclRole>(group); }
const char* name_of(NcclRole role);

/// One split, made by all members of the parent.
struct NcclSplit {
  NcclRole role = NcclRole::self;
  NcclRole parent = NcclRole::world;
  std::optional<int> color;  ///< empty: this rank is in no group of this kind
};

/// The splits of `rank`, in the order in which all ranks make them. Only what the layout needs:
/// groups of one rank are served by `self`.
std::vector<NcclSplit> nccl_splits(const plan::Layout& layout, int rank);

/// Whether some communicator is split from `role` with shared resources; NCCL wants to know that
/// when it makes `role`.
bool has_sharing_child(NcclRole role);

/// The communicator that carries a group's collectives. Empty when `rank` is in no such group.
std::optional<NcclRole> nccl_role(const plan::Layout& layout, plan::Group group, int rank);

}  // namespace moetune::engine
