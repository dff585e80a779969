// The table of sub-commands, --help and --version; see commands.h.
#include "sweeps/commands/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <iostream>

#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"
#include "sweeps/process.h"
#include "sweeps/version.h"

namespace moetune::sweeps {
namespace {

constexpr std::array kCommands = {
    CommandRow{"sweep", "search the best configuration: runs, stores and judges many trials",
               run_sweep_command},
    CommandRow{"trial", "run one trial", run_trial_command},
    CommandRow{"program", "print what each rank runs in a step, before anything runs",
               run_program_command},
    CommandRow{"bisect", "find the commit that made training slower or hungrier",
               run_bisect_command},
    CommandRow{"ls", "list the trials of a database", run_ls_command},
    CommandRow{"show", "show everything about one trial", run_show_command},
    CommandRow{"report", "write a database's HTML report", run_report_command},
    CommandRow{"db", "bring a database of an older moetune up to date", run_db_command},
    CommandRow{"knobs", "list what can be tuned", run_knobs_command},
};

std::string line_of_this_process;

std::string help_text() {
  std::string text =
      "moetune tunes Mixture-of-Experts training by running it, profiling it and changing what "
      "binds it.\n\nusage: moetune COMMAND [OPTIONS]\n\ncommands:\n";
  for (const CommandRow& row : kCommands) text += fmt::format("  {:8} {}\n", row.name, row.help);
  return text +
         "\n'moetune COMMAND --help' says more; 'moetune --version' prints the version.\n"
         "\nexit codes:\n"
         "   0  ok\n"
         "   2  wrong usage; a trial that is invalid\n"
         "  10  the trial ended as oom\n"
         "  11  the trial ended as wrong\n"
         "  12  the trial ended as failed or crashed; a sweep in which nothing fitted and ran to "
         "its end;\n"
         "      a database that is locked or damaged; a disk that is full; standard output that "
         "cannot be\n"
         "      written; any other error\n"
         "  13  the trial ended as hung\n"
         "  14  interrupted\n"
         "  30  a hunt that is unresolved\n"
         "  31  a hunt that found that the machine has changed, not the code\n";
}

[[noreturn]] void refuse(const std::string& name) {
  std::vector<std::string> names;
  for (const CommandRow& row : kCommands) names.emplace_back(row.name);
  const std::string nearest = spec::nearest_name(name, names);
  throw base::UsageError(fmt::format("there is no command '{}'{}; commands: {}", name,
                                     nearest.empty() ? "" : ", did you mean '" + nearest + "'?",
                                     fmt::join(names, ", ")));
}

}  // namespace

std::span<const CommandRow> command_table() { return kCommands; }

const std::string& command_line() { return line_of_this_process; }

// Works from any folder and in any shell.
std::string command_line_of(const std::vector<std::string>& words) {
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::vector<std::string> full = {error ? "moetune" : program.string()};
  full.insert(full.end(), words.begin(), words.end());
  const auto folder = std::filesystem::current_path(error);
  return fmt::format("{} && {}", shell_line({{"cd", folder}, {}, "", ""}),
                     shell_line({full, {}, "", ""}));
}

int run_command(const std::vector<std::string>& words) {
  if (!words.empty()) line_of_this_process = command_line_of({words.begin() + 1, words.end()});
  if (words.size() < 2) {
    throw base::UsageError("a command is missing\n\n" + help_text());
  }
  const std::string& name = words[1];
  if (name == "--help" || name == "-h" || name == "help") {
    std::cout << help_text();
    return 0;
  }
  if (name == "--version") {
    std::cout << version_line() << "\n";
    return 0;
  }
  for (const CommandRow& row : kCommands) {
    if (row.name == name) return row.run({words.begin() + 2, words.end()});
  }
  refuse(name);
}

}  // namespace moetune::sweeps
