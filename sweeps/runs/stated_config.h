// The command or configuration of a run, from the files in which it may stand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "sweeps/runs/run_facts.h"
#include "sweeps/runs/run_folder.h"

namespace moetune::sweeps {

/// "job.sh is not understood: '--bf16' is 'x', expected ...". `why` may begin with the source.
std::string not_understood(const std::string& source, const std::string& why);

/// What was understood of it only in part, with its source.
void add_notes_of(const spec::dialects::RunConfig& config, const std::string& source,
                  std::vector<std::string>& notes);

struct StatedConfig {
  std::optional<spec::dialects::RunConfig> config;
  std::string source;       ///< its file
  bool has_unread = false;  ///< some may have been it, but were not understood
  bool has_other = false;   ///< some are of another run than the logs
};

/// The first file that can be read as a command or a configuration and that does not contradict
/// the logs (null: there are none). Those that look like one and cannot be read, or do, are noted.
/// Ranks that a file does not say are `world_size`; 0: not known.
StatedConfig config_of_files(const RunFolder& files, const RunFacts* logged, int64_t world_size,
                             std::vector<std::string>& notes);

}  // namespace moetune::sweeps
