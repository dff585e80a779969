// Plays a program with predicted durations, and corrects the sum by what earlier trials took.
#include "tuner/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "engine/plan/player.h"
#include "kernels/base/error.h"
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

/// Where the time of a played rank's compute stream goes, from its records as they come: of a long
/// step nobody could hold all.
class StageParts {
 public:
  explicit StageParts(const spec::HardwareSpec& hardware) : hardware_(hardware) {}

  /// All records of a step that begins at 0, in program order.
  void add(const profiler::TraceRecord& record) {
    const auto key = key_of(record);
    MOETUNE_CHECK(record.id == static_cast<int64_t>(seen_.size()), "records out of order");
    seen_.push_back({record.end_ns, key});
    if (record.kind == profiler::RecordKind::host_sync) {
      const int64_t released = record.end_ns - hardware_.sync_ns;
      if (released <= record.start_ns) return;
      // While the host stands in a synchronisation nothing can be launched.
      blocked_until_ns_ = released;
      const Seen* producer = find(record.producer_id);
      blocked_by_ = producer == nullptr ? PartKey{StepPart::stalled, {}} : keys_[producer->key];
      return;
    }
    if (record.group == plan::name_of(plan::Group::world)) {
      world_wait_ns_ += record.end_ns - record.transfer_ns - record.start_ns;
    }
    if (record.stream == static_cast<int32_t>(Stream::data) &&
        record.kind == profiler::RecordKind::collective && record.transfer_ns > 0 &&
        record.end_ns > data_end_ns_) {
      data_end_ns_ = record.end_ns;
      data_ = keys_[key];
    }
    if (record.kind == profiler::RecordKind::memcpy) {
      copies_end_ns_ = std::max(copies_end_ns_, record.end_ns);
    }
    if (record.stream != static_cast<int32_t>(Stream::compute)) return;
    if (record.start_ns > end_ns_) {
      const int64_t blocked =
          std::clamp<int64_t>(blocked_until_ns_ - end_ns_, 0, record.start_ns - end_ns_);
      parts_[blocked_by_] += blocked;
      const Seen* producer = find(record.producer_id);
      const bool has_waited = producer != nullptr && producer->end_ns >= record.launch_end_ns;
      parts_[has_waited ? keys_[producer->key] : kLaunch] += record.start_ns - end_ns_ - blocked;
    }
    parts_[{record.is_recompute ? StepPart::recompute : StepPart::compute, {}}] +=
        record.end_ns - record.start_ns;
    end_ns_ = record.end_ns;
  }

  /// Adds up to the step, which ends at `step_end_ns`.
  [[nodiscard]] Parts parts(int64_t step_end_ns, bool is_pipeline) const {
    // What the compute stream does not account for: waiting for other stages, then for copies that
    // come behind its last work, then the data stream's tail, then the host that reads the losses.
    Parts parts = parts_;
    const bool has_tail = data_end_ns_ > end_ns_;
    const int64_t data_end_ns = has_tail ? data_end_ns_ : end_ns_;
    const int64_t rest = data_end_ns - end_ns_;
    const int64_t waited = std::min(world_wait_ns_, rest);
    parts[{is_pipeline ? StepPart::pipeline_bubble : StepPart::stalled, {}}] += waited;
    const int64_t copied = std::clamp<int64_t>(copies_end_ns_ - end_ns_, 0, rest - waited);
    if (copied > 0) parts[{StepPart::transfer, base::kMemcpyGroup}] += copied;
    parts[has_tail ? data_ : PartKey{StepPart::stalled, {}}] += rest - waited - copied;
    parts[kLaunch] += step_end_ns - data_end_ns;
    return parts;
  }
  [[nodiscard]] int64_t num_records() const { return static_cast<int64_t>(seen_.size()); }

 private:
  static constexpr PartKey kLaunch = {StepPart::launch_starved, {}};
  /// What later records ask of an earlier one.
  struct Seen {
    int64_t end_ns = 0;
    size_t key = 0;  ///< of keys_: what waiting for it is booked to
  };

  /// By the group of a record.
  size_t key_of(const profiler::TraceRecord& record) {
    for (size_t i = 0; i < keys_.size(); ++i) {
      if (groups_[i] == record.group) return i;
    }
    groups_.push_back(record.group);
    PartKey key = part_of(record);
    if (!key.second.empty()) key.second = groups_.back();
    keys_.push_back(key);
    return keys_.size() - 1;
  }
  [[nodiscard]] const Seen* find(int64_t id) const {
    return id >= 0 && id < static_cast<int64_t>(seen_.size()) ? &seen_[static_cast<size_t>(id)]
                                                              : nullptr;
  }

  const spec::HardwareSpec& hardware_;
  std::vector<Seen> seen_;
  std::vector<PartKey> keys_;
  std::deque<std::string> groups_;  ///< of each key, which refers to it
  Parts parts_;
  int64_t end_ns_ = 0;  ///< of the compute stream so far
  int64_t blocked_until_ns_ = 0;
  PartKey blocked_by_ = {StepPart::stalled, {}};
  int64_t world_wait_ns_ = 0;
  int64_t data_end_ns_ = 0;
  PartKey data_ = {StepPart::stalled, {}};
  int64_t copies_end_ns_ = 0;
};

