// The place of NCCL, one process and one GPU per rank: nccl_comm.cpp implements it in a build that
// has NCCL, nccl_stub.cpp stands in elsewhere; the linker chooses, callers never ask the
// preprocessor.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/comm/communicator.h"
#include "engine/comm/rendezvous.h"
#include "engine/plan/layout.h"

namespace moetune::engine {

/// Whether this build can make NCCL communicators.
bool has_nccl();

struct NcclOptions {
  /// The CUDA stream (a CUstream_st*) that the next call runs on; empty: the default stream.
  std::function<void*()> stream;
  /// Device memory for messages on their way, so that a ledger can book it; empty: cudaMalloc.
  std::function<void*(int64_t bytes)> allocate;
  std::function<void(void*)> release;
  /// A call returns when its data has moved, as between threads; otherwise when it is on the
  /// stream. Sends never wait for the receiver either way.
  bool waits = true;
  std::chrono::milliseconds join_timeout{120'000};  ///< for all ranks to come together
  /// From the launch of an operation to its end.
  std::chrono::milliseconds op_timeout = kUsualPatience;
  std::chrono::milliseconds farewell_timeout{10'000};
};

/// All communicators of one rank, and a thread that watches them. When an operation does not end in
/// time, a peer fails or NCCL reports an error, everything is aborted, so that no call and no
/// kernel hangs, and every later call throws: base::PeerFailed when the cause is another rank,
/// base::Error otherwise, with the group, the operation and NCCL's own words. Destroying it after
/// ordinary use waits for the other ranks to do the same, at most farewell_timeout.
class NcclWorld {
 public:
  virtual ~NcclWorld() = default;

  /// The communicator of the `group` that this rank is in; null when it is in none (embedding, in
  /// the middle of a pipeline). Data is in device memory; values in host memory up to 1 MiB per
  /// call are carried over and back, and such a call always waits. Sums are taken in an order that
  /// NCCL chooses. One thread makes all calls.
  virtual std::unique_ptr<Communicator> communicator(plan::Group group) = 0;
  /// Watches what is on the current stream so far, for replays of captured graphs.
  virtual void watch(const std::string& what) = 0;
  /// Throws what has been found out. Waits for nobody.
  virtual void check() = 0;
  /// Ends everything that runs; this rank has failed with `reason`.
  virtual void abort(const std::string& reason) noexcept = 0;
};

/// Connects all ranks of the layout on their current CUDA devices. `rendezvous` must outlive the
/// result. Null in a build without NCCL. Throws base::UsageError when two ranks have the same GPU,
/// base::Error or base::PeerFailed when they do not come together in time.
std::unique_ptr<NcclWorld> make_nccl_world(const plan::Layout& layout, Rendezvous& rendezvous,
                                           NcclOptions options);

}  // namespace moetune::engine
