// Plays a program with predicted durations, and corrects the sum by what earlier trials took.
#include "tuner/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "engine/plan/player.h"
#include "kernels/base/step_parts.h"
#include "profiler/analysis/stats.h"
#include "tuner/search_space.h"

namespace moetune::tuner {
namespace {

using plan::Stream;

using base::StepPart;
/// A part of the step and the group that it is divided by; the names are those of the trace.
using PartKey = std::pair<StepPart, std::string_view>;
using Parts = std::map<PartKey, int64_t>;

/// What waiting for the record is booked to.
PartKey part_of(const profiler::TraceRecord& record) {
  if (record.group.empty()) return {StepPart::stalled, {}};
  if (record.group == plan::name_of(plan::Group::pp)) return {StepPart::pipeline_bubble, {}};
  return {StepPart::transfer, record.group};
}

/// Where the time of a played rank's compute stream went; adds up to the step.
Parts parts_of(const profiler::StepTrace& trace, const spec::HardwareSpec& hardware,
               bool is_pipeline) {
  constexpr PartKey kLaunch = {StepPart::launch_starved, {}};
  Parts parts;
  std::map<int64_t, const profiler::TraceRecord*> by_id;
  for (const profiler::TraceRecord& record : trace.records) by_id[record.id] = &record;
  const auto part_of_id = [&](int64_t id) -> PartKey {
    const auto found = by_id.find(id);
    return found == by_id.end() ? PartKey{StepPart::stalled, {}} : part_of(*found->second);
  };
  int64_t end_ns = trace.start_ns;
  // While the host stands in a synchronisation nothing can be launched.
  int64_t blocked_until_ns = 0;
  PartKey blocked_by = {StepPart::stalled, {}};
  int64_t world_wait_ns = 0;
  for (const profiler::TraceRecord& record : trace.records) {
    if (record.kind == profiler::RecordKind::host_sync) {
      const int64_t released = record.end_ns - hardware.sync_ns;
      if (released <= record.start_ns) continue;
      blocked_until_ns = released;
      blocked_by = part_of_id(record.producer_id);
      continue;
    }
    if (record.group == plan::name_of(plan::Group::world)) {
      world_wait_ns += record.end_ns - record.transfer_ns - record.start_ns;
    }
    if (record.stream != static_cast<int32_t>(Stream::compute)) continue;
    if (record.start_ns > end_ns) {
      const int64_t blocked =
          std::clamp<int64_t>(blocked_until_ns - end_ns, 0, record.start_ns - end_ns);
      parts[blocked_by] += blocked;
      const auto producer = by_id.find(record.producer_id);
      const bool has_waited =
          producer != by_id.end() && producer->second->end_ns >= record.launch_end_ns;
      parts[has_waited ? part_of(*producer->second) : kLaunch] +=
          record.start_ns - end_ns - blocked;
    }
    parts[{record.is_recompute ? StepPart::recompute : StepPart::compute, {}}] +=
        record.end_ns - record.start_ns;
    end_ns = record.end_ns;
  }
  // What the compute stream does not account for: waiting for other stages, then the data stream's
  // tail, then the host that reads the losses.
  int64_t data_end_ns = end_ns;
  PartKey data = {StepPart::stalled, {}};
  for (const profiler::TraceRecord& record : trace.records) {
    if (record.stream == static_cast<int32_t>(Stream::data) &&
        record.kind == profiler::RecordKind::collective && record.transfer_ns > 0 &&
        record.end_ns > data_end_ns) {
      data_end_ns = record.end_ns;
      data = part_of(record);
    }
  }
  const int64_t rest = data_end_ns - end_ns;
  const int64_t waited = std::min(world_wait_ns, rest);
  parts[{is_pipeline ? StepPart::pipeline_bubble : StepPart::stalled, {}}] += waited;
  parts[data] += rest - waited;
  parts[kLaunch] += trace.end_ns - data_end_ns;
  return parts;
}

plan::PlayResult played_with(const spec::TrialSpec& spec, const CompiledStep& compiled,
                             const Calibration& calibration, profiler::TraceLevel level) {
  plan::PlayOptions options;
  options.level = level;
  return plan::play(
      spec.hardware, compiled.ranks(),
      [&](const plan::Position& at, const plan::Instr& instr, const plan::OpCost& cost) {
        if (instr.verb == plan::Verb::host) return plan::host_work_ns(cost);
        return plan::slowed_ns(spec.hardware,
                               calibration.duration_ns(spec.hardware, instr.op, instr.pass, cost),
                               at.num_collectives);
      },
      options);
}

using OpTimes = std::map<std::string, TrialOutcome::OpTime>;

/// Measured times as a calibration reads them. They are what they would be without collectives
/// beside the operations, which hold some of the multiprocessors: what is played adds that again.
/// What only the program knows of the operations is added.
OpTimes calibrating(const spec::TrialSpec& spec, const CompiledStep& compiled, OpTimes op_times) {
  struct Sum {
    double alone = 0;
    double slowed = 0;
  };
  std::map<std::string, Sum> sums;
  for (const plan::PlayedRank& rank : compiled.ranks()) {
    for (const plan::Item& item : rank.program->items) {
      const plan::Segment& segment = *rank.program->segments[static_cast<size_t>(item.segment)];
      for (size_t i = 0; i < segment.code.size(); ++i) {
        const plan::Instr& instr = segment.code[i];
        if (instr.verb != plan::Verb::op) continue;
        // Routed operations count by a row: all of a label have alike numbers of them.
        const plan::OpCost& cost = instr.is_routed ? instr.cost_per_row : instr.cost;
        const int64_t alone = 1 + plan::roofline_ns(spec.hardware, instr.op, cost);
        Sum& sum = sums[plan::op_label(instr.op, instr.pass)];
        sum.alone += static_cast<double>(alone);
        sum.slowed += static_cast<double>(plan::slowed_ns(
                          spec.hardware, 1000 * alone,
                          plan::sharing_of(*rank.program, item, i).num_collectives)) /
                      1000;
      }
    }
  }
  const std::map<std::string, double> row_flops = compiled.row_flops();
  for (auto& [label, time] : op_times) {
    const auto sum = sums.find(label);
    if (sum == sums.end()) continue;
    time.duration_ns = std::llround(static_cast<double>(time.duration_ns) * sum->second.alone /
                                    sum->second.slowed);
    time.row_flops = std::llround(static_cast<double>(time.count) * row_flops.at(label));
  }
  return op_times;
}

}  // namespace

CostEstimate play_step(const spec::TrialSpec& spec, const Calibration& calibration,
                       const ReceivedRows& rows) {
  return play_step(spec, CompiledStep(spec, rows), calibration);
}

CostEstimate play_step(const spec::TrialSpec& spec, const CompiledStep& compiled,
                       const Calibration& calibration) {
  const plan::Layout layout = plan::layout_of(spec.knobs);
  const plan::PlayResult played =
      played_with(spec, compiled, calibration, profiler::TraceLevel::ops);
  CostEstimate estimate;
  estimate.step_ns = played.step_ns;
  estimate.grade = calibration.is_empty() ? Grade::analytic : Grade::calibrated;
  Parts sums;
  for (const profiler::StepTrace& trace : played.traces) {
    for (const auto& [part, ns] : parts_of(trace, spec.hardware, layout.pp > 1)) sums[part] += ns;
  }
  int64_t rest = played.step_ns;
  for (const auto& [part, ns] : sums) {
    const int64_t mean = ns / layout.pp;
    rest -= mean;
    if (mean > 0) estimate.parts_ns[base::name_of(part.first, part.second)] = mean;
  }
  estimate.parts_ns[base::name_of(StepPart::compute)] += rest;  // rounding
  return estimate;
}

void CostModel::add(const spec::TrialSpec& spec, const TrialOutcome& outcome,
                    const ReceivedRows& rows) {
  if (outcome.status != spec::TrialStatus::ok || outcome.step_ns <= 0) return;
  const auto compiled = std::make_shared<const CompiledStep>(spec, rows);
  calibration_.add(spec.hardware, calibrating(spec, *compiled, outcome.op_times));
  trials_.push_back({spec, compiled, outcome.step_ns, 1});
  std::vector<double> ratios;
  for (Trial& trial : trials_) {
    const int64_t replayed =
        played_with(trial.spec, *trial.compiled, calibration_, profiler::TraceLevel::none).step_ns;
    trial.ratio =
        replayed > 0 ? static_cast<double>(trial.step_ns) / static_cast<double>(replayed) : 1.0;
    ratios.push_back(trial.ratio);
  }
  median_ratio_ = profiler::median(ratios);
  for (double& ratio : ratios) ratio = std::abs(ratio / median_ratio_ - 1);
  error_ratio_ = trials_.size() > 1 ? std::min(1.0, profiler::median(ratios)) : 1.0;
}

double CostModel::correction(const spec::Knobs& knobs) const {
  // The latest trial of the same layout knows best what the replay leaves out there, such as uneven
  // routing.
  for (size_t i = trials_.size(); i-- > 0;) {
    if (is_same_layout(trials_[i].spec.knobs, knobs)) return trials_[i].ratio;
  }
  return median_ratio_;
}

CostEstimate CostModel::estimate(const spec::TrialSpec& spec) const {
  return estimate(spec, CompiledStep(spec));
}

CostEstimate CostModel::estimate(const spec::TrialSpec& spec, const CompiledStep& compiled) const {
  CostEstimate estimate = play_step(spec, compiled, calibration_);
  if (trials_.empty()) return estimate;
  const double ratio = correction(spec.knobs);
  const auto scaled = [&](int64_t ns) {
    return static_cast<int64_t>(std::llround(static_cast<double>(ns) * ratio));
  };
  int64_t rest = estimate.step_ns = scaled(estimate.step_ns);
  for (auto& [name, ns] : estimate.parts_ns) rest -= ns = scaled(ns);
  estimate.parts_ns[base::name_of(base::StepPart::compute)] += rest;
  estimate.grade = Grade::calibrated;
  return estimate;
}

}  // namespace moetune::tuner
