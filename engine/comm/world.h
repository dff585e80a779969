// The ranks that train together, as one of them sees them: threads of this process, processes of
// their own, or made up.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/comm/communicator.h"
#include "engine/plan/layout.h"
#include "kernels/backend.h"

namespace moetune::engine {

/// Thread-safe where several ranks are threads of this process.
class World {
 public:
  virtual ~World() = default;

  /// The group's communicator of `rank`, whose backend moves the data: what a call enqueues goes to
  /// the backend's current stream. Null when the rank is in no such group (embedding, in the middle
  /// of a pipeline).
  virtual std::unique_ptr<Communicator> communicator(plan::Group group, int rank,
                                                     kernels::Backend& backend) = 0;

  /// Joins all ranks outside the trace and returns the largest value passed in.
  virtual int64_t join_max(int64_t value) = 0;

  /// Joins the ranks of this process only.
  virtual void join_local() = 0;

  /// Throws when communication is known to have failed: what has come from the device since then
  /// may be anything. Waits for nobody.
  virtual void check() = 0;

  /// Device memory that messages lie in on their way, beside the ranks' allocations.
  [[nodiscard]] virtual int64_t message_bytes() = 0;

  /// Around what a rank of this process computes: where they are many, the first waits for its
  /// turn.
  virtual void begin_computing() {}
  virtual void end_computing() {}

  /// A rank of this process cannot go on: the others, who wait or will wait for it, throw
  /// base::PeerFailed.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace moetune::engine
