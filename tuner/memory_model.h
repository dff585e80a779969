// Predicts the peak of the engine's memory ledger by adding up the allocations of each rank's
// program, the same instructions that the engine executes, without running anything.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "engine/plan/program.h"
#include "engine/plan/route.h"
#include "tuner/compiled_step.h"
#include "tuner/received_rows.h"
#include "tuner/strategy.h"

namespace moetune::tuner {

using profiler::GroupBytes;
using profiler::MemoryGroup;

struct RankMemory {
  int64_t peak_bytes = 0;
  GroupBytes group_bytes{};  ///< in use at the moment of the peak
};

struct MemoryEstimate {
  int64_t peak_bytes = 0;         ///< highest rank
  int64_t most_peak_bytes = 0;    ///< if one rank of each group received all rows; is_exact: alike
  bool is_exact = true;           ///< the rows of each rank are known
  Grade grade = Grade::analytic;  ///< calibrated when a routing profile was used
  std::vector<RankMemory> ranks;
};

/// The allocations of one program, ready to be added up many times with different rows.
class MemoryScan {
 public:
  explicit MemoryScan(const plan::StepProgram& program);

  /// rows(layer, micro-batch): rows that this rank's experts receive there.
  [[nodiscard]] RankMemory run(
      const std::function<int64_t(int64_t layer, int64_t micro_batch)>& rows) const;

 private:
  struct Change {
    MemoryGroup group = MemoryGroup::workspace;
    bool is_alloc = true;
    int64_t bytes = 0;
    int64_t bytes_per_row = 0;
  };
  struct Run {
    size_t segment = 0;
    bool is_routed = false;
    int64_t layer = -1;
    int64_t micro_batch = -1;
  };

  std::vector<std::vector<Change>> segments_;
  std::vector<Run> runs_;
};

/// Of one rank, whose program is that of `spec`, with the rows that its experts receive there.
RankMemory rank_memory(const spec::TrialSpec& spec, const plan::StepProgram& program,
                       const plan::Bindings& bindings);

/// Of all ranks. The knobs must satisfy the constraints.
MemoryEstimate estimate_memory(const spec::TrialSpec& spec, const ReceivedRows& rows);
/// `compiled`: of the same spec, but for the number of steps. Without a profile the experts of each
/// rank receive `load` times their share, as those of the busiest one do.
MemoryEstimate estimate_memory(const spec::TrialSpec& spec, const CompiledStep& compiled,
                               const ReceivedRows& rows, double load = 1);

}  // namespace moetune::tuner
