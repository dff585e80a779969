// One change at a time of what the nearest misses have, and a search on more devices.
#include "sweeps/planning/ways_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
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

/// A knob's value, as --fix takes it.
struct FixedValue {
  std::string_view knob;
  std::string value;
};

/// A change of a run that frees memory: other values of knobs, or half the sequence.
struct LeanChange {
  std::string what;  ///< for people
  std::vector<FixedValue> values;
  bool halves_sequence = false;
};

constexpr std::string_view kRatio = "optimizer_offload_ratio";
constexpr std::string_view kGradients = "main_grads";

/// "--fix main_grads=bf16 --fix ...": all that the change makes of a run of the question.
std::string options_of(const LeanChange& change, const PlanQuestion& question) {
  if (change.halves_sequence) {
    return fmt::format("--seq {} --gbs {}", question.seq_length / 2, question.global_batch_size);
  }
  std::string text;
  for (const FixedValue& one : change.values) {
    text += fmt::format("{}--fix {}={}", text.empty() ? "" : " ", one.knob, one.value);
  }
  return text;
}

/// The optimizer that takes narrow gradients, and is needed for all else.
std::vector<FixedValue> with_aware(std::vector<FixedValue> values, const PlanQuestion& question) {
  if (question.is_of_megatron) values.push_back({"precision_aware_optimizer", "true"});
  return values;
}

std::vector<LeanChange> lean_changes(const PlanQuestion& question) {
  const FixedValue narrow = {kGradients, "bf16"};
  std::vector<LeanChange> changes = {
      {"moments of 16 bits", with_aware({{"exp_avg", "bf16"}, {"exp_avg_sq", "bf16"}}, question)},
      {"gradients of 16 bits", with_aware({narrow}, question)}};
  constexpr int kTenths = 10;
  for (int tenth = 1; tenth <= kTenths; ++tenth) {
    const FixedValue ratio = {kRatio,
                              tenth == kTenths ? std::string("1") : fmt::format("0.{}", tenth)};
    const std::string share =
        tenth == kTenths ? std::string() : fmt::format("{} % of ", 10 * tenth);
    changes.push_back({fmt::format("{}the optimizer's state in the host's memory", share),
                       with_aware({ratio}, question)});
    changes.push_back(
        {fmt::format("gradients of 16 bits, and {}the optimizer's state in the host's memory",
                     share),
         with_aware({narrow, ratio}, question)});
  }
  changes.push_back({"half the sequence", {}, true});
  return changes;
}

const spec::PlanKnobRow& knob_row_of(const FixedValue& one) {
  return *spec::find_plan_knob(one.knob);
}

/// Whether the question has one of the values already, but for the optimizer that others need, or
/// sends more of the state away.
bool is_made(const LeanChange& change, const PlanQuestion& question) {
  return std::ranges::any_of(change.values, [&](const FixedValue& one) {
    if (one.knob == "precision_aware_optimizer") return false;
    spec::PlanKnobs knobs = question.base;
    set_plan_knob(knobs, knob_row_of(one), one.value);
    if (one.knob == kRatio) {
      return knobs.optimizer_offload_ratio <= question.base.optimizer_offload_ratio;
    }
    return have_same(knob_row_of(one), knobs, question.base);
  });
}

/// With one change, what is missing of the nearest misses then: the least of all. Infinite where
/// none of them can have the change.
WayOut way_by(const LeanChange& change, const PlanQuestion& question,
              const planner::PlanAnswer& answer) {
  const double capacity = capacity_of(question);
  double least = std::numeric_limits<double>::infinity();
  bool is_sure = false;
  for (const planner::PlannedConfig& miss : answer.nearest) {
    PlanRun run = run_with(question, miss);
    for (const FixedValue& one : change.values) {
      set_plan_knob(run.knobs, knob_row_of(one), one.value);
    }
    if (change.halves_sequence) run.seq_length = std::max<int64_t>(1, run.seq_length / 2);
    // What is fixed stays.
    if (question.keeps != nullptr && !question.keeps(run.knobs)) continue;
    if (planner::broken_rule(run) != nullptr) continue;
    const bool is_sayable = std::ranges::all_of(change.values, [&](const FixedValue& one) {
      return question.can_say == nullptr || question.can_say(run.knobs, one.knob);
    });
    if (!is_sayable) continue;
    const double peak = planner::predict_memory(run).peak_bytes();
    least = std::min(least, missing_bytes(question, peak));
    is_sure = is_sure || verdict_of(run, peak, capacity) == Verdict::fits;
  }
  return {fmt::format("{} ({})", change.what, options_of(change, question)), least,
          least <= 0 && !is_sure};
}

/// Whether it is a part of the state that goes to the host's memory.
bool is_partial(const LeanChange& change) {
  return std::ranges::any_of(
      change.values, [](const FixedValue& one) { return one.knob == kRatio && one.value != "1"; });
}

/// What is told, and of how many changes it is made.
struct ToldWay {
  WayOut way;
  int num_changes = 1;
};

void add_changes(const PlanQuestion& question, const planner::PlanAnswer& answer,
                 std::vector<WayOut>& ways) {
  // A change that frees next to nothing of what is missing is no way out.
  constexpr double kLeastShare = 0.01;
  const double before = missing_bytes(question, answer.nearest.front().peak_bytes);
  // Of the parts of the state the least that fits is told, else all of it: alone, and beside narrow
  // gradients. Two changes where one of them does are told of nothing.
  std::array<bool, 2> has_ratio{};
  bool fits_by_gradients = false;
  bool fits_by_state = false;
  std::vector<ToldWay> told;
  for (const LeanChange& change : lean_changes(question)) {
    if (is_made(change, question)) continue;
    const auto has = [&](std::string_view knob) {
      return std::ranges::find(change.values, knob, &FixedValue::knob) != change.values.end();
    };
    const bool is_of_state = has(kRatio);
    bool& is_told = has_ratio[has(kGradients) ? 1 : 0];
    if (is_of_state && is_told) continue;
    const bool is_mixture = is_of_state && has(kGradients);
    if (is_mixture && (fits_by_gradients || fits_by_state)) continue;
    WayOut way = way_by(change, question, answer);
    if (is_partial(change) && way.missing_bytes > 0) continue;
    if (way.missing_bytes > (1 - kLeastShare) * before) continue;
    if (is_of_state) is_told = true;
    const bool fits = way.missing_bytes <= 0;
    if (fits && is_of_state && !is_mixture) fits_by_state = true;
    if (fits && !is_of_state && has(kGradients)) fits_by_gradients = true;
    told.push_back({std::move(way), is_mixture ? 2 : 1});
  }
  // Of those that fit the simplest leads.
  std::ranges::stable_sort(told, {}, [](const ToldWay& one) {
    return std::pair(std::max(0.0, one.way.missing_bytes), one.num_changes);
  });
  for (ToldWay& one : told) ways.push_back(std::move(one.way));
}

int64_t odd_part(int64_t count) { return count >> std::countr_zero(static_cast<uint64_t>(count)); }

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
      // The usual batch has the odd factor of the devices.
      const std::string batch = odd_part(devices) == odd_part(question.hardware->num_devices())
                                    ? std::string()
                                    : fmt::format(" --gbs {}", question.global_batch_size);
      const double capacity = capacity_of(more);
      const bool is_sure = std::ranges::any_of(found.best, [&](const planner::PlannedConfig& plan) {
        return verdict_of(run_with(more, plan), plan.peak_bytes, capacity) == Verdict::fits;
      });
      return WayOut{fmt::format("{} devices (--gpus {}{})", devices, devices, batch),
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
