// moetune completion: a script that completes commands, options and what they take. What an option
// takes is read from the word that stands for its value in the help.
#include "sweeps/commands/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <map>

#include "engine/spec/dialects/run_config.h"
#include "engine/spec/formats.h"
#include "engine/spec/knobs.h"
#include "engine/spec/library.h"
#include "engine/spec/plan_knobs.h"
#include "engine/spec/trial_status.h"
#include "kernels/base/error.h"
#include "kernels/base/shell_quotes.h"
#include "sweeps/commands/options.h"

namespace moetune::sweeps {
namespace {

using Words = std::vector<std::string>;

Words knob_words() {
  Words words;
  for (const spec::KnobRow& row : spec::knob_table()) words.push_back(std::string(row.name) + "=");
  return words;
}

Words plan_knob_words() {
  Words words;
  for (const spec::PlanKnobRow& row : spec::plan_knob_table()) {
    words.push_back(std::string(row.name) + "=");
  }
  return words;
}

template <spec::HasNames E>
Words words_by_name() {
  Words words;
  for (const auto& row : spec::NameTable<E>::kRows) words.emplace_back(row.name);
  return words;
}

Words status_words() {
  Words words;
  for (const spec::StatusRow& row : spec::status_table()) words.emplace_back(row.name);
  return words;
}

template <spec::Shelf shelf>
Words names_on() {
  return spec::library_names(shelf);
}

enum class Paths : uint8_t { none, files, folders };

/// Completions for each placeholder of the help. Placeholders that start with a lower-case letter
/// are literal values, separated by bars. For all others any text is accepted.
struct ValueRow {
  std::string_view value;
  Paths paths = Paths::none;
  Words (*words)() = nullptr;
};
constexpr std::array kValues = {
    ValueRow{"PATH", Paths::files},
    ValueRow{"FILE", Paths::files},
    ValueRow{"DB", Paths::files},
    ValueRow{"FOLDER", Paths::folders},
    ValueRow{"TRIAL.json", Paths::files, names_on<spec::Shelf::sweep>},
    ValueRow{"GOOD BAD", Paths::files},
    ValueRow{"SPEC", Paths::files, names_on<spec::Shelf::sweep>},
    ValueRow{"SWEEP", Paths::files, names_on<spec::Shelf::sweep>},
    ValueRow{"MODEL", Paths::files, names_on<spec::Shelf::model>},
    ValueRow{"HARDWARE", Paths::files, names_on<spec::Shelf::hardware>},
    ValueRow{"BEFORE", Paths::files},
    ValueRow{"AFTER", Paths::files},
    // A text that is a run, or the file that holds it.
    ValueRow{"COMMAND|FILE", Paths::files},
    ValueRow{"KNOB=VALUE", Paths::none, knob_words},
    ValueRow{"PLAN-KNOB=VALUE", Paths::none, plan_knob_words},
    ValueRow{"DIALECT", Paths::none, words_by_name<spec::dialects::Dialect>},
    ValueRow{"KIND", Paths::none, words_by_name<spec::FileKind>},
    ValueRow{"STATUS", Paths::none, status_words},
    // `show` takes the database in front of it.
    ValueRow{"ID", Paths::files},
};

struct Candidates {
  Paths paths = Paths::none;
  Words words;
  [[nodiscard]] bool is_empty() const { return paths == Paths::none && words.empty(); }
};

Candidates candidates_of(std::string_view value) {
  for (const ValueRow& row : kValues) {
    if (row.value == value) return {row.paths, row.words == nullptr ? Words() : row.words()};
  }
  Candidates found;
  if (value.empty() || value.front() < 'a' || value.front() > 'z') return found;
  for (size_t at = 0; at <= value.size();) {
    const size_t bar = std::min(value.find('|', at), value.size());
    found.words.emplace_back(value.substr(at, bar - at));
    at = bar + 1;
  }
  return found;
}

/// What may stand without an option's name: of all positional words together.
Candidates positional_candidates(const std::vector<OptionRow>& rows) {
  Candidates all;
  for (const OptionRow& row : rows) {
    if (!row.is_positional) continue;
    const Candidates one = candidates_of(row.value);
    all.paths = std::max(all.paths, one.paths);
    all.words.insert(all.words.end(), one.words.begin(), one.words.end());
  }
  return all;
}

std::string bash_assignments(const Candidates& found) {
  std::string text;
  if (!found.words.empty()) {
    text += fmt::format(" words={}",
                        base::in_single_quotes(fmt::format("{}", fmt::join(found.words, " "))));
  }
  if (found.paths == Paths::files) text += " paths=-f";
  if (found.paths == Paths::folders) text += " paths=-d";
  return text.empty() ? " :" : text;
}

constexpr std::string_view kBashHead =
    R"(# Completion of moetune for bash, written by 'moetune completion bash'.
_moetune() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words='' paths=''
  local command=${COMP_WORDS[1]}
  # Bash makes a word of its own of the sign in --option=value.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if ((COMP_CWORD == 1)); then
    words=)";

constexpr std::string_view kBashTail = R"(
  COMPREPLY=()
  [[ $words$paths ]] || return 0
  mapfile -t COMPREPLY < <(compgen $paths -W "$words" -- "$cur")
  if [[ $paths ]]; then compopt -o filenames 2>/dev/null; fi
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
  return 0
}
complete -F _moetune moetune
)";

