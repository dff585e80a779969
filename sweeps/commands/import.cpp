// moetune import and export: runs in the words of other frameworks.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/planning/named_files.h"

namespace moetune::sweeps {
namespace {

namespace dialects = spec::dialects;
using nlohmann::json;
namespace po = boost::program_options;

void add_run(CommandOptions& options) {
  options.add()("run", po::value<std::string>()->value_name("COMMAND|FILE"),
                "a command or configuration, a file with one, or - for standard input");
  options.positional("run");
  const std::string help =
      fmt::format("whose words it has: {}; default: told by its content", dialect_names());
  options.add()("dialect", po::value<std::string>()->value_name("DIALECT"), help.c_str());
  options.add()("gpus", po::value<std::string>()->value_name("N"),
                "devices, where the text does not say");
  options.add()("model", po::value<std::string>()->value_name("MODEL"),
                "a config.json or the name of a shipped model: tells how many layers there are, "
                "where stages are said by their layers");
}

dialects::RunConfig read_run(const CommandOptions& options) {
  static_cast<void>(options.required("run", "a command or configuration"));
  const auto model = options.has("model") ? model_named(options.text("model")) : nullptr;
  return run_config_of(options, "run", options.integer("gpus", 1, 0), model.get());
}

}  // namespace

CommandOptions import_options() {
  CommandOptions options("import COMMAND|FILE [--dialect DIALECT] [--gpus N] [--model MODEL]",
                         "Reads a training command or configuration of Megatron-LM, "
                         "Megatron-Bridge, torchtitan or Primus and prints what moetune "
                         "understands of it as JSON: knobs of plans, sizes of the model, what is "
                         "unknown, and the release whose spelling is read.");
  add_run(options);
  return options;
}

int run_import_command(const CommandOptions& options) {
  const dialects::RunConfig run = read_run(options);
  json not_priced = json::array();
  json unknown = json::array();
  for (const dialects::UnknownSetting& setting : run.unknown) {
    const bool is_known = dialects::is_known_choice(setting, run.dialect);
    (is_known ? not_priced : unknown).push_back({{"key", setting.key}, {"value", setting.value}});
  }
  const dialects::DialectRow& row = dialects::dialect_row(run.dialect);
  std::cout << json({{"dialect", row.name},
                     {"release", row.release},
                     {"knobs", to_json(run.knobs)},
                     {"model", run.model},
                     {"model_flags", run.model_flags},
                     {"model_name", run.model_name},
                     {"global_batch_size", run.global_batch_size},
                     {"seq_length", run.seq_length},
                     {"world_size", run.world_size},
                     {"pipeline_layout", run.pipeline_layout},
                     {"environment", run.environment},
                     {"not_priced", not_priced},
                     {"unknown", unknown},
                     {"notes", run.notes}})
                   .dump(2, ' ', false, json::error_handler_t::replace)
            << '\n';
  return 0;
}

CommandOptions export_options() {
  CommandOptions options(
      "export COMMAND|FILE --format DIALECT [--dialect DIALECT] [--gpus N] "
      "[--model MODEL]",
      "Writes a training command or configuration of one framework in the "
      "words of another. What it cannot be told stands in comments; settings "
      "that moetune does not know go along where the dialect is the same.");
  add_run(options);
  options.add()("format", po::value<std::string>()->value_name("DIALECT"), dialect_names().c_str());
  return options;
}

int run_export_command(const CommandOptions& options) {
  static_cast<void>(options.required("format", "whose words to write (--format NAME)"));
  const dialects::Dialect dialect = dialect_named(options, "format");
  std::cout << dialects::export_run(read_run(options), dialect);
  return 0;
}

}  // namespace moetune::sweeps
