// What dispatchers of experts' rows hold on the device for themselves. PyTorch's allocator knows
// nothing of it: it is neither allocated nor reserved, and has to fit all the same.
#pragma once

#include "tuner/planner/run.h"

namespace moetune::tuner::planner {

/// Bytes on each rank that has experts; 0 of all-to-all and allgather, whose tensors are PyTorch's.
/// DeepEP's buffers hold chunks for each peer, whatever the tokens are: Config::
/// get_nvl_buffer_size_hint and get_rdma_buffer_size_hint, with the sizes that Buffer recommends
/// (github.com/deepseek-ai/DeepEP). HybridEP's hold all tokens of the whole group, as all of them
/// may be routed to one rank (its branch hybrid-ep, csrc/hybrid_ep/buffer).
double dispatcher_buffer_bytes(const PlanRun& run);

}  // namespace moetune::tuner::planner