std::string bash_script(std::span<const CommandRow> commands) {
  Words names;
  // Options that take the same, under what they take.
  std::map<std::string, Words> by_values;
  std::string options_text;
  std::string positional_text;
  for (const CommandRow& command : commands) {
    names.emplace_back(command.name);
    const std::vector<OptionRow> rows = command.options().rows();
    Words options;
    for (const OptionRow& row : rows) {
      options.push_back("--" + row.name);
      if (row.value.empty()) continue;
      Words& same = by_values[bash_assignments(candidates_of(row.value))];
      same.push_back(base::in_single_quotes(fmt::format("{} --{}", command.name, row.name)));
      if (!row.letter.empty())
        same.push_back(base::in_single_quotes(fmt::format("{} -{}", command.name, row.letter)));
    }
    options_text += fmt::format("          {}) words={} ;;\n", command.name,
                                base::in_single_quotes(fmt::format("{}", fmt::join(options, " "))));
    positional_text += fmt::format("          {}){} ;;\n", command.name,
                                   bash_assignments(positional_candidates(rows)));
  }
  std::string script(kBashHead);
  script += base::in_single_quotes(fmt::format("{} --help --version", fmt::join(names, " ")));
  script += "\n  else\n    case \"$command $prev\" in\n";
  for (const auto& [values, options] : by_values) {
    script += fmt::format("      {})\n       {} ;;\n", fmt::join(options, "|"), values);
  }
  script +=
      "      *)\n        if [[ $cur == -* ]]; then\n          case $command in\n" + options_text;
  script += "          esac\n        else\n          case $command in\n" + positional_text;
  script += "          esac\n        fi ;;\n    esac\n  fi";
  return script + std::string(kBashTail);
}

/// For the text of a description, in which brackets and colons mean something.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string zsh_function_of(std::string_view value) {
  std::string name = "_moetune_";
  for (const char c : value) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    const bool is_lower = c >= 'a' && c <= 'z';
    name += is_upper ? static_cast<char>(c - 'A' + 'a') : is_lower ? c : '_';
  }
  return name;
}

std::string zsh_action(std::string_view value) {
  if (std::ranges::find(kValues, value, &ValueRow::value) != kValues.end()) {
    return zsh_function_of(value);
  }
  const Candidates found = candidates_of(value);
  // A blank: any text, with its description as the only help.
  return found.is_empty() ? " " : fmt::format("({})", fmt::join(found.words, " "));
}

/// What an option of this kind takes, as a function of its own.
std::string zsh_function(const ValueRow& row) {
  const Candidates found = candidates_of(row.value);
  std::string body;
  if (!found.words.empty()) {
    const bool has_more = found.words.front().ends_with('=');
    body +=
        fmt::format("  compadd{} -- {}\n", has_more ? " -S ''" : "", fmt::join(found.words, " "));
  }
  if (found.paths == Paths::files) body += "  _files\n";
  if (found.paths == Paths::folders) body += "  _files -/\n";
  if (body.empty()) body = "  :\n";
  return fmt::format("{}() {{\n{}}}\n", zsh_function_of(row.value), body);
}

std::string zsh_argument(const OptionRow& row) {
  const std::string text = zsh_text(row.help);
  if (row.is_positional) {
    return base::in_single_quotes(fmt::format("{}:{}:{}", row.takes_several ? "*" : "",
                                              zsh_text(row.value), zsh_action(row.value)));
  }
  const std::string value =
      row.value.empty() ? "" : fmt::format(":{}:{}", zsh_text(row.value), zsh_action(row.value));
  const std::string name = fmt::format("--{}{}", row.name, row.value.empty() ? "" : "=");
  if (row.letter.empty()) {
    return base::in_single_quotes(
        fmt::format("{}{}[{}]{}", row.is_repeatable ? "*" : "", name, text, value));
  }
  const std::string together =
      row.is_repeatable ? "*" : fmt::format("(-{} --{})", row.letter, row.name);
  return fmt::format("{}{{-{},{}}}{}", base::in_single_quotes(together), row.letter, name,
                     base::in_single_quotes(fmt::format("[{}]{}", text, value)));
}

std::string zsh_script(std::span<const CommandRow> commands) {
  std::string script =
      "#compdef moetune\n# Completion of moetune for zsh, written by 'moetune completion zsh'.\n";
  for (const ValueRow& row : kValues) script += zsh_function(row);
  script += "_moetune() {\n  if ((CURRENT == 2)); then\n    local -a commands=(\n";
  for (const CommandRow& row : commands) {
    script += fmt::format(
        "      {}\n", base::in_single_quotes(fmt::format("{}:{}", row.name, zsh_text(row.help))));
  }
  script +=
      "    )\n    _describe -t commands command commands\n"
      "    compadd -- --help --version\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  ((CURRENT--))\n  case $command in\n";
  for (const CommandRow& row : commands) {
    Words arguments;
    for (const OptionRow& option : row.options().rows()) arguments.push_back(zsh_argument(option));
    script += fmt::format("    {}) _arguments \\\n        {} ;;\n", row.name,
                          fmt::join(arguments, " \\\n        "));
  }
  return script +
         "  esac\n}\n"
         "if [[ $funcstack[1] == _moetune ]]; then _moetune \"$@\"; else compdef _moetune moetune; "
         "fi\n";
}

}  // namespace

std::string completion_script(std::string_view shell, std::span<const CommandRow> commands) {
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script(commands);
  throw base::UsageError(
      fmt::format("there is no completion for '{}', expected bash or zsh", shell));
}

CommandOptions completion_options() {
  namespace po = boost::program_options;
  CommandOptions options("completion bash|zsh",
                         "Prints the completion script of a shell: source <(moetune completion "
                         "bash). The installed package already contains it.");
  options.add()("shell", po::value<std::string>()->value_name("bash|zsh"), "of which shell");
  options.positional("shell");
  return options;
}

int run_completion_command(const CommandOptions& options) {
  std::cout << completion_script(options.required("shell", "the shell (bash or zsh)"),
                                 command_table());
  return 0;
}

}  // namespace moetune::sweeps
