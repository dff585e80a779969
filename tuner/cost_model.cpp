// The replay of a step and its correction by measurements; see cost_model.h.
#include "tuner/cost_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <optional>

#include "engine/spec/schedule.h"
#include "kernels/base/error.h"
#include "tuner/search_space.h"
#include "tuner/stage_program.h"

namespace moetune::tuner {
namespace {

using spec::Stream;
using Role = PricedOp::Role;

enum Part : size_t { kCompute, kRecompute, kLaunch, kEp, kCp, kDp, kBubble, kOther, kNumParts };
constexpr std::array<const char*, kNumParts> kPartNames = {
    "compute", "recompute", "launch", "ep", "cp", "dp", "pp_bubble", "other"};

Part part_of(Stream stream) {
  switch (stream) {
    case Stream::expert:
      return kEp;
    case Stream::context:
      return kCp;
    case Stream::data:
      return kDp;
    case Stream::pipeline_send:
    case Stream::pipeline_recv:
      return kBubble;
    default:
      return kOther;
  }
}

/// The clocks of one stage, and where the compute stream's time went.
class StageClock {
 public:
  /// Runs until the end, or until the next meeting with all stages: returns the index of that op.
  size_t run(const std::vector<PricedOp>& ops, size_t first, std::deque<int64_t>* inbox,
             std::deque<int64_t>* outbox) {
    for (size_t i = first; i < ops.size(); ++i) {
      const PricedOp& op = ops[i];
      if (op.role == Role::meet_world) return i;
      if (op.role == Role::host_sync) {
        const int64_t released = std::max(host_ns_, end_of(op.stream));
        if (released > host_ns_) {
          blocked_until_ns_ = released;
          blocked_by_ = part_of(op.stream);
        }
        host_ns_ = released + op.host_ns;
        continue;
      }
      launch(op, inbox, outbox);
    }
    return ops.size();
  }

  /// When this stage arrives at a meeting.
  int64_t arrive(const PricedOp& op) {
    host_ns_ += op.host_ns;
    return std::max({host_ns_, end_of(Stream::compute), end_of(op.stream)});
  }
  void meet(const PricedOp& op, int64_t arrived_ns, int64_t start_ns) {
    end_of(op.stream) = start_ns + op.duration_ns;
    meeting_wait_ns_ += start_ns - arrived_ns;
  }

  [[nodiscard]] int64_t latest_ns() const {
    return std::max(host_ns_, *std::max_element(streams_.begin(), streams_.end()));
  }

  /// Parts of this stage's step, adding up to step_ns.
  std::array<int64_t, kNumParts> finish(int64_t step_ns, bool is_pipeline) {
    // What the compute stream does not account for: waiting for other stages, then the data
    // stream's tail.
    const int64_t rest = step_ns - end_of(Stream::compute);
    const int64_t waited = std::min(meeting_wait_ns_, rest);
    parts_[is_pipeline ? kBubble : kOther] += waited;
    parts_[kDp] += rest - waited;
    return parts_;
  }

 private:
  int64_t& end_of(Stream stream) { return streams_[static_cast<size_t>(stream)]; }

  [[nodiscard]] int64_t arrival_of(int64_t chunk) const {
    return chunk < static_cast<int64_t>(arrivals_.size()) ? arrivals_[static_cast<size_t>(chunk)]
                                                          : 0;
  }

