// Predicts the peak of the engine's memory ledger by walking the schedule with the sizes of the
// parameter plan and the buffer table: the same rows that the engine allocates by, in the same
// order, without running anything.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "tuner/received_rows.h"
#include "tuner/strategy.h"

namespace moetune::tuner {

/// The ledger's groups, in its order and under its names.
enum class MemoryGroup : uint8_t {
  weights,
  gradients,
  optimizer,
  activations,
  workspace,
  communication,
  count
};
const char* name_of(MemoryGroup group);
using GroupBytes = std::array<int64_t, static_cast<size_t>(MemoryGroup::count)>;

struct RankMemory {
  int64_t peak_bytes = 0;
  GroupBytes group_bytes{};  ///< in use at the moment of the peak
};

struct MemoryEstimate {
  int64_t peak_bytes = 0;  ///< highest rank
  int peak_rank = 0;
  Grade grade = Grade::analytic;  ///< calibrated when a routing profile was used
  std::vector<RankMemory> ranks;
};

struct MemoryOptions {
  /// Without a routing profile: received rows over the balanced share.
  double imbalance_ratio = 1.0;
};

/// The knobs must satisfy the constraints.
MemoryEstimate estimate_memory(const spec::TrialSpec& spec, const ReceivedRows& rows,
                               const MemoryOptions& options = {});

}  // namespace moetune::tuner
