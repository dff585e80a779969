// Two configurations of a trial: what differs, what lies between, and what it costs to run.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/spec/trial_spec.h"
#include "profiler/store/store.h"
#include "sweeps/bisect/vocabulary.h"
#include "tuner/bisect/config_search.h"

namespace moetune::sweeps {

/// One place where two effective configurations (all defaults filled in) differ.
struct SpecChange {
  std::string path;  ///< JSON pointer, such as /knobs/recompute
  nlohmann::json before;
  nlohmann::json after;
};

/// In the order of the document. Lists and plain values are whole; objects are looked into.
std::vector<SpecChange> differences(const spec::TrialSpec& good, const spec::TrialSpec& bad);

/// The good configuration with some changes. Throws base::UsageError where that is no legal
/// configuration.
spec::TrialSpec with_changes(const spec::TrialSpec& good, const std::vector<SpecChange>& changes,
                             const tuner::ChangeSet& set);

struct ConfigRunnerOptions {
  std::string metric;
  std::string rank_program;
  std::string folder;     ///< of the running trial
  std::string text_path;  ///< what all trials train on
  std::chrono::milliseconds step_limit{60'000};
  std::string launcher{};  ///< as in RunnerOptions
};

/// Runs one configuration once. Combinations that break a rule are `build_failed`, with the rule.
CommitRun run_config(const spec::TrialSpec& trial, const ConfigRunnerOptions& options);

struct ConfigSetup {
  spec::TrialSpec good;
  std::vector<SpecChange> changes;
  tuner::ConfigHuntOptions options;
  ConfigRunnerOptions runner;
  std::string key_parts;   ///< what all measurements share
  double max_seconds = 0;  ///< of running; 0: no limit
  bool is_fresh = false;   ///< measures again what the store has
  std::function<void(const std::string&)> on_progress;
  std::function<bool()> is_stop_asked;
};

/// `moved`: from the good configuration to that with one culprit alone.
struct ConfigAnswer : AnyHuntAnswer {
  tuner::ConfigHuntResult result;
};

/// Hunts until the end or a stop; each run is kept in the store's hunt before the next one starts,
/// and those that are there are not repeated; old ones are compared at the ends first. A bad
/// configuration that fails where the good one does not is hunted for that.
ConfigAnswer run_config_hunt(const ConfigSetup& setup, store::Store& store, int64_t hunt_id);

nlohmann::json to_json(const ConfigAnswer& answer, const ConfigSetup& setup);
std::string to_text(const ConfigAnswer& answer, const ConfigSetup& setup);

}  // namespace moetune::sweeps
