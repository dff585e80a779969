// Which of a trial's traced steps are judged, and which one of them is told and stored. Ranks that
// write shards of their own have to choose alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "profiler/record.h"
#include "profiler/store/store.h"

namespace moetune::store {

/// Of a trial: a shard holds no more steps, and no more records of all ranks together unless one
/// step alone has more. Each step that is judged is replayed some dozen times.
inline constexpr size_t kMostJudgedSteps = 8;
inline constexpr size_t kMostJudgedRecords = 250'000;

/// Indices of at most that many steps, by their lengths: first that of median length, as a single
/// slow step should not be the one that is told; then, time and again, the step that is farthest in
/// the order of lengths from those chosen before. So a shorter answer is the beginning of a longer
/// one, and ranks that have room for different numbers of steps have the first ones in common.
std::vector<size_t> choose_steps(std::span<const int64_t> step_ns, size_t most = kMostJudgedSteps);

/// How many steps fit. `largest`: records of the largest one; `room`: records of all together.
size_t num_that_fit(size_t largest, size_t room);

/// The traces of each step to judge, the one to tell first: those of whole steps, of the most ranks
/// that a step has. Views into `shard`; none where there is no record.
std::vector<std::span<const profiler::StepTrace>> steps_to_judge(const ShardContents& shard);

/// What its records sum up to, by name.
std::vector<ShardOp> ops_of(const profiler::StepTrace& trace);

/// Leaves the traces of the step to tell alone, with its operations: one step of a trial is stored.
/// Who wrote the shard did not know which step that is where the ranks have shards of their own.
void keep_told_step(ShardContents& shard);

}  // namespace moetune::store
