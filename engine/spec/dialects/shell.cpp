#include "engine/spec/dialects/shell.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/spec/dialects/shell_script.h"
#include "engine/spec/dialects/text_cursor.h"
#include "kernels/base/shell_quotes.h"

namespace moetune::spec::dialects {

ShellScript read_script(std::string_view text, const std::string& source, const ShellView& view) {
  check_text(text, source);
  ShellBudget budget;
  ShellVariables variables;
  if (!view.all_set_outside) {
    for (const auto& [name, value] : view.variables) variables[name] = {value};
  }
  return ScriptReader(text, source, view, budget, 0).read(std::move(variables));
}

std::vector<ShellCommand> read_shell(std::string_view text, const std::string& source) {
  return read_script(text, source).commands;
}

namespace {

/// Whether all that a shell would replace within double quotes are whole variables, at least one.
bool has_only_variables(std::string_view word) {
  if (word.find_first_of("\"\\`'!") != std::string_view::npos) return false;
  bool has_any = false;
  for (size_t i = word.find('$'); i != std::string_view::npos; i = word.find('$', i + 1)) {
    const bool has_brace = word.substr(i + 1).starts_with('{');
    const size_t first = i + (has_brace ? 2 : 1);
    size_t end = first;
    while (end < word.size() && is_name_part(word[end])) ++end;
    if (end == first || !is_name_start(word[first])) return false;
    if (has_brace && (end == word.size() || word[end] != '}')) return false;
    has_any = true;
  }
  return has_any;
}

}  // namespace

bool is_script_name(std::string_view name) {
  constexpr std::array<std::string_view, 5> kEndings = {".sh", ".bash", ".slurm", ".sbatch",
                                                        ".job"};
  return std::ranges::any_of(kEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

std::string shell_quoted(const std::string& word) {
  // Variables that were not set when it was read are set where it is run.
  if (has_only_variables(word)) return "\"" + word + "\"";
  return base::shell_literal(word);
}

}  // namespace moetune::spec::dialects
