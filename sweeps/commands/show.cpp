// moetune show: everything that is stored about one trial.
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "profiler/store/store.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/listing.h"
#include "sweeps/table.h"
#include "sweeps/trial_id.h"

namespace moetune::sweeps {

CommandOptions show_options() {
  namespace po = boost::program_options;
  CommandOptions options("show --db PATH ID [--format text|json]   or   show PATH ID",
                         "Shows everything about one trial: its knobs, what was predicted and "
                         "measured, its wall, and what was decided about it.");
  options.add()("db", po::value<std::string>()->value_name("PATH"), "the runs database");
  options.add()("id", po::value<std::vector<std::string>>()->value_name("ID"), kTrialIdHelp);
  options.add_format();
  options.positional("id", -1);
  return options;
}

int run_show_command(const CommandOptions& options) {
  const auto [path, id] = options.database_and_word(kTrialIdWhat);

  const auto store = store::Store::open_read_only(path);
  const store::TrialRow trial = explained(find_trial(store, id));
  if (options.wants_json()) {
    std::cout << trial_details_json(store, trial).dump(2) << "\n";
  } else {
    std::cout << trial_details_text(store, trial, terminal_width(STDOUT_FILENO));
  }
  return 0;
}

}  // namespace moetune::sweeps
