// Locks and opens the database, and writes the row by which a sweep is known again.
#include "sweeps/session.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/base/fnv.h"
#include "kernels/base/units.h"
#include "sweeps/commands/commands.h"
#include "sweeps/load.h"
#include "sweeps/version.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;

std::string dump(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// What all trials of a sweep have in common, so that their numbers may be compared: everything but
/// the knobs.
json contract_of(const spec::TrialSpec& spec) {
  json contract = spec::to_json(spec);
  for (const char* key :
       {"knobs", "data_path", "reference_loss", "reference_tolerance", "fault", "stands_for"}) {
    contract.erase(key);
  }
  return contract;
}

store::SweepRow row_of(const spec::TrialSpec& base, std::string name, const json& config) {
  store::SweepRow row;
  row.name = std::move(name);
  row.config_json = dump(config);
  row.config_hash = base::fnv_digits(row.config_json);
  row.contract_json = dump(contract_of(base));
  row.model_name =
      fmt::format("{}, {} parameters", base.model.family,
                  base::format_count(static_cast<double>(base.model.num_parameters())));
  row.model_json = dump(spec::to_json(base.model));
  row.hardware_name = base.hardware.name;
  row.hardware_json = dump(spec::to_json(base.hardware));
  row.command_line = command_line();
  row.tool_version = version();
  row.tool_commit = commit();
  return row;
}

}  // namespace

Session open_session(const std::string& database_path, const store::SweepRow& sweep) {
  auto lock = std::make_unique<SweepLock>(database_path);
  store::Store store = store::Store::open(database_path);
  const store::Store::OpenedSweep opened = store.create_or_resume_sweep(sweep);
  return {std::move(lock), std::move(store), opened.id, opened.is_resumed};
}

std::vector<store::NamedText> environment_of(const std::string& rank_program) {
  std::vector<store::NamedText> rows = environment_rows();
  std::ifstream file(rank_program, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  // One that is not there runs nothing, and whoever starts it says so.
  if (file) rows.push_back({"binary", base::fnv_digits(bytes.str())});
  return rows;
}

store::SweepRow sweep_row(const spec::SweepSpec& sweep) {
  json base = spec::to_json(sweep.base);
  base.erase("data_path");
  return row_of(sweep.base, sweep.name,
                {{"name", sweep.name},
                 {"strategy", sweep.strategy},
                 {"base", base},
                 {"space", sweep.space},
                 {"scale_trials", sweep.scale_trials},
                 {"min_gain_ratio", sweep.min_gain_ratio},
                 {"validate_steps", sweep.validate_steps},
                 {"validate_max_loss", sweep.validate_max_loss},
                 {"memory_margin_ratio", sweep.memory_margin_ratio}});
}

store::SweepRow engine_sweep_row(const spec::SweepSpec& sweep, const std::string& config_text,
                                 const spec::ModelSpec* model) {
  const spec::EngineSpec& engine = sweep.engine;
  const json contract = {{"engine", spec::name_of(engine.dialect)},
                         {"run", engine.run},
                         {"settings", base::fnv_digits(config_text)},
                         {"gpus", engine.gpus},
                         {"loss_band_ratio", engine.loss_band_ratio},
                         {"global_batch_size", sweep.base.training.global_batch_size},
                         {"seq_length", sweep.base.training.seq_length},
                         {"num_steps", sweep.base.num_steps},
                         {"num_warmup_steps", sweep.base.num_warmup_steps}};
  json config = contract;
  config["name"] = sweep.name;
  config["log"] = engine.log;
  config["trace"] = engine.trace;
  config["profile"] = engine.profile;
  config["space"] = sweep.space;
  config["scale_trials"] = sweep.scale_trials;
  config["min_gain_ratio"] = sweep.min_gain_ratio;
  config["validate_steps"] = sweep.validate_steps;
  config["validate_max_loss"] = sweep.validate_max_loss;
  config["hardware"] = sweep.has_hardware ? spec::to_json(sweep.base.hardware) : json();
  config["model"] = sweep.has_model ? spec::to_json(sweep.base.model) : json();
  store::SweepRow row;
  row.name = sweep.name;
  row.config_json = dump(config);
  row.config_hash = base::fnv_digits(row.config_json);
  row.contract_json = dump(contract);
  row.model_name =
      model == nullptr
          ? "of the user's command"
          : fmt::format("{}, {} parameters", model->family,
                        base::format_count(static_cast<double>(model->num_parameters())));
  row.model_json = model == nullptr ? "{}" : dump(spec::to_json(*model));
  row.hardware_name = sweep.has_hardware ? sweep.base.hardware.name : "not said";
  row.hardware_json = sweep.has_hardware ? dump(spec::to_json(sweep.base.hardware)) : "{}";
  row.command_line = command_line();
  row.tool_version = version();
  row.tool_commit = commit();
  return row;
}

store::SweepRow single_trials_row(const spec::TrialSpec& spec) {
  return row_of(spec, "single trials", {{"single_trials", contract_of(spec)}});
}

std::string running_folder(const std::string& database_path) {
  return std::filesystem::absolute(database_path).string() + ".running";
}

std::string reference_folder(const std::string& database_path) {
  return std::filesystem::absolute(database_path).string() + ".reference";
}

}  // namespace moetune::sweeps
