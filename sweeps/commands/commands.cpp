// The rows of the table, and what stands above all of them: --help, --version and the exit codes.
#include "sweeps/commands/commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <iostream>

#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"
#include "sweeps/commands/options.h"
#include "sweeps/processes/process.h"
#include "sweeps/version.h"

namespace moetune::sweeps {
namespace {

constexpr std::array kCommands = {
    CommandRow{"sweep", "search the best configuration: runs, stores and judges many trials",
               sweep_options, run_sweep_command},
    CommandRow{"init", "write a sweep file to start from, for a model and hardware of yours",
               init_options, run_init_command},
    CommandRow{"plan", "which configurations of a cluster fit, and how fast they will be",
               plan_options, run_plan_command},
    CommandRow{"estimate", "how much memory runs need and how fast they are, without running them",
               estimate_options, run_estimate_command},
    CommandRow{"import", "read a run of another framework: command or configuration",
               import_options, run_import_command},
    CommandRow{"export", "write a run in another framework's words", export_options,
               run_export_command},
    CommandRow{"probe", "measure the machine at hand and rewrite its hardware file", probe_options,
               run_probe_command},
    CommandRow{"diagnose", "what holds a run of any framework back, from its logs and traces",
               diagnose_options, run_diagnose_command},
    CommandRow{"compare", "set two runs of any framework side by side", compare_options,
               run_compare_command},
    CommandRow{"calibrate", "fit what plans stand on to measured runs", calibrate_options,
               run_calibrate_command},
    CommandRow{"tell", "bring the result of a trial that was launched by hand", tell_options,
               run_tell_command},
    CommandRow{"trial", "run one trial", trial_options, run_trial_command},
    CommandRow{"program", "print what each rank runs in a step, before anything runs",
               program_options, run_program_command},
    CommandRow{"bisect", "find the commit that made training slower or hungrier", bisect_options,
               run_bisect_command},
    CommandRow{"ls", "list the trials of a database, or its hunts", ls_options, run_ls_command},
    CommandRow{"watch", "follow a running sweep in a terminal", watch_options, run_watch_command},
    CommandRow{"show", "show everything about one trial", show_options, run_show_command},
    CommandRow{"trace", "write the stored trace of a trial to a file", trace_options,
               run_trace_command},
    CommandRow{"report", "write a database's HTML report", report_options, run_report_command},
    CommandRow{"db", "bring a database of an older moetune up to date", db_options, run_db_command},
    CommandRow{"knobs", "list what can be tuned", knobs_options, run_knobs_command},
    CommandRow{"schema", "print the JSON Schema of a kind of file", schema_options,
               run_schema_command},
    CommandRow{"completion", "print the completion script of bash or zsh", completion_options,
               run_completion_command},
    CommandRow{"man", "print the manual page", man_options, run_man_command},
};

std::string line_of_this_process;

std::string help_text() {
  std::string text =
      fmt::format("{}\n\nusage: moetune COMMAND [OPTIONS]\n\ncommands:\n", what_moetune_is());
  for (const CommandRow& row : kCommands) text += fmt::format("  {:10} {}\n", row.name, row.help);
  return text + fmt::format(
                    "\n'moetune COMMAND --help' says more, 'moetune man | man -l -' all; 'moetune "
                    "--version' (-V) prints the version.\n"
                    "\nexit codes:\n{}",
                    exit_code_text());
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

std::string_view what_moetune_is() {
  return "moetune tunes Mixture-of-Experts training by running it, profiling it and changing what "
         "binds it.";
}

std::string_view exit_code_text() {
  return "   0  ok\n"
         "   1  a plan in which nothing fits\n"
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
         "  15  what a trial needs is not there: a GPU or its memory, a driver, launcher, library "
         "or "
         "host memory\n"
         "  16  a sweep whose best configuration did not pass its validation\n"
         "  30  a hunt that is unresolved\n"
         "  31  a hunt that found that the machine has changed, not the code\n";
}

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
  if (name == "help" && words.size() > 2) return run_command({words[0], words[2], "--help"});
  if (name == "--help" || name == "-h" || name == "help") {
    std::cout << help_text();
    return 0;
  }
  if (name == "--version" || name == "-V") {
    std::cout << version_line() << "\n";
    return 0;
  }
  for (const CommandRow& row : kCommands) {
    if (row.name != name) continue;
    CommandOptions options = row.options();
    return options.parse({words.begin() + 2, words.end()}) ? row.run(options) : 0;
  }
  refuse(name);
}

}  // namespace moetune::sweeps
