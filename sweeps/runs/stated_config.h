// The command or configuration of a run, from the files in which it may stand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "sweeps/runs/run_folder.h"

namespace moetune::sweeps {

/// "job.sh is not understood: '--bf16' is 'x', expected ...". `why` may begin with the source.
std::string not_understood(const std::string& source, const std::string& why);

/// What was understood of it only in part, with its source.
void add_notes_of(const spec::dialects::RunConfig& config, const std::string& source,
                  std::vector<std::string>& notes);

struct StatedConfig {
  std::optional<spec::dialects::RunConfig> config;
  bool has_unread = false;  ///< some may have been it, but were not understood
};

/// The first file that can be read as a command or a configuration. Those that look like one and
/// cannot be read are noted. Ranks that a file does not say are `world_size`; 0: not known.
StatedConfig config_of_files(const RunFolder& files, int64_t world_size,
                             std::vector<std::string>& notes);

}  // namespace moetune::sweeps
