#include "sweeps/adapters/trial_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/spec/dialects/concepts.h"

namespace moetune::sweeps {
namespace {

namespace dialects = spec::dialects;
using dialects::Dialect;
using dialects::UnknownSetting;

enum class When : uint8_t { always, plain, profiled };

/// {steps}, {first}, {last}, {ranks}, {list} and {out} in a value are replaced.
struct TrialSettingRow {
  Dialect dialect;
  When when;
  std::string_view key;
  std::string_view value;
};

// To leave at a step, where the framework can, keeps the schedule of the learning rate and needs no
// evaluation at the end.
constexpr std::array kTrialSettings = {
    TrialSettingRow{Dialect::megatron_lm, When::always, "--exit-interval", "{steps}"},
    TrialSettingRow{Dialect::megatron_lm, When::always, "--log-interval", "1"},
    TrialSettingRow{Dialect::megatron_lm, When::profiled, "--profile", "true"},
    TrialSettingRow{Dialect::megatron_lm, When::profiled, "--use-pytorch-profiler", "true"},
    TrialSettingRow{Dialect::megatron_lm, When::profiled, "--profile-step-start", "{first}"},
    TrialSettingRow{Dialect::megatron_lm, When::profiled, "--profile-step-end", "{last}"},
    TrialSettingRow{Dialect::megatron_lm, When::profiled, "--profile-ranks", "{ranks}"},
    TrialSettingRow{Dialect::megatron_lm, When::profiled, "--tensorboard-dir", "{out}/tensorboard"},
    TrialSettingRow{Dialect::megatron_bridge, When::always, "train.exit_interval", "{steps}"},
    TrialSettingRow{Dialect::megatron_bridge, When::always, "logger.log_interval", "1"},
    TrialSettingRow{Dialect::megatron_bridge, When::profiled, "profiling.use_pytorch_profiler",
                    "true"},
    TrialSettingRow{Dialect::megatron_bridge, When::profiled, "profiling.profile_step_start",
                    "{first}"},
    TrialSettingRow{Dialect::megatron_bridge, When::profiled, "profiling.profile_step_end",
                    "{last}"},
    TrialSettingRow{Dialect::megatron_bridge, When::profiled, "profiling.profile_ranks",
                    "[{list}]"},
    TrialSettingRow{Dialect::megatron_bridge, When::profiled, "logger.tensorboard_dir",
                    "{out}/tensorboard"},
    TrialSettingRow{Dialect::torchtitan, When::always, "training.steps", "{steps}"},
    TrialSettingRow{Dialect::torchtitan, When::always, "metrics.log_freq", "1"},
    TrialSettingRow{Dialect::torchtitan, When::always, "job.dump_folder", "{out}"},
    TrialSettingRow{Dialect::torchtitan, When::always, "job.print_config", "true"},
    TrialSettingRow{Dialect::torchtitan, When::plain, "profiling.enable_profiling", "false"},
    TrialSettingRow{Dialect::torchtitan, When::profiled, "profiling.enable_profiling", "true"},
    TrialSettingRow{Dialect::torchtitan, When::profiled, "profiling.profile_freq", "{last}"},
    TrialSettingRow{Dialect::primus, When::always, "exit_interval", "{steps}"},
    TrialSettingRow{Dialect::primus, When::always, "log_interval", "1"},
    TrialSettingRow{Dialect::primus, When::profiled, "profile", "true"},
    TrialSettingRow{Dialect::primus, When::profiled, "use_pytorch_profiler", "true"},
    TrialSettingRow{Dialect::primus, When::profiled, "profile_step_start", "{first}"},
    TrialSettingRow{Dialect::primus, When::profiled, "profile_step_end", "{last}"},
    TrialSettingRow{Dialect::primus, When::profiled, "profile_ranks", "[{list}]"},
};

std::vector<UnknownSetting> made(Dialect dialect, const TrialLength& length, bool only_profile) {
  const bool is_profiled = length.first_traced > 0;
  const std::vector<int64_t> ranks = profiled_ranks(length.world_size);
  std::vector<UnknownSetting> settings;
  for (const TrialSettingRow& row : kTrialSettings) {
    if (row.dialect != dialect || (only_profile && row.when != When::profiled)) continue;
    if (row.when == (is_profiled ? When::plain : When::profiled)) continue;
    settings.push_back(
        {std::string(row.key),
         fmt::format(fmt::runtime(row.value), fmt::arg("steps", length.num_steps),
                     fmt::arg("first", length.first_traced),
                     fmt::arg("last", length.first_traced + 1),
                     fmt::arg("ranks", fmt::join(ranks, " ")),
                     fmt::arg("list", fmt::join(ranks, ",")), fmt::arg("out", length.out))});
  }
  return settings;
}

}  // namespace

std::vector<int64_t> profiled_ranks(int64_t world_size) {
  constexpr int64_t kMost = 64;
  constexpr int64_t kOfFirstNode = 8;
  constexpr int64_t kSpread = kMost - kOfFirstNode;
  std::vector<int64_t> ranks;
  const bool are_all = world_size <= kMost;
  const int64_t first = are_all ? std::max<int64_t>(1, world_size) : kOfFirstNode;
  for (int64_t rank = 0; rank < first; ++rank) ranks.push_back(rank);
  for (int64_t i = 0; !are_all && i < kSpread; ++i) {
    ranks.push_back(kOfFirstNode + i * (world_size - kOfFirstNode) / kSpread);
  }
  return ranks;
}

std::string_view trial_steps_setting(Dialect dialect) {
  for (const TrialSettingRow& row : kTrialSettings) {
    if (row.dialect == dialect && row.value == "{steps}") return row.key;
  }
  return {};
}

std::string total_steps_setting(Dialect dialect) {
  return dialects::key_of(dialects::row_of("train_iters"), dialect);
}

std::vector<UnknownSetting> trial_settings(Dialect dialect, const TrialLength& length) {
  return made(dialect, length, false);
}

std::vector<UnknownSetting> profile_settings(Dialect dialect, const TrialLength& length) {
  return made(dialect, length, true);
}

}  // namespace moetune::sweeps
