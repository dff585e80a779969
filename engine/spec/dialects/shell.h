// Shell text as people paste it: scripts with variables, arrays, tests and loops, or one command.
// Nothing is run: substitutions of commands stay as they are written.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::spec::dialects {

struct ShellCommand {
  std::vector<std::string> words;
  /// What is assigned before it or exported by now, by `env` and by Slurm's --export, too.
  std::map<std::string, std::string, std::less<>> environment;
};

/// How a script is read where it does not say all.
struct ShellView {
  std::vector<std::string> arguments{};  ///< of the script
  /// What is set before it runs, such as by Slurm.
  std::map<std::string, std::string, std::less<>> variables{};
  /// Variables that it does not set have values that nobody knows. Else they have none.
  bool all_set_outside = false;
  /// Of branches that only a run can choose between the first is taken. Else the last is.
  bool takes_first = false;
  /// So often loops are read of which only a run can tell how often they go round.
  size_t open_rounds = 1;
  /// Nor oftener than that others.
  size_t most_rounds = 64;
};

/// A choice between branches that depends on a file or on what a command prints.
struct OpenBranch {
  int64_t line = 0;
  std::string condition;
};

struct ShellScript {
  std::vector<ShellCommand> commands;
  std::vector<OpenBranch> open;
  std::vector<int64_t> open_loops;  ///< lines of the loops that ShellView::open_rounds is for
  std::vector<int64_t> cut_loops;   ///< lines of those that go round oftener than they are read
};

/// The commands that a script runs, in their order: separated by lines, ';', '&&', '|'.
/// Redirections and comments are left out, variables that the text sets are filled in, `bash -c`
/// and texts in "<<" are looked into. Of branches those are read that are taken where no variable
/// is set from outside; a branch that ends in an error is not. Functions are read where they are
/// called. Throws base::UsageError for quotes that are not closed and for texts that grow without
/// bounds.
ShellScript read_script(std::string_view text, const std::string& source,
                        const ShellView& view = {});
/// Its commands alone.
std::vector<ShellCommand> read_shell(std::string_view text, const std::string& source);

/// Whether a file's name is that of a shell's script or of a queue's job.
bool is_script_name(std::string_view name);

/// A word as a shell reads it back. Only "$NAME" and "${NAME}" are left to the shell: nothing else
/// in a word is run or replaced.
std::string shell_quoted(const std::string& word);

}  // namespace moetune::spec::dialects
