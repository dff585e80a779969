#include "engine/comm/process_world.h"

#include "kernels/base/error.h"

namespace moetune::engine {

ProcessWorld::ProcessWorld(const plan::Layout& layout, Rendezvous& rendezvous,
                           kernels::Backend& backend, std::chrono::milliseconds patience)
    : rendezvous_(rendezvous), backend_(backend) {
  if (!has_nccl()) throw base::UsageError("communicator 'nccl' is not in this build");
  NcclOptions options;
  options.stream = [&backend] { return backend.native_stream(); };
  options.waits = false;
  options.op_timeout = patience;
  options.allocate = [this](int64_t bytes) {
    message_bytes_ += bytes;
    return backend_.allocate(bytes);
  };
  options.release = [this](void* memory) { backend_.free(memory); };
  nccl_ = make_nccl_world(layout, rendezvous, std::move(options));
}

ProcessWorld::~ProcessWorld() = default;

std::unique_ptr<Communicator> ProcessWorld::communicator(plan::Group group, int /*rank*/,
                                                         kernels::Backend& /*backend*/) {
  return nccl_->communicator(group);
}

int64_t ProcessWorld::join_max(int64_t value) {
  nccl_->check();
  return rendezvous_.max(value);
}

void ProcessWorld::abort(const std::string& reason) noexcept {
  // In this order: who loses the connection should know by then why.
  rendezvous_.fail(reason);
  nccl_->abort(reason);
}

}  // namespace moetune::engine
