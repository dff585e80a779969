// The place of MPI, ranks as processes on one or several hosts: mpi_comm.cpp implements it in a
// build that has MPI, mpi_stub.cpp stands in elsewhere; the linker chooses.
#pragma once

#include <memory>

#include "engine/comm/communicator.h"
#include "engine/plan/layout.h"

namespace moetune::engine {

/// Whether this build can make MPI communicators.
bool has_mpi();

/// The communicator of the `group` that `rank` (0 to layout.world_size() - 1) is in, for host
/// memory; every rank of the world must call it, in the same order of groups. Null in a build
/// without MPI. Throws base::Error when the started processes are not layout.world_size() many.
std::unique_ptr<Communicator> make_mpi_communicator(plan::Group group, const plan::Layout& layout,
                                                    int rank);

}  // namespace moetune::engine
