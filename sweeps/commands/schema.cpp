// moetune schema: JSON Schemas of the files that people write, and the page of their formats.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/spec/formats.h"
#include "kernels/base/error.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/outputs.h"

namespace moetune::sweeps {

CommandOptions schema_options() {
  namespace po = boost::program_options;
  CommandOptions options(
      "schema sweep|engine-sweep|trial|hardware|model | schema --markdown",
      "Prints the JSON Schema of a kind of file, for editors that complete and check with it. "
      "Comments and values with units (\"80GB\", \"450GB/s\", \"25us\", \"989TF\") are "
      "allowed in all of them.");
  options.add()("kind", po::value<std::string>()->value_name("KIND"), "of which file");
  options.add()("markdown", "print the tables of docs/formats.md instead");
  options.positional("kind");
  return options;
}

int run_schema_command(const CommandOptions& options) {
  if (options.has("markdown")) {
    if (options.has("kind")) options.refuse_beside("KIND", {"markdown"});
    std::cout << spec::formats_markdown() << files_markdown() << outputs_markdown();
    return 0;
  }
  const std::string name = options.required("kind", "the kind of file");
  const std::optional<spec::FileKind> kind = spec::find_by_name<spec::FileKind>(name);
  if (!kind) {
    std::vector<std::string_view> names;
    for (const spec::FileKind value : spec::all_values<spec::FileKind>()) {
      names.push_back(spec::name_of(value));
    }
    throw base::UsageError(fmt::format("there is no file of the kind '{}'; kinds: {}",
                                       name.substr(0, 60), fmt::join(names, ", ")));
  }
  std::cout << spec::json_schema(*kind).dump(2) << "\n";
  return 0;
}

}  // namespace moetune::sweeps
