// The pipeline schedule as data: what a stage does in which order.
#pragma once

#include <cstdint>
#include <vector>

namespace moetune::plan {

struct ScheduleStep {
  bool is_forward = true;
  int64_t micro_batch = 0;
  int virtual_stage = 0;
};

/// 1F1B (Narayanan et al. 2021): min(pp - 1 - stage, m) warm-up forwards, then one forward one
/// backward, then the remaining backwards.
std::vector<ScheduleStep> one_f_one_b(int pp, int stage, int64_t num_micro_batches);

/// The interleaved schedule (Narayanan et al. 2021, section 2.2; Megatron-LM's order): every rank
/// takes its virtual stages in turns, pp micro-batches each, with (pp - 1 - stage) * 2 + (vpp - 1)
/// * pp warm-up forwards. The bubble is (pp - 1) / (m * vpp) of the work. m must be a multiple of
/// pp.
std::vector<ScheduleStep> interleaved(int pp, int vpp, int stage, int64_t num_micro_batches);

/// Messages to one peer in one direction that have memory of their own, from when they are sent
/// until they are read. In the steady part of 1F1B a stage sends a message when the one before the
/// last has been read, because its own last message came after that: two are all it can use. In the
/// warm-up a faster sender waits. Peers read in the order of sending, in both schedules.
inline constexpr int kMessageSlots = 2;

}  // namespace moetune::plan
