#include "sweeps/runs/stated_config.h"

#include <fmt/format.h>

#include <string_view>

#include "kernels/base/error.h"
#include "sweeps/diagnosis.h"
#include "sweeps/load.h"

namespace moetune::sweeps {

std::string not_understood(const std::string& source, const std::string& why) {
  std::string_view said = why;
  const std::string prefix = source + ": ";
  if (said.starts_with(prefix)) said.remove_prefix(prefix.size());
  return fmt::format("{} is not understood: {}", source, said);
}

void add_notes_of(const spec::dialects::RunConfig& config, const std::string& source,
                  std::vector<std::string>& notes) {
  for (const std::string& note : config.notes) {
    notes.push_back(fmt::format("{}: {}", source, note));
  }
}

StatedConfig config_of_files(const RunFolder& files, int64_t world_size,
                             std::vector<std::string>& notes) {
  StatedConfig stated;
  std::vector<std::string> left_out;
  const auto read = [&](const std::string& path) {
    try {
      const std::string text = read_spec_file(path);
      const auto dialect = spec::dialects::detect_dialect(text);
      if (!dialect) return;
      spec::dialects::ImportOptions how;
      how.source = path;
      spec::dialects::RunConfig config = spec::dialects::import_run(text, *dialect, how);
      if (config.world_size == 0 && world_size > 0) {
        how.world_size = world_size;
        config = spec::dialects::import_run(text, *dialect, how);
      }
      if (stated.config) return;
      add_notes_of(config, path, notes);
      stated.config = std::move(config);
    } catch (const base::UsageError& error) {
      left_out.push_back(not_understood(path, error.what()));
    }
  };
  for (const std::string& path : files.configs) {
    if (!stated.config) read(path);
  }
  for (const std::string& path : files.unread_configs) read(path);
  stated.has_unread = !left_out.empty();
  add_left_out(left_out, notes);
  return stated;
}

}  // namespace moetune::sweeps
