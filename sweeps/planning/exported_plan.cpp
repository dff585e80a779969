#include "sweeps/planning/exported_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/spec/dialects/concepts.h"
#include "sweeps/planning/edited_command.h"
#include "sweeps/planning/machines.h"

namespace moetune::sweeps {
namespace {

namespace planner = tuner::planner;

/// HybridEP does not find out by itself which ranks NVLink joins: of `domain_devices` those of a
/// node of the plan. What another layout was told holds no longer.
void tell_hybridep(int64_t domain_devices, int64_t in_node, bool is_used,
                   spec::dialects::RunConfig& config) {
  constexpr int64_t kUsualNode = 8;
  const auto tell = [&](const char* name, int64_t value) {
    if (is_used) {
      config.environment[name] = std::to_string(value);
    } else {
      config.environment.erase(name);
    }
  };
  tell("NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN",
       std::min(int64_t{config.knobs.ep} * config.knobs.etp, in_node));
  tell("NVLINK_DOMAIN_SIZE", domain_devices);
  tell("USE_MNNVL", domain_devices > kUsualNode ? 1 : 0);
}

/// Adds what the run of today says beside the plan's choices. What its old layout alone bears is
/// left out, and named in a comment, which is the result.
std::string take_along(const spec::dialects::RunConfig& theirs, spec::dialects::RunConfig& config) {
  namespace dialects = spec::dialects;
  const bool has_moved = !dialects::have_same_layout(theirs, config);
  std::vector<std::string> left_out;
  for (const dialects::UnknownSetting& setting : theirs.unknown) {
    // What the plan decides was not understood there: it is left out.
    if (dialects::find_row(setting.key, theirs.dialect) != nullptr) continue;
    if (has_moved && dialects::follows_layout(setting, theirs.dialect)) {
      left_out.push_back(setting.key);
    } else {
      config.unknown.push_back(setting);
    }
  }
  return left_out.empty() ? std::string()
                          : fmt::format("# left out, as they follow the old layout: {}\n",
                                        dialects::text_of_keys(left_out));
}

}  // namespace

std::string exported(const PlanExport& how, const PlanResult& result) {
  namespace dialects = spec::dialects;
  const std::optional<dialects::RunConfig>& theirs = how.theirs;
  dialects::RunConfig config;
  config.dialect = how.dialect;
  if (theirs) {
    config.dialect = theirs->dialect;
    config.model_name = theirs->model_name;
    config.environment = theirs->environment;
    config.environment.erase(std::string(dialects::kConnections));
  }
  config.model = how.model;
  config.knobs = result.answer.best.front().knobs;
  if (theirs) leave_out_variables_of_choices(*theirs, config);
  leave_out_idle_sequence_parallelism(how.dialect, config);
  config.pipeline_layout =
      planner::pipeline_layout_of(run_with(result.question, result.answer.best.front()));
  config.global_batch_size = result.question.global_batch_size;
  config.seq_length = result.question.seq_length;
  config.world_size = result.question.hardware->num_devices();
  const bool has_hybridep = config.knobs.dispatcher == spec::Dispatcher::hybridep &&
                            config.knobs.ep > 1 &&
                            dialects::can_say(config, "dispatcher", how.dialect);
  tell_hybridep(domain_devices_of(how.machine), result.question.hardware->devices_per_node,
                has_hybridep, config);
  if (theirs) dialects::take_model_flags(*theirs, how.is_model_asked_for, config);
  const std::string contradicted = theirs ? take_along(*theirs, config) : std::string();
  return dialects::export_run(config, how.dialect) + contradicted;
}

}  // namespace moetune::sweeps
