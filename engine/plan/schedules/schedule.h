// The pipeline schedule as data: what a stage does in which order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace moetune::plan {

struct ScheduleStep {
  bool is_forward = true;
  int64_t micro_batch = 0;
  int virtual_stage = 0;
  bool is_woven = false;  ///< into the step behind it: they take turns (passes/weave.cpp)
};

/// 1F1B (Narayanan et al. 2021): min(pp - 1 - stage, m) warm-up forwards, then one forward one
/// backward, then the remaining backwards.
std::vector<ScheduleStep> one_f_one_b(int pp, int stage, int64_t num_micro_batches);

/// The interleaved schedule (Narayanan et al. 2021, section 2.2; Megatron-LM's order): every rank
/// takes its virtual stages in turns, pp micro-batches each, with (pp - 1 - stage) * 2 + (vpp - 1)
/// * pp warm-up forwards. The bubble is (pp - 1) / (m * vpp) of the work. m must be a multiple of
/// pp. `num_ahead`: with so many more warm-up forwards, behind which forwards are woven.
std::vector<ScheduleStep> interleaved(int pp, int vpp, int stage, int64_t num_micro_batches,
                                      int64_t num_ahead = 0);

/// The same with one forward more before the first backward, so that from there on a forward and a
/// backward of different micro-batches have nothing to wait for in each other and run woven
/// (Megatron-Core's batch-level overlap, after DualPipe: DeepSeek-AI 2024, section 3.2.1). Without
/// a pipeline, too; with one and vpp 1 the last stage would idle, and Megatron-Core refuses it.
std::vector<ScheduleStep> combined_1f1b(int pp, int vpp, int stage, int64_t num_micro_batches);

/// Messages to one peer in one direction that have memory of their own, from when they are sent
/// until they are read: as many as the schedule can use, so that only a sender that runs ahead of
/// it waits. 1F1B, two: a stage's own last message came after the one before that, so that one is
/// read while the next is on its way. Interleaved, half of the pipeline: between the last rank and
/// the first, messages are sent one after the other while the reader is still busy with the
/// virtual stage before; most of all where backward takes no longer than forward. Peers read in the
/// order of sending, in both schedules.
constexpr int message_slots(int pp, int vpp) {
  constexpr int kFewest = 2;
  return vpp == 1 ? kFewest : std::max(kFewest, (pp + 1) / 2);
}

}  // namespace moetune::plan
