// The sub-commands of moetune: one table row and one file each.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::sweeps {

struct CommandRow {
  std::string_view name;
  std::string_view help;
  /// `words` is what follows the sub-command's name. Returns the exit code.
  int (*run)(const std::vector<std::string>& words);
};
std::span<const CommandRow> command_table();

/// Runs what a command line asks for; words[0] is the program. Throws what the sub-command throws.
int run_command(const std::vector<std::string>& words);
/// The words that run_command got, as one shell line: what the store keeps to reproduce a sweep.
const std::string& command_line();
/// The same line for other words behind the program's name.
std::string command_line_of(const std::vector<std::string>& words);

int run_trial_command(const std::vector<std::string>& words);
int run_sweep_command(const std::vector<std::string>& words);
int run_ls_command(const std::vector<std::string>& words);
int run_show_command(const std::vector<std::string>& words);
int run_program_command(const std::vector<std::string>& words);
int run_knobs_command(const std::vector<std::string>& words);
int run_report_command(const std::vector<std::string>& words);
int run_bisect_command(const std::vector<std::string>& words);
int run_db_command(const std::vector<std::string>& words);

}  // namespace moetune::sweeps
