// Stands in for MPI in builds without it.
#include "engine/comm/mpi_comm.h"

namespace moetune::engine {

bool has_mpi() { return false; }

std::unique_ptr<Communicator> make_mpi_communicator(plan::Group /*group*/,
                                                    const plan::Layout& /*layout*/, int /*rank*/) {
  return nullptr;
}

}  // namespace moetune::engine
