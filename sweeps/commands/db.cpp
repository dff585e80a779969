// moetune db: care of a runs database itself. Upgrading is a command of its own because an older
// moetune cannot read the file afterwards.
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <optional>

#include "kernels/base/error.h"
#include "profiler/store/store.h"
#include "sweeps/commands/commands.h"
#include "sweeps/commands/options.h"
#include "sweeps/sweep_lock.h"

namespace moetune::sweeps {

CommandOptions db_options() {
  namespace po = boost::program_options;
  CommandOptions options("db upgrade [--db] PATH",
                         "Brings a runs database that an older moetune wrote to the schema of this "
                         "one. Nothing in it is lost; older versions cannot read it afterwards.");
  options.add()("action", po::value<std::string>()->value_name("upgrade"), "what to do");
  options.add()("db", po::value<std::string>()->value_name("PATH"), "the runs database");
  options.positional("action");
  options.positional("db");
  return options;
}

int run_db_command(const CommandOptions& options) {
  const std::string action = options.required("action", "what to do (upgrade)");
  if (action != "upgrade") {
    throw base::UsageError(fmt::format("there is no 'db {}', expected 'db upgrade'", action));
  }
  const std::string path = options.database();

  // A sweep that is running goes on with the schema it opened. Without a file there is nothing to
  // lock; the store says so.
  std::optional<SweepLock> lock;
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) lock.emplace(path);
  const int before = store::Store::upgrade(path);
  const int now = store::Store::schema_version();
  std::cout << (before == now
                    ? fmt::format("{}: schema {} is already that of this moetune\n", path, now)
                    : fmt::format("{}: schema {} upgraded to {}\n", path, before, now));
  return 0;
}

}  // namespace moetune::sweeps
