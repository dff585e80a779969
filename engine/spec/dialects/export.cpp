// A run to a text.
#include <fmt/format.h>

#include <algorithm>

#include "engine/spec/dialects/model_sizes.h"
#include "engine/spec/dialects/texts.h"

namespace moetune::spec::dialects {

std::string export_run(const RunConfig& given, Dialect dialect) {
  RunConfig run = given;
  const int32_t connections = run.knobs.cuda_device_max_connections;
  if (connections != PlanKnobs{}.cuda_device_max_connections) {
    run.environment[std::string(kConnections)] = fmt::format("{}", connections);
  }
  Writing out(dialect, run);
  out.traits = traits_of(run.model, out.notes);
  if (dialect == Dialect::torchtitan) {
    write_parts_of_titan(out);
  } else {
    write_parts_of_megatron(out);
  }
  const std::vector<Setting> settings = write_rows(out);
  std::vector<UnknownSetting> unknown;
  if (run.dialect == dialect) {
    for (const UnknownSetting& setting : run.unknown) {
      const bool is_said =
          std::ranges::find(settings, setting.key, &Setting::key) != settings.end();
      if (!is_said) unknown.push_back(setting);
    }
  } else if (!run.unknown.empty()) {
    out.notes.push_back(fmt::format("{} settings of {} are not translated, such as {}",
                                    run.unknown.size(), name_of(run.dialect),
                                    run.unknown.front().key));
  }
  return write_text(out, settings, unknown);
}

}  // namespace moetune::spec::dialects
