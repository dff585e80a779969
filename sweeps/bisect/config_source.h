// Hunts between two configurations of a trial: finds where they differ, makes those in between, and
// runs them.
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

/// All places, in the order of the document. Objects are compared member by member, lists as a
/// whole.
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

/// Runs one configuration once. One that breaks a rule has the status `build_failed` and the rule
/// as its message.
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

/// Here `moved` is what changes from the good configuration to that with one culprit alone.
struct ConfigAnswer : AnyHuntAnswer {
  tuner::ConfigHuntResult result;
};

/// Hunts until the end or a stop. Each run is stored before the next one starts. Runs that are
/// stored already are not repeated; if they are old, the ends are run again to see whether they
/// still hold. If the bad configuration fails and the good one does not, hunts for the cause of the
/// failure.
ConfigAnswer run_config_hunt(const ConfigSetup& setup, store::Store& store, int64_t hunt_id);

nlohmann::json to_json(const ConfigAnswer& answer, const ConfigSetup& setup);
std::string to_text(const ConfigAnswer& answer, const ConfigSetup& setup);

}  // namespace moetune::sweeps
