#include "sweeps/adapters/engine_sweep.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "sweeps/adapters/engine_space.h"
#include "sweeps/adapters/engine_words.h"
#include "sweeps/session.h"
#include "sweeps/table.h"

namespace moetune::sweeps {

using nlohmann::json;

EngineSweep engine_sweep_of(const spec::SweepSpec& sweep) {
  EngineSweep result;
  result.run = std::make_shared<const UserRun>(user_run_of(sweep));
  auto space = std::make_unique<EngineSpace>(result.run);
  check_total_steps(*result.run, space->can_profile());
  result.illegal_axes = space->illegal_axes();
  result.strategy = std::make_unique<tuner::SettingsSearch>(result.run->sweep, std::move(space));
  result.row =
      engine_sweep_row(result.run->sweep, result.run->config_text, result.run->model.get());
  return result;
}

NextCommand next_command(const UserRun& run, const tuner::TrialRequest& request,
                         const std::string& folder) {
  const std::string out = engine_trial_folder(folder, request);
  std::error_code error;
  std::filesystem::create_directories(out, error);
  const EngineCommand command = engine_command(run, request, out);
  if (!command.config_path.empty()) {
    std::ofstream file(command.config_path, std::ios::binary | std::ios::trunc);
    file << command.config_text << std::flush;
    if (!file) throw base::Error(fmt::format("{}: cannot be written", command.config_path));
  }
  return {request.title,
          std::string(name_of(request.phase)),
          request.why,
          command.shell_text(),
          run.engine().folder,
          request.prediction.step_ns,
          request.prediction.peak_bytes,
          request.is_profiled};
}

std::string to_text(const NextCommand& next) {
  std::string text = fmt::format("next: {} ({})\n", one_line(next.title), next.phase);
  if (!next.why.empty()) text += fmt::format("why: {}\n", one_line(next.why));
  if (next.predicted_step_ns > 0) {
    text += fmt::format("predicted: {} per step, {}\n", base::format_ns(next.predicted_step_ns),
                        base::format_bytes(next.predicted_peak_bytes));
  }
  return text + fmt::format("command, in {}:\n  {}\n", next.working_folder, next.command);
}

json to_json(const NextCommand& next) {
  const auto or_none = [](int64_t value) { return value > 0 ? json(value) : json(); };
  return {{"title", next.title},
          {"phase", next.phase},
          {"why", next.why},
          {"command", next.command},
          {"folder", next.working_folder},
          {"predicted_step_ns", or_none(next.predicted_step_ns)},
          {"predicted_peak_bytes", or_none(next.predicted_peak_bytes)}};
}

}  // namespace moetune::sweeps
