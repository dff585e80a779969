// Somebody else's training engine, as a sweep file describes it: how it is started, whose words its
// settings have, where it leaves its log and its traces. Plain data; what is done with it stands in
// sweeps/adapters.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "engine/spec/fields.h"
#include "engine/spec/names.h"

namespace moetune::spec {

/// Whose words the settings have: a dialect's, or only those that the sweep file itself says.
enum class EngineDialect : uint8_t { megatron_lm, megatron_bridge, torchtitan, primus, command };

struct EngineDialectRow {
  EngineDialect value;
  std::string_view name;
  std::optional<dialects::Dialect> dialect;  ///< none: no table knows its words
};
template <>
struct NameTable<EngineDialect> {
  static constexpr std::array kRows = {
      EngineDialectRow{EngineDialect::megatron_lm, name_of(dialects::Dialect::megatron_lm),
                       dialects::Dialect::megatron_lm},
      EngineDialectRow{EngineDialect::megatron_bridge, name_of(dialects::Dialect::megatron_bridge),
                       dialects::Dialect::megatron_bridge},
      EngineDialectRow{EngineDialect::torchtitan, name_of(dialects::Dialect::torchtitan),
                       dialects::Dialect::torchtitan},
      EngineDialectRow{EngineDialect::primus, name_of(dialects::Dialect::primus),
                       dialects::Dialect::primus},
      EngineDialectRow{EngineDialect::command, "command", std::nullopt}};
};
std::optional<dialects::Dialect> dialect_of(EngineDialect engine);

struct EngineSpec {
  EngineDialect dialect = EngineDialect::command;
  std::string run;      ///< a command for /bin/sh with placeholders; empty: our own engine
  std::string config;   ///< the user's settings, a file or a text; empty: those in `run`
  std::string log;      ///< files with * and placeholders; empty: what `run` prints
  std::string trace;    ///< the same, or folders; empty: the trial's own folder
  std::string profile;  ///< words that make the engine write traces; empty: the dialect's own
  std::string stop;     ///< a command that ends what `run` has started elsewhere; may be empty
  int64_t gpus = 0;     ///< ranks; 0: as the settings or the hardware say
  double loss_band_ratio = 0.05;  ///< of the baseline's loss, how far one may be off
  std::string folder;             ///< of the sweep file: where it runs

  [[nodiscard]] bool is_set() const { return !run.empty(); }
};

std::span<const Field<EngineSpec>> engine_fields();

/// A setting by its name in the engine's own words, not by that of a knob: a flag ("--lr"), a path
/// ("optimizer.lr"), a variable of the environment ("NCCL_ALGO").
enum class RawForm : uint8_t { none, flag, path, variable, key };
RawForm raw_form_of(std::string_view name, EngineDialect dialect);

/// The values of the space, by knob or raw name, each as text in the form that get_plan_knob gives.
/// `space` is the object of that key in a sweep file. Throws base::UsageError.
std::map<std::string, std::vector<std::string>> read_engine_space(JsonReader space,
                                                                  const nlohmann::json& values,
                                                                  EngineDialect dialect);

}  // namespace moetune::spec
