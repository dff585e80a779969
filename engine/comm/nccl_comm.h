// The place of NCCL, one GPU per rank: nccl_comm.cpp implements it in a build that has NCCL,
// nccl_stub.cpp stands in elsewhere; the linker chooses, callers never ask the preprocessor.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"
#include "engine/spec/layout.h"

namespace moetune::engine {

/// Whether this build can make NCCL communicators.
bool has_nccl();

/// The communicator of the `group` that `rank` (0 to layout.world_size() - 1) is in, on the current
/// CUDA device; every member of the group must call it. Null in a build without NCCL. Throws
/// base::Error when the members cannot reach each other.
std::unique_ptr<Communicator> make_nccl_communicator(spec::Group group, const spec::Layout& layout,
                                                     int rank);

}  // namespace moetune::engine
