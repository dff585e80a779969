// The best configurations of a run on a machine, out of all that are legal.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tuner/planner/memory_profile.h"
#include "tuner/planner/rates.h"
#include "tuner/planner/rules.h"
#include "tuner/planner/step_time.h"

namespace moetune::tuner::planner {

/// What is asked for.
struct PlanQuestion {
  const spec::ModelSpec* model = nullptr;
  const spec::HardwareSpec* hardware = nullptr;  ///< with all devices
  int64_t global_batch_size = 1;
  int64_t seq_length = 1;
  /// What is searched over is varied from this; everything else stays.
  spec::PlanKnobs base;
  /// Of a knob that has been fixed: whether a configuration keeps it. Null: all do.
  std::function<bool(const spec::PlanKnobs&)> keeps;
  /// Whether the framework that is planned for has words for what a configuration says of a knob,
  /// by the knob's name: what it has none for is not searched. Null: it has words for all.
  std::function<bool(const spec::PlanKnobs&, std::string_view)> can_say;
  /// Whether Megatron-Core is planned for: its rules hold, and stages may be written.
  bool is_of_megatron = true;
  /// Whether context-parallel ranks may exchange heads where that is faster than what `base` does.
  bool may_exchange_heads = true;
  double load = 1;          ///< of the busiest rank's experts
  double memory_ratio = 1;  ///< share of a device's memory that may be used
  int num_best = 10;
  /// Whether PlanAnswer::cells and front are asked for, which takes longer.
  bool wants_space = false;
};

struct PlannedConfig {
  spec::PlanKnobs knobs;
  double peak_bytes = 0;  ///< allocated, on the worst rank
  double seconds = 0;
  Stages stages{};  ///< PlanRun::stages: what figures are of, written or not
};

/// The run that is asked for, so configured.
PlanRun run_with(const PlanQuestion& question, const PlannedConfig& config);

/// What is known of all configurations with the same four large sizes.
struct PlanCell {
  int32_t tp = 1;
  int32_t cp = 1;
  int32_t ep = 1;
  int32_t pp = 1;
  int64_t num_legal = 0;
  int64_t num_fit = 0;
  std::optional<PlannedConfig> fastest;  ///< of those that fit
  /// Of all legal ones that with the least memory; timed only where nothing fits.
  std::optional<PlannedConfig> leanest;
  /// Where nothing is legal: what its simplest layout breaks; null where PlanQuestion::keeps does
  /// not leave anything.
  const PlanRule* broken = nullptr;
};

struct PlanAnswer {
  std::vector<PlannedConfig> best;     ///< the fastest that fit, each with another layout
  std::vector<PlannedConfig> nearest;  ///< where nothing fits: those that miss by least
  int64_t num_points = 0;              ///< of the space
  int64_t num_legal = 0;
  int64_t num_fit = 0;
  int64_t num_timed = 0;  ///< step predictions that were made, lower bounds included
  // Where PlanQuestion::wants_space:
  std::vector<PlanCell> cells;  ///< by tp, cp, ep, pp; one for each four that divide the devices
  /// By memory, each faster than all that need less, also beyond what a device has, up to twice of
  /// it. Of those that differ by less than a hundredth of a device's memory the fastest.
  std::vector<PlannedConfig> front;
};

/// All layouts of the devices, each with recomputation, loss, sharding, dispatcher, overlap and
/// graphs. The stages of a layout are those that suit it with nothing recomputed (choose_stages),
/// of what is among the best those that suit its own choices. Memory is asked of every legal point;
/// a layout whose bound (nothing recomputed, all overlapped, no host) is slower than the worst of
/// the best so far is not timed unless `wants_space`. Runs on two threads, which call `keeps` and
/// `can_say`, too.
PlanAnswer search_plans(const PlanQuestion& question, const Rates& rates);

}  // namespace moetune::tuner::planner
