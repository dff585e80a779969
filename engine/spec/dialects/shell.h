// Shell text as people paste it: scripts with variables and arrays, or one command. Nothing is run:
// substitutions of commands stay as they are written.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::spec::dialects {

struct ShellCommand {
  std::vector<std::string> words;
  /// What is assigned before it or exported by now.
  std::map<std::string, std::string, std::less<>> environment;
};

/// The commands of a text in their order: separated by lines, ';', '&&', '|'. Redirections and
/// comments are left out, variables that the text sets are filled in, `bash -c` is looked into.
/// Throws base::UsageError for quotes that are not closed and for texts that grow without bounds.
std::vector<ShellCommand> read_shell(std::string_view text, const std::string& source);

/// A word as a shell reads it back. Only "$NAME" and "${NAME}" are left to the shell: nothing else
/// in a word is run or replaced.
std::string shell_quoted(const std::string& word);

}  // namespace moetune::spec::dialects
