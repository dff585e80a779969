// The user's own run: what a sweep file's `engine` says, with the settings that its command or
// configuration has, read once. Every trial is a change of it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/spec/dialects/run_config.h"
#include "engine/spec/sweep_spec.h"
#include "tuner/strategies/settings_search.h"

namespace moetune::sweeps {

/// What a raw setting is called that the user's command does not say, or that nobody can read.
inline constexpr const char* kAsItIs = "as it is";

struct UserRun {
  spec::SweepSpec sweep;
  std::optional<spec::dialects::Dialect> dialect;  ///< none: nobody knows its words
  spec::dialects::RunConfig config;                ///< empty without a dialect
  std::string config_text;                         ///< what was read; part of the identity
  /// A script that the command starts says the settings, whatever is put behind it.
  bool is_of_script = false;
  int64_t world_size = 0;                        ///< ranks; 0: not known
  std::shared_ptr<const spec::ModelSpec> model;  ///< null: not known
  std::shared_ptr<const spec::HardwareSpec> hardware;

  [[nodiscard]] const spec::EngineSpec& engine() const { return sweep.engine; }
  /// Whether `name` is an axis of the space.
  [[nodiscard]] bool is_axis(const std::string& name) const { return sweep.space.contains(name); }
};

/// Reads what the sweep file names. Throws base::UsageError.
UserRun user_run_of(const spec::SweepSpec& sweep);

/// All settings of the user's run that a trial may say.
tuner::Settings settings_of(const UserRun& run);
/// The run with other settings, and with what follows from them (replicas, virtual stages).
spec::dialects::RunConfig config_with(const UserRun& run, const tuner::Settings& settings);
/// Sets one that stands in no table; "false" takes it away.
void put_setting(spec::dialects::RunConfig& config, const spec::dialects::UnknownSetting& setting,
                 std::optional<spec::dialects::Dialect> dialect);

}  // namespace moetune::sweeps
