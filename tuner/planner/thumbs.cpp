// The table of rules of thumb. Sources: docs/planner.md.
#include <algorithm>

#include "tuner/planner/captured_parts.h"
#include "tuner/planner/rules.h"

namespace moetune::tuner::planner {

namespace {

using spec::PlanRecompute;
using Run = const PlanRun&;

/// Whether ranks share a sequence.
bool spreads_sequence(Run run) {
  const auto tokens = static_cast<double>(run.seq_length);
  return run.knobs.own_tokens(tokens) < tokens;
}

constexpr Thumb kThumbs[] = {
    {"cp_by_length", "CP is about sequence / 4096: 2K to 8K tokens of a sequence on a rank agree.",
     [](Run run) { return run.seq_length > 8192; },
     [](Run run) {
       const double tokens = run.knobs.own_tokens(static_cast<double>(run.seq_length));
       return tokens >= 2048 && tokens <= 8192;
     }},
    {"keep_data_parallelism", "Keep DP alive: at least two replicas stay.",
     [](Run run) { return run.hardware->num_devices() >= 8; },
     [](Run run) { return run.knobs.dp > 1; }},
    {"batch_shrinks_with_cp",
     "GBS shrinks as CP grows and DP falls, rather than that a replica runs more than 16 "
     "micro-batches (of a pipeline 4 a stage).",
     spreads_sequence,
     [](Run run) {
       constexpr int64_t kMost = 16;
       return num_micro_batches(run) <= std::max<int64_t>(kMost, 4 * int64_t{run.knobs.pp});
     }},
    {"selective_before_full",
     "Selective recomputation first, full only where that does not suffice.",
     [](Run run) { return !run.knobs.recompute.empty(); },
     [](Run run) { return !run.knobs.recompute.has(PlanRecompute::full); }},
    {"no_attention_again", "No recomputation of attention's core at long context.",
     [](Run run) { return run.seq_length >= 65536; },
     [](Run run) {
       return !run.knobs.recompute.has(PlanRecompute::core_attn) &&
              !run.knobs.recompute.has(PlanRecompute::full);
     }},
    {"graphs_of_static_shapes",
     "Graphs need static shapes: where the experts' rows vary, nothing behind the router is "
     "captured.",
     [](Run run) { return !run.knobs.cuda_graphs.empty(); },
     [](Run run) { return !captures_experts(run) || has_static_shapes(run); }},
    {"experts_within_domain", "The exchange of experts' rows stays within the NVLink domain.",
     [](Run run) { return has_experts(run) && run.knobs.ep > 1; },
     [](Run run) {
       return int64_t{run.knobs.ep} * run.knobs.etp <= run.hardware->devices_per_node;
     }},
    {"ep_before_tp", "Expert parallelism rather than slices of experts.", has_experts,
     [](Run run) { return run.knobs.etp == 1; }},
    {"small_bubble", "The pipeline bubble is at most a quarter: (pp - 1) / (micro-batches x vpp).",
     [](Run run) { return run.knobs.pp > 1; },
     [](Run run) {
       return micro_batches_of_pass(run) * num_virtual_stages(run) >=
              4 * (int64_t{run.knobs.pp} - 1);
     }},
};

}  // namespace

std::span<const Thumb> thumbs() { return kThumbs; }

}  // namespace moetune::tuner::planner
