// Ranks as processes of their own, one GPU each, connected by NCCL.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "engine/comm/launch_env.h"
#include "engine/comm/nccl_comm.h"
#include "engine/comm/rendezvous.h"
#include "engine/comm/world.h"

namespace moetune::engine {

/// The process's place among the others. Calls come from one thread, in the same order on all
/// ranks.
class ProcessWorld final : public World {
 public:
  /// Connects all ranks of the layout on their current devices. `rendezvous` and `backend` must
  /// outlive this. `patience`: for an operation, from its launch to its end. Throws
  /// base::UsageError in a build without NCCL.
  ProcessWorld(const plan::Layout& layout, Rendezvous& rendezvous, kernels::Backend& backend,
               std::chrono::milliseconds patience = kUsualPatience);
  ~ProcessWorld() override;

  std::unique_ptr<Communicator> communicator(plan::Group group, int rank,
                                             kernels::Backend& backend) override;
  int64_t join_max(int64_t value) override;
  void join_local() override {}
  void check() override { nccl_->check(); }
  [[nodiscard]] int64_t message_bytes() override { return message_bytes_; }

  /// What runs on the device ends, too.
  void abort(const std::string& reason) noexcept override;

 private:
  Rendezvous& rendezvous_;
  kernels::Backend& backend_;
  int64_t message_bytes_ = 0;
  std::unique_ptr<NcclWorld> nccl_;
};

}  // namespace moetune::engine
