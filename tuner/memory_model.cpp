// The scan over a program's allocations, once for each rank, and what a real device holds beside
// them.
#include "tuner/memory_model.h"

#include <algorithm>

#include "engine/plan/attention_workspace.h"
#include "tuner/busiest_rows.h"

namespace moetune::tuner {
namespace {

using profiler::aligned_bytes;

void add(RankMemory& memory, MemoryGroup group, int64_t bytes) {
  memory.peak_bytes += bytes;
  memory.group_bytes[static_cast<size_t>(group)] += bytes;
}

/// With what a real device's kernels hold beside the program's allocations, from the first step to
/// the last, so that the moment of the peak stays the same: the libraries' workspaces, and
/// attention's. In f32 plain kernels do attention, which need none.
RankMemory with_workspaces(RankMemory memory, const spec::TrialSpec& spec, int rank) {
  if (!spec::is_on_device(spec)) return memory;
  const plan::LayerDims dims =
      plan::layer_dims(spec.model, spec.knobs, spec.training.seq_length, 0, rank);
  add(memory, MemoryGroup::workspace, spec.hardware.workspace_bytes);
  if (spec::precision_of(spec.dtype, spec.knobs).element == base::DType::bf16) {
    add(memory, MemoryGroup::workspace, plan::attention_workspace_bytes(dims));
  }
  return memory;
}

}  // namespace

MemoryScan::MemoryScan(const plan::StepProgram& program) {
  std::vector<bool> is_routed;
  for (const auto& segment : program.segments) {
    std::vector<Change>& changes = segments_.emplace_back();
    is_routed.push_back(false);
    for (const plan::Instr& instr : segment->code) {
      const bool is_alloc = instr.verb == plan::Verb::alloc;
      if (!is_alloc && instr.verb != plan::Verb::free) continue;
      changes.push_back({static_cast<MemoryGroup>(instr.what), is_alloc, instr.cost.bytes,
                         instr.cost_per_row.bytes});
      if (instr.is_routed) is_routed.back() = true;
    }
  }
  for (const auto* items : {&program.setup, &program.items}) {
    for (const plan::Item& item : *items) {
      const auto segment = static_cast<size_t>(item.segment);
      if (segments_[segment].empty()) continue;
      runs_.push_back({segment, is_routed[segment], item.layer, item.micro_batch});
    }
  }
}

RankMemory MemoryScan::run(
    const std::function<int64_t(int64_t layer, int64_t micro_batch)>& rows) const {
  RankMemory peak;
  GroupBytes in_use{};
  int64_t total = 0;
  for (const Run& item : runs_) {
    const int64_t received = item.is_routed ? rows(item.layer, item.micro_batch) : 0;
    for (const Change& change : segments_[item.segment]) {
      const int64_t bytes = aligned_bytes(change.bytes + change.bytes_per_row * received);
      const int64_t signed_bytes = change.is_alloc ? bytes : -bytes;
      in_use[static_cast<size_t>(change.group)] += signed_bytes;
      total += signed_bytes;
      if (total > peak.peak_bytes) peak = {total, in_use};
    }
  }
  return peak;
}

RankMemory rank_memory(const spec::TrialSpec& spec, const plan::StepProgram& program,
                       const plan::Bindings& bindings) {
  const RankMemory memory = MemoryScan(program).run([&](int64_t layer, int64_t micro_batch) {
    return bindings.at(layer, micro_batch).num_received;
  });
  return with_workspaces(memory, spec, program.rank);
}

MemoryEstimate estimate_memory(const spec::TrialSpec& spec, const ReceivedRows& rows) {
  return estimate_memory(spec, CompiledStep(spec), rows);
}

MemoryEstimate estimate_memory(const spec::TrialSpec& spec, const CompiledStep& compiled,
                               const ReceivedRows& rows, double load) {
  const plan::Layout layout = plan::layout_of(spec.knobs);
  const int stage_size = layout.stage_size();
  MemoryEstimate estimate;
  estimate.grade = rows.has_profile() ? Grade::calibrated : Grade::analytic;
  estimate.ranks.reserve(static_cast<size_t>(layout.world_size()));
  const plan::LayerDims dims =
      plan::layer_dims(spec.model, spec.knobs, spec.training.seq_length, 0);
  const int64_t num_steps =
      std::clamp<int64_t>(spec::total_steps(spec), 1, std::max<int64_t>(1, rows.num_steps()));
  estimate.is_exact = rows.has_profile() || dims.expert_ranks <= 1 || spec.model.num_experts == 0;
  for (int stage = 0; stage < layout.pp; ++stage) {
    const MemoryScan scan(compiled.stages()[static_cast<size_t>(stage)]);
    const RankMemory most = estimate.is_exact ? RankMemory() : scan.run([&](int64_t, int64_t) {
      return rows_at_load(dims, static_cast<double>(dims.expert_ranks));
    });
    const RankMemory alike = scan.run([&](int64_t, int64_t) { return rows_at_load(dims, load); });
    for (int rank = stage * stage_size; rank < (stage + 1) * stage_size; ++rank) {
      RankMemory highest = alike;
      if (rows.has_profile() && dims.expert_ranks > 1) {
        // The highest of the steps that the trial runs.
        highest = {};
        const ReceivedRows::OfRank received = rows.of_rank(layout, spec.knobs, rank);
        for (int64_t step = 0; step < num_steps; ++step) {
          const RankMemory memory = scan.run([&](int64_t layer, int64_t micro_batch) {
            return received.at(step, layer, micro_batch);
          });
          if (memory.peak_bytes > highest.peak_bytes) highest = memory;
        }
      }
      estimate.ranks.push_back(with_workspaces(highest, spec, rank));
      estimate.most_peak_bytes =
          std::max(estimate.most_peak_bytes, with_workspaces(most, spec, rank).peak_bytes);
    }
  }
  for (const RankMemory& rank : estimate.ranks) {
    estimate.peak_bytes = std::max(estimate.peak_bytes, rank.peak_bytes);
  }
  estimate.most_peak_bytes = std::max(estimate.most_peak_bytes, estimate.peak_bytes);
  return estimate;
}

}  // namespace moetune::tuner
