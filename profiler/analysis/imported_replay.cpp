#include "profiler/analysis/imported_replay.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/base/large_memory.h"
#include "profiler/analysis/imported_steps.h"
#include "profiler/analysis/launch_order.h"
#include "profiler/analysis/parts_verdict.h"
#include "profiler/analysis/trace_causes.h"

namespace moetune::profiler {
namespace {

/// A record takes some 330 bytes while its step is replayed.
constexpr size_t kMostOpsAStep = 2'000'000;
/// A step of so many takes more than all that was freed before it.
constexpr size_t kManyOpsAStep = 200'000;
/// Of traces without steps: what a replay takes has to stay below the aim of 64 bytes a record of
/// the trace + 100 MB. As many parts as steps are replayed.
constexpr PartSizes kPartSizes = {100'000, 32'000, true};

/// What fits into 64 bits with room to spare.
constexpr double kMostWorkNs = 1e18;
/// From one operation to the next of a stream that has work enqueued.
constexpr int64_t kStreamGapNs = 5'000;
/// A gap of the host while the device has work: shorter ones are common in programs.
constexpr int64_t kLongGapNs = 1'000'000;
constexpr ReplayOptions kReplayOptions = {kDeviceLatencyNs, kStreamGapNs, kUsualLaunchNs,
                                          kLongGapNs,       kRoundingNs,  kLeastLaunchGapNs};

int64_t recorded_ns(const std::vector<StepTrace>& traces) {
  int64_t end_ns = traces.front().end_ns;
  for (const StepTrace& trace : traces) end_ns = std::max(end_ns, trace.end_ns);
  return end_ns - traces.front().start_ns;
}

/// All that is done, one after the other.
double work_ns(const std::vector<StepTrace>& traces) {
  double sum = 0;
  for (const StepTrace& trace : traces) {
    for (const TraceRecord& record : trace.records) {
      sum += static_cast<double>(record.end_ns) - static_cast<double>(record.start_ns);
      sum +=
          static_cast<double>(record.launch_end_ns) - static_cast<double>(record.launch_start_ns);
    }
  }
  return sum;
}

/// Places of the steps to replay: as many as the bounds allow, evenly spaced.
std::vector<size_t> chosen_steps(const ImportedSteps& steps) {
  size_t largest = 1;
  for (size_t i = 0; i < steps.num_steps(); ++i) largest = std::max(largest, steps.num_ops(i));
  if (largest > kMostOpsAStep) return {};
  return steps_to_replay(steps.num_steps(), largest);
}

}  // namespace

std::optional<ImportedReplay> replay_imported(
    std::span<const ImportedTrace> traces, const CollectiveMatching& matching,
    const MemoryFacts& memory, const std::optional<std::array<double, kNumWalls>>& shares) {
  const ImportedSteps steps(traces, matching, RecordNames::numbers, kPartSizes);
  if (steps.num_steps() == 0) return std::nullopt;
  ImportedReplay replay;
  replay.are_parts = steps.are_parts();
  replay.num_parts = steps.num_steps();
  StepFacts facts;
  facts.stall_ns = kStallNs;
  facts.memory = memory;
  facts.shares = shares;
  std::vector<StepVerdict> verdicts;
  for (const size_t step : chosen_steps(steps)) {
    if (steps.num_ops(step) >= kManyOpsAStep) base::release_freed_memory();
    const std::vector<StepTrace> made = steps.make(step);
    if (work_ns(made) > kMostWorkNs) continue;
    const ReplayedRun run(made, steps.communicators(), kReplayOptions);
    const auto length_ns = static_cast<double>(recorded_ns(made));
    if (length_ns <= 0) continue;
    facts.num_lost = steps.num_lost(step);
    verdicts.push_back(judge_step(run, facts));
    const double error =
        std::abs(static_cast<double>(verdicts.back().step_ns) - length_ns) / length_ns;
    replay.error_ratio = std::max(replay.error_ratio, error);
  }
  if (verdicts.empty()) return std::nullopt;
  static_cast<StepsVerdict&>(replay) =
      replay.are_parts ? verdict_of_parts(verdicts) : verdict_of_steps(std::move(verdicts));
  return replay;
}

void infer_producers(std::vector<StepTrace>& traces, const GroupInstances& communicators) {
  if (work_ns(traces) > kMostWorkNs) return;
  struct Found {
    uint32_t trace = 0;
    uint32_t row = 0;
    int64_t producer = kNoRecord;
  };
  std::vector<Found> found;
  const ReplayedRun run(traces, communicators, kReplayOptions);
  for (size_t place = 0; place < run.ops().size(); ++place) {
    const ReplayOp& op = run.ops()[place];
    const std::optional<size_t> producer = run.producer_of(place);
    if (!producer || run.record_of(op).producer_id != kNoRecord) continue;
    found.push_back({op.trace, op.row, run.record_of(run.ops()[*producer]).id});
  }
  for (const Found& one : found) {
    TraceRecord& record = traces[one.trace].records[one.row];
    record.producer_id = one.producer;
    record.is_producer_inferred = true;
  }
}

CriticalPath path_of_imported(const std::vector<StepTrace>& traces,
                              const GroupInstances& communicators) {
  if (work_ns(traces) > kMostWorkNs) return {};
  return critical_path(ReplayedRun(traces, communicators, kReplayOptions), {});
}

}  // namespace moetune::profiler