  void launch(const PricedOp& op, std::deque<int64_t>* inbox, std::deque<int64_t>* outbox) {
    host_ns_ += op.host_ns;
    int64_t producer_ns = 0;
    Part producer = kOther;
    const auto wait_for = [&](int64_t end_ns, Part part) {
      if (end_ns <= producer_ns) return;
      producer_ns = end_ns;
      producer = part;
    };
    switch (op.wait) {
      case Wait::none:
        break;
      case Wait::compute:
        wait_for(end_of(Stream::compute), kOther);
        break;
      case Wait::arrival:
        wait_for(arrival_of(op.chunk), kEp);
        break;
      case Wait::expert:
        wait_for(end_of(Stream::expert), kEp);
        break;
      case Wait::data:
        wait_for(end_of(Stream::data), kDp);
        break;
    }
    if (op.stream == Stream::compute) wait_for(joined_ns_, joined_part_);
    int64_t& end = end_of(op.stream);
    const int64_t start = std::max({host_ns_, end, producer_ns});
    if (op.stream == Stream::compute) {
      account_gap(start, producer_ns, producer);
      parts_[op.is_recompute ? kRecompute : kCompute] += op.duration_ns;
    }
    end = start + op.duration_ns;
    if (op.role == Role::recv) {
      MOETUNE_CHECK(inbox != nullptr && !inbox->empty(), "a stage receives what nobody has sent");
      end = std::max(start, inbox->front() + op.duration_ns);
      inbox->pop_front();
    }
    if (op.role == Role::send) outbox->push_back(start);
    if (op.joins_compute && end > joined_ns_) {
      joined_ns_ = end;
      joined_part_ = part_of(op.stream);
    }
    if (op.marks_arrival) {
      arrivals_.resize(std::max(arrivals_.size(), static_cast<size_t>(op.chunk) + 1));
      arrivals_[static_cast<size_t>(op.chunk)] = end;
    }
  }

  void account_gap(int64_t start, int64_t producer_ns, Part producer) {
    int64_t begin = end_of(Stream::compute);
    if (start <= begin) return;
    // While the host stood in a synchronisation nothing could be launched.
    const int64_t blocked = std::clamp<int64_t>(blocked_until_ns_ - begin, 0, start - begin);
    parts_[blocked_by_] += blocked;
    begin += blocked;
    parts_[producer_ns >= host_ns_ ? producer : kLaunch] += start - begin;
  }

  int64_t host_ns_ = 0;
  std::array<int64_t, static_cast<size_t>(Stream::count)> streams_{};
  std::vector<int64_t> arrivals_;
  int64_t joined_ns_ = 0;
  Part joined_part_ = kOther;
  int64_t blocked_until_ns_ = 0;
  Part blocked_by_ = kOther;
  int64_t meeting_wait_ns_ = 0;
  std::array<int64_t, kNumParts> parts_{};
};

/// All stages of a step: 1F1B with messages, then the tail with its two meetings.
class StepReplay {
 public:
  StepReplay(const spec::TrialSpec& spec, const Calibration& calibration)
      : pp_(static_cast<int>(spec.knobs.pipeline_model_parallel_size)),
        num_micro_batches_(spec::num_micro_batches(spec::layout_of(spec.knobs), spec.knobs,
                                                   spec.training.global_batch_size)),
        clocks_(static_cast<size_t>(pp_)),
        down_(static_cast<size_t>(pp_) + 1),
        up_(static_cast<size_t>(pp_) + 1) {
    for (int stage = 0; stage < pp_; ++stage) {
      ops_.push_back(stage_ops(spec, calibration, stage));
      schedules_.push_back(spec::one_f_one_b(pp_, stage, num_micro_batches_));
    }
  }

  CostEstimate run() {
    for (size_t s = 0; s < clocks_.size(); ++s) clocks_[s].run(ops_[s].begin, 0, nullptr, nullptr);
    run_schedule();
    run_tail();
    int64_t step_ns = 0;
    for (const StageClock& clock : clocks_) step_ns = std::max(step_ns, clock.latest_ns());
    CostEstimate estimate;
    estimate.step_ns = step_ns;
    std::array<int64_t, kNumParts> sums{};
    for (StageClock& clock : clocks_) {
      const auto parts = clock.finish(step_ns, pp_ > 1);
      for (size_t i = 0; i < kNumParts; ++i) sums[i] += parts[i];
    }
    int64_t rest = step_ns;
    for (size_t i = 0; i < kNumParts; ++i) {
      const int64_t mean = sums[i] / pp_;
      rest -= mean;
      if (mean > 0) estimate.parts_ns[kPartNames[i]] = mean;
    }
    estimate.parts_ns[kPartNames[kCompute]] += rest;  // rounding
    return estimate;
  }

