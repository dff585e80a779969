#include "profiler/analysis/step_causes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "profiler/analysis/beside_collectives.h"
#include "profiler/analysis/stats.h"

namespace moetune::profiler {
namespace {

using Ops = std::vector<ReplayOp>;

/// A gap on the host that is so much longer than usual is a stall of its own.
constexpr int64_t kStallGaps = 20;

void scale(int64_t& ns, double factor) {
  ns = static_cast<int64_t>(static_cast<double>(ns) * factor);
}

}  // namespace

StepCauses::StepCauses(const ReplayedRun& run, const StepFacts& facts)
    : StepCauses(run, facts, AlikeWork(run)) {}

StepCauses::StepCauses(const ReplayedRun& run, const StepFacts& facts, const AlikeWork& alike)
    : run_(run),
      traits_(run),
      transfers_(run, traits_),
      stages_(run, traits_),
      ranks_(compare_ranks(run, alike, traits_)),
      free_(without_collectives(run, alike, traits_, facts)),
      stall_ns_(facts.stall_ns),
      is_short_(profiler::is_memory_short(facts.memory, facts.short_ratio)) {
  find_usual_gap();
  find_doubtful_stalls();
  find_present();
}

void StepCauses::drop(SubCause cause, Ops& ops, std::optional<uint32_t> trace) const {
  if (!has(cause)) return;
  for (size_t i = 0; i < ops.size(); ++i) drop(cause, i, ops[i], trace);
}

bool StepCauses::has_part(SubCause cause, size_t place, const ReplayOp& op, uint32_t trace) const {
  // Of communication itself all members have part; what delays its launch is one rank's alone.
  return op.trace == trace ||
         (row_of(cause).label == Wall::communication && transfers_.is_member(place, trace));
}

bool StepCauses::is_stall(const ReplayOp& op) const {
  return op.gap_ns > std::max(stall_ns_, kStallGaps * usual_gap_ns_);
}

void StepCauses::find_present() {
  const Ops& ops = run_.ops();
  for (size_t id = 0; id < has_.size(); ++id) {
    const auto cause = static_cast<SubCause>(id);
    if (!may_be_present(cause)) continue;
    for (size_t i = 0; i < ops.size() && !has_[id]; ++i) {
      ReplayOp op = ops[i];
      drop_one(cause, i, op);
      has_[id] = !(op == ops[i]);
    }
  }
}

/// False only where drop_one() changes no operation, whatever it looks like.
bool StepCauses::may_be_present(SubCause cause) const {
  using enum WorkTraits::Trait;
  const auto has = [&](unsigned traits) { return traits_.any_has(traits); };
  switch (cause) {
    case SubCause::transfer:
      return has(kCommunication);
    case SubCause::one_link:
      return has(kCommunication) && !transfers_.usual().empty();
    case SubCause::contention:
      return !free_.empty();
    case SubCause::sync:
      return has(kSync | kValue);
    case SubCause::allocator:
      return has(kAllocator);
    case SubCause::bubble:
      return has(kMessage);
    case SubCause::uneven_stage:
      return !stages_.are_even();
    case SubCause::rank:
      return !ranks_.fastest.empty();
    case SubCause::experts:
      return !ranks_.balanced.empty();
    case SubCause::recompute:
      return is_short_ && has(kRecompute);
    case SubCause::offload:
      return has(kOffload);
    case SubCause::launch:
    case SubCause::loader:
    case SubCause::unexplained:
      return true;
    case SubCause::capped_micro_batch:
    case SubCause::occupancy:
    case SubCause::bandwidth:
    case SubCause::flops:
    case SubCause::count:
      break;
  }
  return false;
}

void StepCauses::drop_one(SubCause cause, size_t place, ReplayOp& op) const {
  using enum WorkTraits::Trait;
  const auto is = [&](WorkTraits::Trait trait) { return traits_.has(place, trait); };
  switch (cause) {
    case SubCause::transfer:
      if (is(kCommunication)) op.duration_ns = 0;
      return;
    case SubCause::one_link:
      if (is(kCommunication)) transfers_.usual().shorten(place, op.duration_ns);
      return;
    case SubCause::contention:
      if (!is(kCommunication)) free_.shorten(place, op.duration_ns);
      return;
    case SubCause::launch:
      op.launch_ns = op.queue_lag_ns = 0;
      if (!is_stall(op)) op.gap_ns = 0;
      if (is(kOtherHostWork)) op.duration_ns = 0;
      return;
    case SubCause::sync:
      if (is(kSync) || is(kValue)) op.duration_ns = 0;
      if (is(kSync)) op.is_waiting = false;
      return;
    case SubCause::allocator:
      if (is(kAllocator)) op.duration_ns = 0;
      return;
    case SubCause::loader:
      if (is(kLoader) || is(kInput)) op.duration_ns = 0;
      if (is(kInput) && is(kSync)) op.is_waiting = false;
      if (is_stall(op)) op.gap_ns = usual_gap_ns_;
      return;
    case SubCause::bubble:
      if (is(kMessage)) op.is_waiting = false;
      return;
    case SubCause::uneven_stage:
      if (is(kKernel)) scale(op.duration_ns, stages_.even_share(op.trace));
      return;
    case SubCause::rank:
      ranks_.fastest.shorten(place, op.duration_ns);
      return;
    case SubCause::experts:
      ranks_.balanced.shorten(place, op.duration_ns);
      return;
    case SubCause::recompute:
      if (!is(kRecompute)) return;
      op.duration_ns = op.launch_ns = op.shared_ns = 0;
      if (!is_stall(op)) op.gap_ns = 0;
      return;
    case SubCause::offload:
      if (!is(kOffload)) return;
      op.duration_ns = op.launch_ns = op.shared_ns = 0;
      if (!is_stall(op)) op.gap_ns = 0;
      if (is(kSync)) op.is_waiting = false;
      return;
    case SubCause::unexplained:
      op.slack_ns = 0;
      return;
    case SubCause::capped_micro_batch:
    case SubCause::occupancy:
    case SubCause::bandwidth:
    case SubCause::flops:
    case SubCause::count:
      return;
  }
}

void StepCauses::find_usual_gap() {
  std::vector<double> gaps;
  gaps.reserve(run_.ops().size());
  for (const ReplayOp& op : run_.ops()) gaps.push_back(static_cast<double>(op.gap_ns));
  if (!gaps.empty()) usual_gap_ns_ = static_cast<int64_t>(median(std::move(gaps)));
}

void StepCauses::find_doubtful_stalls() {
  const Ops& ops = run_.ops();
  for (const auto& [first, end] : run_.ranks()) {
    std::vector<int64_t> ends_ns;  // of device work
    for (size_t i = first; i < end; ++i) {
      if (!is_stall(ops[i])) continue;
      if (ends_ns.empty()) {
        for (size_t k = first; k < end; ++k) {
          if (!ops[k].is_on_host) ends_ns.push_back(run_.record_of(ops[k]).end_ns);
        }
        std::ranges::sort(ends_ns);
      }
      const int64_t over_ns = run_.record_of(ops[i]).launch_start_ns;
      const auto later = std::ranges::upper_bound(ends_ns, over_ns);
      const bool has_end = later != ends_ns.begin() &&
                           *std::prev(later) >= over_ns - run_.options().start_latency_ns;
      if (!has_end) continue;
      is_doubtful_stall_.resize(ops.size());
      is_doubtful_stall_[i] = true;
    }
  }
}

}  // namespace moetune::profiler
