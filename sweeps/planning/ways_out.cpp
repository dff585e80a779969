// One change at a time of what the nearest misses have, and a search on more devices.
#include "sweeps/planning/ways_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "sweeps/planning/machines.h"
#include "tuner/planner/rules.h"

namespace moetune::sweeps {

namespace planner = tuner::planner;
using planner::PlanQuestion;
using planner::PlanRun;

namespace {

/// A change of a run that frees memory.
struct LeanChange {
  std::string what;                     ///< for people, with the options that make it
  std::vector<std::string_view> knobs;  ///< those that it changes
  std::function<void(PlanRun&)> make;
};

std::vector<LeanChange> lean_changes(const PlanQuestion& question) {
  const auto narrow_moments = [](PlanRun& run) {
    run.knobs.exp_avg = run.knobs.exp_avg_sq = spec::StateType::bf16;
    run.knobs.precision_aware_optimizer = true;
  };
  const auto narrow_gradients = [](PlanRun& run) {
    run.knobs.main_grads = spec::StateType::bf16;
    run.knobs.precision_aware_optimizer = true;
  };
  const auto offload = [](PlanRun& run) {
    run.knobs.optimizer_offload_ratio = 1;
    run.knobs.precision_aware_optimizer = true;
  };
  constexpr std::string_view kAware = "precision_aware_optimizer";
  constexpr std::string_view kRatio = "optimizer_offload_ratio";
  return {
      {"moments of 16 bits (--fix exp_avg=bf16 --fix exp_avg_sq=bf16)",
       {"exp_avg", "exp_avg_sq", kAware},
       narrow_moments},
      {"gradients of 16 bits (--fix main_grads=bf16)", {"main_grads", kAware}, narrow_gradients},
      {"the optimizer's state in the host's memory (--fix optimizer_offload_ratio=1)",
       {kRatio, kAware},
       offload},
      {"gradients of 16 bits, and the optimizer's state in the host's memory",
       {"main_grads", kRatio, kAware},
       [=](PlanRun& run) {
         narrow_gradients(run);
         offload(run);
       }},
      {fmt::format("half the sequence (--seq {})", question.seq_length / 2), {}, [](PlanRun& run) {
         run.seq_length = std::max<int64_t>(1, run.seq_length / 2);
       }}};
}

/// With one change, what is missing of the nearest misses then: the least of all. Infinite where
/// none of them can have the change.
WayOut way_by(const LeanChange& change, const PlanQuestion& question,
              const planner::PlanAnswer& answer) {
  const double capacity =
      static_cast<double>(question.hardware->memory_bytes) * question.memory_ratio;
  double least = std::numeric_limits<double>::infinity();
  bool is_sure = false;
  for (const planner::PlannedConfig& miss : answer.nearest) {
    PlanRun run = run_with(question, miss);
    change.make(run);
    if (planner::broken_rule(run) != nullptr) continue;
    const bool is_sayable = std::ranges::all_of(change.knobs, [&](std::string_view knob) {
      return question.can_say == nullptr || question.can_say(run.knobs, knob);
    });
    if (!is_sayable) continue;
    const double peak = planner::predict_memory(run).peak_bytes();
    least = std::min(least, missing_bytes(question, peak));
    is_sure = is_sure || verdict_of(run, peak, capacity) == Verdict::fits;
  }
  return {change.what, least, least <= 0 && !is_sure};
}

void add_changes(const PlanQuestion& question, const planner::PlanAnswer& answer,
                 std::vector<WayOut>& ways) {
  // A change that frees next to nothing of what is missing is no way out.
  constexpr double kLeastShare = 0.01;
  const double before = missing_bytes(question, answer.nearest.front().peak_bytes);
  for (const LeanChange& change : lean_changes(question)) {
    WayOut way = way_by(change, question, answer);
    if (way.missing_bytes <= (1 - kLeastShare) * before) ways.push_back(std::move(way));
  }
  std::ranges::stable_sort(ways, {}, &WayOut::missing_bytes);
}

/// The smallest number of devices on which something fits. That changes the layouts, too, so it
/// takes a search, whose time is bounded.
std::optional<WayOut> more_devices(const PlanQuestion& question, const std::string& machine_name,
                                   const Calibration& calibration) {
  constexpr double kMostSeconds = 3;
  const auto start = std::chrono::steady_clock::now();
  for (const int64_t devices : device_counts(machine_name)) {
    if (devices < 2 * question.hardware->num_devices()) continue;
    const auto machine = machine_of(machine_name, devices);
    PlanQuestion more = question;
    more.hardware = machine.get();
    more.num_best = PlanQuestion{}.num_best;
    more.wants_space = false;
    const planner::PlanAnswer found = planner::search_plans(more, calibration.rates);
    if (found.num_fit > 0) {
      const double capacity = static_cast<double>(machine->memory_bytes) * more.memory_ratio;
      const bool is_sure = std::ranges::any_of(found.best, [&](const planner::PlannedConfig& plan) {
        return verdict_of(run_with(more, plan), plan.peak_bytes, capacity) == Verdict::fits;
      });
      return WayOut{fmt::format("{} devices (--gpus {})", devices, devices),
                    missing_bytes(more, found.best.front().peak_bytes), !is_sure};
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (passed.count() > kMostSeconds) break;
  }
  return std::nullopt;
}

}  // namespace

void find_ways_out(const std::string& machine_name, const Calibration& calibration,
                   PlanResult& result) {
  if (!result.answer.best.empty() || result.answer.nearest.empty()) return;
  add_changes(result.question, result.answer, result.ways_out);
  if (auto more = more_devices(result.question, machine_name, calibration)) {
    result.ways_out.insert(result.ways_out.begin(), std::move(*more));
  }
}

}  // namespace moetune::sweeps
