// moetune show: everything that is stored about one trial.
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "profiler/store/store.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/listing.h"
#include "sweeps/table.h"

namespace moetune::sweeps {

int run_show_command(const std::vector<std::string>& words) {
  namespace po = boost::program_options;
  CommandOptions options("show --db PATH ID [--format text|json]   or   show PATH ID",
                         "Shows everything about one trial: its knobs, what was predicted and "
                         "measured, its wall, and what was decided about it.");
  options.add()("db", po::value<std::string>()->value_name("PATH"), "the runs database");
  options.add()("id", po::value<std::vector<std::string>>()->value_name("ID"),
                "number of the trial, or the first digits of its hash");
  options.add_format();
  options.positional("id", -1);
  if (!options.parse(words)) return 0;
  const auto [path, id] = options.database_and_word("the trial's number or hash");

  const auto store = store::Store::open_read_only(path);
  const store::TrialRow trial = explained(store.get_trial(id));
  if (options.wants_json()) {
    std::cout << trial_details_json(store, trial).dump(2) << "\n";
  } else {
    std::cout << trial_details_text(store, trial, terminal_width(STDOUT_FILENO));
  }
  return 0;
}

}  // namespace moetune::sweeps
