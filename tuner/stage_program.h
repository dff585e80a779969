// One stage's op program made ready for replay: every op with its price, its launch cost, and whom
// it waits for. The waits are those of engine/model and engine/optim.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/spec/ops.h"
#include "engine/spec/trial_spec.h"
#include "tuner/calibration.h"

namespace moetune::tuner {

/// What an op waits for besides its launch and its own stream.
enum class Wait : uint8_t {
  none,
  compute,  ///< communication that sends what was just computed
  arrival,  ///< computing on a chunk that an all-to-all brings
  expert,   ///< computing on everything that the expert stream has brought
  data,
};

struct PricedOp {
  enum class Role : uint8_t { launch, host_sync, send, recv, meet_world };
  Role role = Role::launch;
  spec::Stream stream = spec::Stream::compute;
  Wait wait = Wait::none;
  bool is_recompute = false;
  bool marks_arrival = false;  ///< its end is the arrival of `chunk`
  bool joins_compute = false;  ///< the compute stream waits for its end at once
  int64_t chunk = 0;
  int64_t host_ns = 0;  ///< launch cost; of host_sync: the return
  int64_t duration_ns = 0;
};

struct StageOps {
  std::vector<PricedOp> begin;    ///< zeroing of gradients
  std::vector<PricedOp> forward;  ///< of one micro-batch
  std::vector<PricedOp> backward;
  std::vector<PricedOp> last_backward;  ///< of the last micro-batch, with overlapped reductions
  std::vector<PricedOp> tail;
};

/// The spec must satisfy its constraints.
StageOps stage_ops(const spec::TrialSpec& spec, const Calibration& calibration, int stage);

}  // namespace moetune::tuner
