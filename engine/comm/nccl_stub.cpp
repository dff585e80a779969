// Stands in for NCCL in builds without it.
#include "engine/comm/nccl_comm.h"

namespace moetune::engine {

bool has_nccl() { return false; }

std::unique_ptr<Communicator> make_nccl_communicator(spec::Group /*group*/,
                                                     const spec::Layout& /*layout*/, int /*rank*/) {
  return nullptr;
}

}  // namespace moetune::engine