plan::PlayResult played_with(const spec::TrialSpec& spec, const CompiledStep& compiled,
                             const Calibration& calibration, const plan::PlayOptions& options,
                             const PlayedTimes& times = {}) {
  return plan::play(
      spec.hardware, compiled.ranks(),
      [&](const plan::Position& at, const plan::Instr& instr, const plan::OpCost& cost) {
        if (instr.verb == plan::Verb::host) return plan::host_work_ns(cost);
        if (instr.verb == plan::Verb::copy) return plan::host_copy_ns(spec.hardware, cost);
        const int64_t alone =
            times.op_of ? times.op_of(at, instr, cost)
                        : calibration.duration_ns(spec.hardware, instr.op, instr.pass, cost);
        return plan::slowed_ns(spec.hardware, alone, at.num_collectives);
      },
      options);
}

/// Records that playing leaves at most.
int64_t most_records_of(const std::vector<plan::PlayedRank>& ranks) {
  using plan::Verb;
  int64_t sum = 0;
  for (const plan::PlayedRank& rank : ranks) {
    std::vector<int64_t> counts;  // by segment
    for (const auto& segment : rank.program->segments) {
      counts.push_back(
          std::count_if(segment->code.begin(), segment->code.end(), [](const plan::Instr& instr) {
            return instr.verb == Verb::op || instr.verb == Verb::comm || instr.verb == Verb::send ||
                   instr.verb == Verb::recv || instr.verb == Verb::fetch ||
                   instr.verb == Verb::copy || instr.verb == Verb::host;
          }));
    }
    for (const plan::Item& item : rank.program->items) {
      sum += counts[static_cast<size_t>(item.segment)];
    }
  }
  return sum;
}

int64_t num_micro_batches_of(const std::vector<plan::PlayedRank>& ranks) {
  int64_t most = 0;
  for (const plan::PlayedRank& rank : ranks) {
    for (const plan::Item& item : rank.program->items) {
      most = std::max<int64_t>(most, item.micro_batch + 1);
    }
  }
  return most;
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
  return play_traced(spec, compiled, calibration, 0).estimate;
}

PlayedStep play_traced(const spec::TrialSpec& spec, const CompiledStep& compiled,
                       const Calibration& calibration, int64_t most_records,
                       const PlayedTimes& times) {
  const plan::Layout layout = plan::layout_of(spec.knobs);
  const std::vector<plan::PlayedRank> ranks = compiled.ranks();
  PlayedStep step;
  step.num_micro_batches = num_micro_batches_of(ranks);
  step.is_thinned = most_records_of(ranks) > most_records;
  std::vector<StageParts> stages(ranks.size(), StageParts(spec.hardware));
  plan::PlayOptions options;
  options.level = profiler::TraceLevel::ops;
  options.transfer_of = times.transfer_of;
  options.keeps_record = [&](size_t place, const profiler::TraceRecord& record) {
    stages[place].add(record);
    if (!step.is_thinned) return true;
    const int64_t micro_batch = record.micro_batch;
    return most_records > 0 && (micro_batch <= 0 || micro_batch == step.num_micro_batches / 2 ||
                                micro_batch == step.num_micro_batches - 1);
  };
  plan::PlayResult played = played_with(spec, compiled, calibration, options, times);
  CostEstimate& estimate = step.estimate;
  estimate.step_ns = played.step_ns;
  estimate.grade = calibration.is_empty() ? Grade::analytic : Grade::calibrated;
  Parts sums;
  for (size_t i = 0; i < stages.size(); ++i) {
    step.num_records += stages[i].num_records();
    std::map<std::string, int64_t>& names = step.stage_parts_ns.emplace_back();
    for (const auto& [part, ns] : stages[i].parts(played.traces[i].end_ns, layout.pp > 1)) {
      sums[part] += ns;
      if (ns > 0) names[base::name_of(part.first, part.second)] = ns;
    }
  }
  int64_t rest = played.step_ns;
  for (const auto& [part, ns] : sums) {
    const int64_t mean = ns / layout.pp;
    rest -= mean;
    if (mean > 0) estimate.parts_ns[base::name_of(part.first, part.second)] = mean;
  }
  estimate.parts_ns[base::name_of(StepPart::compute)] += rest;  // rounding
  if (most_records > 0) step.traces = std::move(played.traces);
  return step;
}

void CostModel::add(const spec::TrialSpec& spec, const TrialOutcome& outcome,
                    const ReceivedRows& rows) {
  if (outcome.status != spec::TrialStatus::ok || outcome.step_ns <= 0) return;
  const auto compiled = std::make_shared<const CompiledStep>(spec, rows);
  calibration_.add(spec.hardware, calibrating(spec, *compiled, outcome.op_times));
  trials_.push_back({spec, compiled, outcome.step_ns, 1});
  std::vector<double> ratios;
  for (Trial& trial : trials_) {
    const int64_t replayed = played_with(trial.spec, *trial.compiled, calibration_, {}).step_ns;
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
