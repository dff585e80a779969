// A sweep file as plain data: model, hardware, recipe, the starting point, the space and the
// budget.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/spec/engine_spec.h"
#include "engine/spec/trial_spec.h"

namespace moetune::spec {

/// No search ends with a result in fewer: reference, baseline, one that fits, its validation.
constexpr int64_t kMinTrials = 4;

struct SweepBudget {
  int64_t max_trials = 60;  ///< started ones; at least kMinTrials
  int64_t min_trials = 0;   ///< started even where none is predicted to gain enough
  int64_t max_seconds = 600;
  double trial_timeout_s = 60;  ///< no new step within this: hung
};

struct SweepSpec {
  std::string name;
  std::string strategy = "three_walls";  ///< name of a row of the tuner's strategy table
  /// Everything a trial needs; `knobs` is the starting configuration (the baseline).
  TrialSpec base;
  /// Whose engine trains; not set: our own. Then of `base` only model, hardware (each may be
  /// missing) and steps are used, and the axes are those of read_engine_space.
  EngineSpec engine;
  bool has_model = true;
  bool has_hardware = true;
  /// Axes: knob name -> allowed values as text. Knobs that are absent keep the baseline's value.
  std::map<std::string, std::vector<std::string>> space;
  SweepBudget budget;
  int64_t scale_trials = 6;          ///< layouts measured in the scale phase
  double min_gain_ratio = 0.01;      ///< smaller gains are never kept, however quiet the machine
  int64_t validate_steps = 50;       ///< steps of the final run
  double validate_max_loss = 0;      ///< of the final run's last losses their mean; 0: not checked
  double memory_margin_ratio = 0.0;  ///< predicted peaks above (1 - margin) * capacity are pruned
};

/// Reads a sweep file. `folder` is where relative model, hardware and data paths start from; model
/// and hardware may be paths or objects. Throws base::UsageError with all that is wrong: file,
/// line, key, value and what would be right.
SweepSpec sweep_from_json(const nlohmann::json& json, const Source& source,
                          const std::string& folder);
/// All keys of a sweep file.
std::vector<FieldPage> sweep_pages();
/// The same of a sweep of another engine.
std::vector<FieldPage> engine_sweep_pages();

}  // namespace moetune::spec
