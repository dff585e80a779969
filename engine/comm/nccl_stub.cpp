// Stands in for NCCL in builds without it.
#include "engine/comm/nccl_comm.h"

namespace moetune::engine {

bool has_nccl() { return false; }

std::unique_ptr<NcclWorld> make_nccl_world(const plan::Layout& /*layout*/,
                                           Rendezvous& /*rendezvous*/, NcclOptions /*options*/) {
  return nullptr;
}

}  // namespace moetune::engine