 private:
  /// down_[s]: activations on their way into stage s; up_[s]: gradients on their way into stage s.
  void run_schedule() {
    std::vector<size_t> next(clocks_.size(), 0);
    bool has_moved = true;
    while (has_moved) {
      has_moved = false;
      for (size_t s = 0; s < clocks_.size(); ++s) {
        while (next[s] < schedules_[s].size() && run_item(s, schedules_[s][next[s]])) {
          ++next[s];
          has_moved = true;
        }
      }
    }
  }

  bool run_item(size_t s, const spec::ScheduleStep& item) {
    const bool is_first = s == 0;
    const bool is_last = s + 1 == clocks_.size();
    if (item.is_forward) {
      if (!is_first && down_[s].empty()) return false;
      clocks_[s].run(ops_[s].forward, 0, &down_[s], &down_[s + 1]);
      return true;
    }
    if (!is_last && up_[s].empty()) return false;
    const bool is_end = item.micro_batch == num_micro_batches_ - 1;
    clocks_[s].run(is_end ? ops_[s].last_backward : ops_[s].backward, 0, &up_[s],
                   is_first ? nullptr : &up_[s - 1]);
    return true;
  }

  void run_tail() {
    std::vector<size_t> next(clocks_.size(), 0);
    while (true) {
      std::vector<int64_t> arrived(clocks_.size());
      int64_t latest = 0;
      for (size_t s = 0; s < clocks_.size(); ++s) {
        next[s] = clocks_[s].run(ops_[s].tail, next[s], nullptr, nullptr);
        if (next[s] >= ops_[s].tail.size()) return;
        arrived[s] = clocks_[s].arrive(ops_[s].tail[next[s]]);
        latest = std::max(latest, arrived[s]);
      }
      for (size_t s = 0; s < clocks_.size(); ++s) {
        clocks_[s].meet(ops_[s].tail[next[s]], arrived[s], latest);
        ++next[s];
      }
    }
  }

  int pp_;
  int64_t num_micro_batches_;
  std::vector<StageClock> clocks_;
  std::vector<StageOps> ops_;
  std::vector<std::vector<spec::ScheduleStep>> schedules_;
  std::vector<std::deque<int64_t>> down_;
  std::vector<std::deque<int64_t>> up_;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

}  // namespace

CostEstimate replay_step(const spec::TrialSpec& spec, const Calibration& calibration) {
  CostEstimate estimate = StepReplay(spec, calibration).run();
  estimate.grade = calibration.is_empty() ? Grade::analytic : Grade::calibrated;
  return estimate;
}

void CostModel::add(const spec::TrialSpec& spec, const TrialOutcome& outcome) {
  if (outcome.status != spec::TrialStatus::ok || outcome.step_ns <= 0) return;
  calibration_.add(spec.hardware, outcome.op_times);
  trials_.push_back({spec, outcome.step_ns, 1});
  std::vector<double> ratios;
  for (Trial& trial : trials_) {
    const int64_t replayed = replay_step(trial.spec, calibration_).step_ns;
    trial.ratio =
        replayed > 0 ? static_cast<double>(trial.step_ns) / static_cast<double>(replayed) : 1.0;
    ratios.push_back(trial.ratio);
  }
  median_ratio_ = median(ratios);
  for (double& ratio : ratios) ratio = std::abs(ratio / median_ratio_ - 1);
  error_ratio_ = trials_.size() > 1 ? std::min(1.0, median(ratios)) : 1.0;
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
  CostEstimate estimate = replay_step(spec, calibration_);
  if (trials_.empty()) return estimate;
  const double ratio = correction(spec.knobs);
  const auto scaled = [&](int64_t ns) {
    return static_cast<int64_t>(std::llround(static_cast<double>(ns) * ratio));
  };
  int64_t rest = estimate.step_ns = scaled(estimate.step_ns);
  for (auto& [name, ns] : estimate.parts_ns) rest -= ns = scaled(ns);
  estimate.parts_ns[kPartNames[kCompute]] += rest;
  estimate.grade = Grade::calibrated;
  return estimate;
}

}  // namespace moetune::tuner
