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

/// What a search is asked.
struct PlanQuestion {
  const spec::ModelSpec* model = nullptr;
  const spec::HardwareSpec* hardware = nullptr;  ///< with all devices
  int64_t global_batch_size = 1;
  int64_t seq_length = 1;
  /// Configuration from which the searched knobs are varied; all others stay.
  spec::PlanKnobs base;
  /// Others that are searched as well: what a command has, with and without it.
  std::vector<spec::PlanKnobs> other_bases;
  /// Whether a configuration keeps the values of the fixed knobs. Null: nothing is fixed.
  std::function<bool(const spec::PlanKnobs&)> keeps;
  /// Whether the framework that is planned for has words for a configuration's value of the knob
  /// with this name. Values without words are not searched. Null: it has words for all.
  std::function<bool(const spec::PlanKnobs&, std::string_view)> can_say;
  /// Whether Megatron-Core is planned for: its rules hold, and stages may be written.
  bool is_of_megatron = true;
  bool takes_padded_deepep = false;  ///< as PlanRun::takes_padded_deepep
  /// Whether Transformer Engine's loss is tried: Megatron-Core warns of it, the arguments of
  /// Megatron-LM refuse it.
  bool takes_te_loss = false;
  /// Whether context-parallel ranks may exchange heads instead of what `base` has, if faster.
  bool may_exchange_heads = true;
  double load = 1;          ///< as PlanRun::load
  double memory_ratio = 1;  ///< share of a device's memory that may be used
  int num_best = 10;
  /// Whether to fill PlanAnswer::cells and front, which takes longer.
  bool wants_space = false;
};

struct PlannedConfig {
  spec::PlanKnobs knobs;
  double peak_bytes = 0;  ///< of the worst rank, with graph pools and dispatcher buffers
  double seconds = 0;
  Stages stages{};  ///< as PlanRun::stages; the figures hold for them
};

/// The run of the question, with this configuration.
PlanRun run_with(const PlanQuestion& question, const PlannedConfig& config);

/// Whether two have the same layout, but for virtual stages, and micro-batch size. These often
/// differ by less than predictions can tell: a list of them would say little.
bool is_same_choice(const spec::PlanKnobs& a, const spec::PlanKnobs& b);

/// Summary of all configurations with the same tp, cp, ep and pp.
struct PlanCell {
  int32_t tp = 1;
  int32_t cp = 1;
  int32_t ep = 1;
  int32_t pp = 1;
  int64_t num_legal = 0;
  int64_t num_fit = 0;
  std::optional<PlannedConfig> fastest;  ///< of those that fit
  /// The legal one with the least memory; timed only if nothing fits.
  std::optional<PlannedConfig> leanest;
  /// If nothing is legal: the rule that its simplest layout breaks, or null if PlanQuestion::keeps
  /// leaves nothing.
  const PlanRule* broken = nullptr;
};

struct PlanAnswer {
  /// The fastest that fit: of each layout and micro-batch size the one with the fastest virtual
  /// stages.
  std::vector<PlannedConfig> best;
  std::vector<PlannedConfig> nearest;  ///< if nothing fits: those that need the least memory
  int64_t num_points = 0;              ///< of the space
  int64_t num_legal = 0;
  int64_t num_fit = 0;
  int64_t num_timed = 0;  ///< step predictions that were made, lower bounds included
  // Filled if PlanQuestion::wants_space:
  std::vector<PlanCell> cells;  ///< one for each tp, cp, pp and ep that divide the devices
  /// Pareto front of memory and step time, by memory, up to twice a device's memory. At most one
  /// point per 1/128 of a device's memory.
  std::vector<PlannedConfig> front;
};

/// Tries all layouts of the devices with all choices of recomputation, loss, sharding, optimizer,
/// dispatcher, overlap and graphs. Stages are chosen for each layout without recomputation
/// (choose_stages), and again for the best configurations with their own choices. Predicts memory
/// for every legal point. Without `wants_space`, skips timing for layouts whose lower bound
/// (nothing recomputed or offloaded, all overlapped, no host time) is slower than the worst of the
/// best so far. Uses two threads; both may call `keeps` and `can_say`.
PlanAnswer search_plans(const PlanQuestion& question, const Rates& rates);

}  // namespace moetune::tuner::planner
