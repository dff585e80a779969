// The sub-commands of moetune: one table row and one file each.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::sweeps {

class CommandOptions;

struct CommandRow {
  std::string_view name;
  std::string_view help;
  /// What may stand on its command line: known without running it.
  CommandOptions (*options)();
  /// `options` has parsed what follows the sub-command's name. Returns the exit code.
  int (*run)(const CommandOptions& options);
};
std::span<const CommandRow> command_table();

/// One sentence, for help and manual.
std::string_view what_moetune_is();
/// The exit codes, a line or more each.
std::string_view exit_code_text();

/// Runs what a command line asks for; words[0] is the program. Throws what the sub-command throws.
int run_command(const std::vector<std::string>& words);
/// The words that run_command got, as one shell line: what the store keeps to reproduce a sweep.
const std::string& command_line();
/// The same line for other words behind the program's name.
std::string command_line_of(const std::vector<std::string>& words);

CommandOptions init_options();
int run_init_command(const CommandOptions& options);
CommandOptions schema_options();
int run_schema_command(const CommandOptions& options);
CommandOptions plan_options();
int run_plan_command(const CommandOptions& options);
CommandOptions import_options();
int run_import_command(const CommandOptions& options);
CommandOptions export_options();
int run_export_command(const CommandOptions& options);
CommandOptions estimate_options();
int run_estimate_command(const CommandOptions& options);
CommandOptions compare_options();
int run_compare_command(const CommandOptions& options);
CommandOptions diagnose_options();
int run_diagnose_command(const CommandOptions& options);
CommandOptions calibrate_options();
int run_calibrate_command(const CommandOptions& options);
CommandOptions probe_options();
int run_probe_command(const CommandOptions& options);
CommandOptions trial_options();
int run_trial_command(const CommandOptions& options);
CommandOptions sweep_options();
int run_sweep_command(const CommandOptions& options);
CommandOptions tell_options();
int run_tell_command(const CommandOptions& options);
CommandOptions ls_options();
int run_ls_command(const CommandOptions& options);
CommandOptions watch_options();
int run_watch_command(const CommandOptions& options);
CommandOptions show_options();
int run_show_command(const CommandOptions& options);
CommandOptions program_options();
int run_program_command(const CommandOptions& options);
CommandOptions knobs_options();
int run_knobs_command(const CommandOptions& options);
CommandOptions report_options();
int run_report_command(const CommandOptions& options);
CommandOptions bisect_options();
int run_bisect_command(const CommandOptions& options);
CommandOptions completion_options();
int run_completion_command(const CommandOptions& options);
CommandOptions man_options();
int run_man_command(const CommandOptions& options);
CommandOptions db_options();
int run_db_command(const CommandOptions& options);
CommandOptions trace_options();
int run_trace_command(const CommandOptions& options);

}  // namespace moetune::sweeps
