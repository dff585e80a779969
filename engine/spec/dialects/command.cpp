// Command lines: which of a script's commands trains, what its launcher says, and its settings.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

#include "engine/spec/dialects/bridge_options.h"
#include "engine/spec/dialects/forms.h"
#include "engine/spec/dialects/shell.h"
#include "engine/spec/dialects/shell_words.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/texts.h"
#include "engine/spec/dialects/values.h"
#include "engine/spec/knobs.h"

namespace moetune::spec::dialects {
namespace {

using Arguments = std::span<const std::string>;

bool is_flag(std::string_view word) {
  return word.size() > 2 && word.starts_with("--") && word[2] != '-';
}

/// What launchers count.
struct Ranks {
  int64_t nodes = 0;
  int64_t per_node = 0;
  int64_t all = 0;

  [[nodiscard]] int64_t product() const {
    if (per_node > 0) return per_node * std::max<int64_t>(nodes, 1);
    return all;
  }
};
struct LauncherOption {
  std::string_view name;
  int64_t Ranks::*member;
};
constexpr std::array kLauncherOptions = {
    LauncherOption{"--nproc_per_node", &Ranks::per_node},
    LauncherOption{"--nproc-per-node", &Ranks::per_node},
    LauncherOption{"--ntasks-per-node", &Ranks::per_node},
    LauncherOption{"--nnodes", &Ranks::nodes},
    LauncherOption{"--nodes", &Ranks::nodes},
    LauncherOption{"-N", &Ranks::nodes},
    LauncherOption{"--ntasks", &Ranks::all},
    LauncherOption{"-n", &Ranks::all},
    LauncherOption{"-np", &Ranks::all},
    LauncherOption{"--num_gpus", &Ranks::all},
    LauncherOption{"--num-gpus", &Ranks::all},
    LauncherOption{"-ng", &Ranks::all},
};

bool is_launcher_option(std::string_view name) {
  return std::ranges::find(kLauncherOptions, name, &LauncherOption::name) !=
         std::end(kLauncherOptions);
}

void read_option(const std::string& word, const std::string* next, Ranks& ranks) {
  const size_t equals = word.find('=');
  for (const LauncherOption& option : kLauncherOptions) {
    // "-N4" says it in one word.
    const bool has_value = option.name.size() == 2 && word.size() > 2 &&
                           word.starts_with(option.name) && word[2] >= '0' && word[2] <= '9';
    if (!has_value && option.name != std::string_view(word).substr(0, equals)) continue;
    std::string value = has_value                     ? word.substr(2)
                        : equals != std::string::npos ? word.substr(equals + 1)
                        : next != nullptr             ? *next
                                                      : "";
    value = value.substr(0, value.find(':'));  // elastic: from the least on
    const auto count = parse_integer(value);
    if (count && *count > 0 && *count <= kMostRanks) ranks.*option.member = *count;
  }
}

/// The first word behind the training script, or behind the launcher where there is no script.
size_t first_argument(Arguments words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].ends_with(".py") || is_script_name(words[i])) return i + 1;
    const bool is_module = words[i] == "-m" && i + 1 < words.size();
    if (is_module && !words[i + 1].starts_with("torch.distributed")) return i + 2;
  }
  return 0;
}

size_t num_known(const ShellCommand& command, Dialect dialect) {
  return static_cast<size_t>(std::ranges::count_if(command.words, [&](const std::string& word) {
    const std::string key = key_in_word(word, dialect);
    return is_known(key, dialect) || (dialect == Dialect::torchtitan && key == kConfigFile);
  }));
}

/// The one that trains: most of its settings are known. Null where there is none.
const ShellCommand* training_of(const std::vector<ShellCommand>& commands, Dialect dialect) {
  const ShellCommand* training = nullptr;
  size_t most = 0;
  for (const ShellCommand& command : commands) {
    const size_t known = num_known(command, dialect);
    const bool prints = command.words.front() == "echo" || command.words.front() == "printf";
    if (known <= most || prints) continue;
    most = known;
    training = &command;
  }
  return training;
}

Ranks ranks_of(const ShellCommand& command, Dialect dialect) {
  const Arguments words = command.words;
  Ranks ranks;
  const auto devices = command.environment.find("NGPU");
  if (dialect == Dialect::torchtitan && devices != command.environment.end()) {
    read_option("-n=" + devices->second, nullptr, ranks);
  }
  const size_t first = first_argument(words);
  for (size_t i = 0; i < words.size(); ++i) {
    // Behind the script only Megatron-Bridge's has such options.
    if (i >= first && dialect != Dialect::megatron_bridge) break;
    read_option(words[i], i + 1 < words.size() ? &words[i + 1] : nullptr, ranks);
  }
  return ranks;
}

/// What the lines "#SBATCH --nodes=4" of a job ask for.
Ranks slurm_ranks(std::string_view text) {
  Ranks ranks;
  for (const std::string_view line : lines_of(text)) {
    constexpr std::string_view kMark = "#SBATCH ";
    if (!line.starts_with(kMark)) continue;
    std::istringstream options{std::string(line.substr(kMark.size()))};
    const std::vector<std::string> words{std::istream_iterator<std::string>(options), {}};
    for (size_t i = 0; i < words.size(); ++i) {
      read_option(words[i], i + 1 < words.size() ? &words[i + 1] : nullptr, ranks);
    }
  }
  return ranks;
}

/// The commands of a script in the words of the dialect's table.
ShellScript script_of(std::string_view text, const std::string& source, const ShellView& view,
                      Dialect dialect) {
  ShellScript script = read_script(text, source, view);
  if (dialect == Dialect::megatron_bridge)
    std::ranges::for_each(script.commands, spell_out_options);
  return script;
}

/// How the script is read: with its arguments, and with what Slurm sets for a job like it.
ShellView view_of(std::string_view text, const Reading& in) {
  ShellView view{.arguments = in.options.arguments};
  const Ranks ranks = slurm_ranks(text);
  const auto set = [&](const char* name, int64_t count) {
    if (count > 0) view.variables[name] = std::to_string(count);
  };
  set("SLURM_NNODES", ranks.nodes);
  set("SLURM_JOB_NUM_NODES", ranks.nodes);
  set("SLURM_NTASKS_PER_NODE", ranks.per_node);
  set("SLURM_NTASKS", ranks.all > 0 ? ranks.all : ranks.nodes * ranks.per_node);
  return view;
}

void read_ranks(const ShellCommand& training, std::string_view text, Reading& in) {
  const Ranks ranks = ranks_of(training, in.dialect);
  in.run.world_size = ranks.product();
  if (in.run.world_size == 0) {
    // srun starts what the job has asked for, which who submits it may change.
    in.run.world_size = slurm_ranks(text).product();
    in.has_default_ranks = true;
    return;
  }
  // Ranks of a node alone leave open how many nodes there are.
  in.has_default_ranks = ranks.nodes == 0 && ranks.all == 0;
  if (!in.has_default_ranks && text.find('$') != std::string_view::npos) {
    // "${SLURM_NNODES:-1}" is what it starts where nobody says otherwise.
    ShellView view = view_of(text, in);
    view.all_set_outside = true;
    const ShellScript script = script_of(text, in.source, view, in.dialect);
    const ShellCommand* same = training_of(script.commands, in.dialect);
    const Ranks fixed = same == nullptr ? Ranks{} : ranks_of(*same, in.dialect);
    in.has_default_ranks = fixed.product() != ranks.product() || fixed.nodes != ranks.nodes;
  }
  if (!in.has_default_ranks) in.run.stated_world_size = ranks.product();
}

/// What a command starts, with or without a launcher; empty where that is no file.
std::string_view started_file(const ShellCommand& command) {
  const size_t first = first_argument(command.words);
  return first == 0 ? std::string_view() : std::string_view(command.words[first - 1]);
}

/// Commands that train otherwise than `training` does: in another node of the same run only what
/// stands in front of its script is another.
std::vector<const ShellCommand*> other_runs(const ShellScript& script, const ShellCommand& training,
                                            Dialect dialect) {
  const Arguments words = training.words;
  const int64_t ranks = ranks_of(training, dialect).product();
  std::vector<const ShellCommand*> runs;
  for (const ShellCommand& command : script.commands) {
    const Arguments others = command.words;
    const bool trains = others.front() == words.front() &&
                        started_file(command) == started_file(training) &&
                        num_known(command, dialect) > 0;
    if (trains && (!std::ranges::equal(others.subspan(first_argument(others)),
                                       words.subspan(first_argument(words))) ||
                   ranks_of(command, dialect).product() != ranks)) {
      runs.push_back(&command);
    }
  }
  return runs;
}

/// Where a script trains again and again, as over a list of layouts.
void note_other_runs(const ShellScript& script, const ShellCommand& training, Reading& in) {
  const std::vector<const ShellCommand*> others = other_runs(script, training, in.dialect);
  if (others.empty()) return;
  const size_t known = num_known(training, in.dialect);
  const bool are_alike = std::ranges::all_of(
      others, [&](const ShellCommand* other) { return num_known(*other, in.dialect) == known; });
  in.note(fmt::format("it starts {} runs that differ: the first{} is read", others.size() + 1,
                      are_alike ? "" : " with most of the known settings"));
}

/// One flag and the words behind it.
struct Flag {
  std::string name;
  std::vector<std::string> words;

  bool operator==(const Flag&) const = default;
};

std::vector<Flag> flags_of(Arguments words, std::vector<std::string>& others) {
  std::vector<Flag> flags;
  for (const std::string& word : words) {
    if (is_flag(word)) {
      const size_t equals = word.find('=');
      flags.push_back({word.substr(0, equals), {}});
      if (equals != std::string::npos) flags.back().words.push_back(word.substr(equals + 1));
    } else if (flags.empty()) {
      others.push_back(word);
    } else {
      flags.back().words.push_back(word);
    }
  }
  return flags;
}

/// The names of flags that two commands say differently.
std::vector<std::string> differing_flags(const ShellCommand& one, const ShellCommand& other) {
  std::vector<std::string> none;
  const std::vector<Flag> ours = flags_of(one.words, none);
  const std::vector<Flag> theirs = flags_of(other.words, none);
  std::vector<std::string> keys;
  for (const auto& [flags, others] : {std::pair{&ours, &theirs}, std::pair{&theirs, &ours}}) {
    for (const Flag& flag : *flags) {
      const bool is_same = std::ranges::find(*others, flag) != others->end();
      const bool is_told = std::ranges::find(keys, flag.name) != keys.end();
      if (!is_same && !is_told && keys.size() < kMostNamed) keys.push_back(flag.name);
    }
  }
  return keys;
}

/// Whether what is read of a script is the same with another view of it. A view that makes more of
/// the script than can be read says that it is not.
bool reads_alike(const ShellScript& script, const ShellCommand& training, const ShellView& view,
                 std::string_view text, const Reading& in) {
  try {
    const ShellScript other = script_of(text, in.source, view, in.dialect);
    const ShellCommand* same = training_of(other.commands, in.dialect);
    if (same == nullptr) return true;
    const auto value_of = [](const ShellCommand& command, std::string_view name) {
      const auto found = command.environment.find(name);
      return found == command.environment.end() ? std::string() : found->second;
    };
    const auto has_same = [&](std::string_view name) {
      return value_of(*same, name) == value_of(training, name);
    };
    return other_runs(other, *same, in.dialect).size() ==
               other_runs(script, training, in.dialect).size() &&
           std::ranges::all_of(environment_names(), has_same) &&
           ranks_of(*same, in.dialect).product() == ranks_of(training, in.dialect).product() &&
           differing_flags(training, *same).empty();
  } catch (const base::UsageError&) {
    return false;
  }
}

/// Where another round of a loop, which is read once or cut short, would change what is read.
void note_loops(const ShellScript& script, const ShellCommand& training, std::string_view text,
                Reading& in) {
  const auto note = [&](const std::vector<int64_t>& loops, const ShellView& view,
                        std::string_view words) {
    if (loops.empty() || reads_alike(script, training, view, text, in)) return;
    in.note(
        fmt::format("line {}{}: {}", loops.front(), loops.size() == 1 ? "" : " and others", words));
  };
  ShellView again = view_of(text, in);
  again.open_rounds = 2;
  note(script.open_loops, again,
       "only a run can tell how often this loop goes round: it is read once");
  ShellView half = view_of(text, in);
  half.most_rounds /= 2;
  note(script.cut_loops, half, "this loop goes round oftener than it is read");
}

/// Where a script chooses between branches that only a run can decide on.
void note_open_branches(const ShellScript& script, const ShellCommand& training,
                        std::string_view text, Reading& in) {
  if (script.open.empty()) return;
  ShellView view = view_of(text, in);
  view.takes_first = true;
  const ShellScript other = script_of(text, in.source, view, in.dialect);
  const ShellCommand* same = training_of(other.commands, in.dialect);
  if (same == nullptr) return;
  const std::vector<std::string> keys = differing_flags(training, *same);
  if (keys.empty()) return;
  const OpenBranch& open = script.open.front();
  in.note(fmt::format("line {}{}: only a run can tell '{}': {} as in the last branch", open.line,
                      script.open.size() == 1 ? "" : " and others", shown(open.condition),
                      text_of_keys(keys)));
}

std::string quoted(const std::vector<std::string>& words) {
  std::vector<std::string> parts;
  for (const std::string& word : words) parts.push_back(shell_quoted(word));
  return fmt::format("{}", fmt::join(parts, " "));
}

/// Leaves out variables that nobody sets behind a flag that has all of its values: they stand for
/// further flags, or for nothing.
void leave_out_unset(Flag& flag, Reading& in) {
  const std::string key = key_in_word(flag.name, in.dialect);
  const Row* row = find_row(key, in.dialect);
  const bool is_listed = row != nullptr || find_carried(key, in.dialect) != nullptr;
  const size_t num_values = row != nullptr && kind_of(*row) == Kind::flag ? 0 : 1;
  std::vector<std::string> kept;
  for (std::string& word : flag.words) {
    const bool is_array = word.ends_with("[@]}") || word.ends_with("[*]}");
    const bool is_further = kept.size() >= num_values && (is_listed || is_array);
    if (unset_variable_in(word).empty() || !is_further) {
      kept.push_back(std::move(word));
      continue;
    }
    in.run.is_partial = true;
    in.note(fmt::format("nothing sets '{}': what it adds is not known", shown(word)));
  }
  flag.words = std::move(kept);
}

void add_flag(Flag flag, Reading& in) {
  Setting setting{.key = std::move(flag.name), .words = std::move(flag.words)};
  setting.value = quoted(setting.words);
  // The last counts, as for the frameworks' parsers.
  const Setting* first = in.settings.find(setting.key);
  if (first != nullptr && first->words != setting.words) {
    in.note(fmt::format("'{}' stands twice, as '{}' and as '{}': the last one counts",
                        shown(setting.key), shown(first->value), shown(setting.value)));
    in.settings.remove(setting.key);
  }
  in.settings.add(std::move(setting), in.problems);
}

/// One that was given, by the word that names it, else by its name without the folder. Null: none.
const std::pair<const std::string, std::string>* file_in(const std::string& word,
                                                         const Reading& in) {
  const auto& files = in.options.files;
  auto at = files.find(word);
  if (at == files.end()) at = files.find(word.substr(word.rfind('/') + 1));
  return at == files.end() ? nullptr : &*at;
}

/// "--section.option", "--section.no-option": tyro takes dashes for underscores.
void add_titan_flag(Flag flag, Reading& in) {
  std::string key = key_in_word(flag.name, Dialect::torchtitan);
  if (key.empty()) {
    if (flag.name == "--module" || flag.name == "--config") {
      in.run.model_name += (in.run.model_name.empty() ? "" : "/") + quoted(flag.words);
    }
    add_flag(std::move(flag), in);
    return;
  }
  const size_t no = key.find(".no_");
  if (no != std::string::npos && !is_known(key, Dialect::torchtitan)) {
    std::string positive = key;
    positive.erase(no + 1, 3);
    if (is_known(positive, Dialect::torchtitan)) {
      key = std::move(positive);
      flag.words = {"false"};
    }
  }
  if (flag.words.empty()) flag.words = {"true"};
  if (key == kConfigFile) {
    const std::string name = flag.words[0].substr(flag.words[0].rfind('/') + 1);
    if (file_in(flag.words[0], in) == nullptr) {
      in.run.is_partial = true;
      in.note(fmt::format("{} has settings of its own and was not given", shown(name)));
    }
  }
  Setting setting{.key = std::move(key), .words = std::move(flag.words)};
  Node value;
  value.kind = Node::Kind::list;
  for (const std::string& word : setting.words) value.items.push_back(scalar_node(word));
  setting.value = toml_text(setting.words.size() == 1 ? value.items[0] : value);
  in.settings.remove(setting.key);  // of the file, which the command line overrides
  in.settings.add(std::move(setting), in.problems);
}

/// "key=value" as Hydra takes it, and options of the script.
void add_overrides(Arguments words, Reading& in) {
  std::vector<std::string> options;
  for (const std::string& word : words) {
    const std::string key = key_in_word(word, Dialect::megatron_bridge);
    if (key.empty()) {
      options.push_back(word);
      continue;
    }
    const std::string text = word.substr(word.find('=') + 1);
    const bool is_structured = text.starts_with('[') || text.starts_with('{') ||
                               text.starts_with('"') || text.starts_with('\'');
    const Node value = is_structured ? read_yaml_value(text, in.source) : scalar_node(text);
    const bool is_map = value.kind == Node::Kind::map;
    Setting setting{.key = key, .is_null = value.is_null(), .value = yaml_text(value)};
    if (value.kind == Node::Kind::list) {
      for (const Node& item : value.items) {
        setting.words.push_back(item.kind == Node::Kind::scalar ? item.text : yaml_text(item));
      }
    } else if (!setting.is_null) {
      setting.words = {is_map ? setting.value : value.text};
    }
    in.settings.add(std::move(setting), in.problems);
  }
  std::vector<std::string> others;
  for (Flag& flag : flags_of(options, others)) {
    // The ranks are read.
    if (is_launcher_option(flag.name)) continue;
    if (flag.name == kRecipeOption || flag.name == "--model")
      in.run.model_name = quoted(flag.words);
    add_flag(std::move(flag), in);
  }
}

/// Names that scripts give to what they make flags of, beside sizes of the layout ("TP",
/// "TP_SIZE").
struct ScriptVariable {
  std::string name;
  std::string row;
};
std::vector<ScriptVariable> script_variables() {
  std::vector<ScriptVariable> variables;
  for (const LayoutSize& size : layout_sizes()) {
    std::string name(size.name);
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    });
    variables.push_back({name, std::string(size.name)});
    variables.push_back({name + "_SIZE", std::string(size.name)});
  }
  for (const auto& [name, row] : {std::pair{"MBS", "micro_batch_size"},
                                  {"MICRO_BATCH_SIZE", "micro_batch_size"},
                                  {"GBS", "global_batch_size"},
                                  {"GLOBAL_BATCH_SIZE", "global_batch_size"},
                                  {"SEQ_LEN", "seq_length"},
                                  {"SEQ_LENGTH", "seq_length"},
                                  {"NUM_LAYERS", "num_layers"}}) {
    variables.push_back({name, row});
  }
  return variables;
}

/// A script that was not read makes flags of variables. Without them the run would be another.
void refuse_unread_script(const ShellCommand& training, const Reading& in) {
  const std::string_view script = started_file(training);
  const auto is_program = [](const std::string& word) { return word.ends_with(".py"); };
  if (!is_script_name(script) || std::ranges::any_of(training.words, is_program)) return;
  std::vector<std::string> variables;
  for (const ScriptVariable& variable : script_variables()) {
    const auto set = training.environment.find(variable.name);
    if (set == training.environment.end() || !parse_integer(set->second)) continue;
    const std::string flag = in.key(variable.row);
    if (flag.empty() || in.settings.find(flag) != nullptr) continue;
    variables.push_back(fmt::format("{}={}", set->first, set->second));
  }
  if (variables.empty()) return;
  throw base::UsageError(
      fmt::format("{}: starts {}, which was not read and makes the rest of {}: give what that "
                  "script runs",
                  in.source, shown(script), fmt::join(variables, " ")));
}

/// Primus' command line takes settings of its YAML as flags. Megatron-LM's parser knows none.
void refuse_underscores(const Reading& in) {
  if (in.options.is_echo) return;
  for (const Setting& setting : in.settings.all()) {
    std::string flag = setting.key;
    std::ranges::replace(flag, '_', '-');
    if (flag == setting.key || is_known(setting.key, in.dialect) || !is_known(flag, in.dialect)) {
      continue;
    }
    throw base::UsageError(
        fmt::format("{}: '{}' is no flag of Megatron-LM, which has '{}': of Primus' command line "
                    "give the YAML that it names",
                    in.source, shown(setting.key), shown(flag)));
  }
}

/// Where torchtitan's command line names a file that was given.
void read_named_files(Arguments words, Reading& in) {
  for (const std::string& word : words) {
    const auto* file = file_in(word.substr(word.rfind('=') + 1), in);
    if (file == nullptr || !file->first.ends_with(".toml")) continue;
    const std::string source = fmt::format("{}: names {}", in.source, file->first);
    flatten(read_toml(file->second, source), "", toml_text, in.settings, in.problems);
  }
}

}  // namespace

std::string key_in_word(std::string_view word, Dialect dialect) {
  const size_t equals = word.find('=');
  if (dialect == Dialect::megatron_lm) {
    return is_flag(word) ? std::string(word.substr(0, equals)) : "";
  }
  if (dialect == Dialect::torchtitan) {
    if (!is_flag(word) || word.substr(0, equals).find('.') == std::string_view::npos) return "";
    std::string key(word.substr(2, equals == std::string_view::npos ? equals : equals - 2));
    std::ranges::replace(key, '-', '_');
    return key;
  }
  if (dialect == Dialect::primus || equals == std::string_view::npos) return "";
  while (word.starts_with('+')) word.remove_prefix(1);
  const std::string_view key = word.substr(0, word.find('='));
  const bool is_path = !key.empty() && std::ranges::all_of(key, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  });
  return is_path ? std::string(key) : "";
}

void set_environment(Reading& reading, const std::string& name, const std::string& value) {
  const auto names = environment_names();
  if (std::ranges::find(names, name) != names.end()) reading.run.environment[name] = value;
}

bool has_settings(std::string_view script, Dialect dialect, const ImportOptions& options) {
  const ShellScript read =
      script_of(script, options.source, {.arguments = options.arguments}, dialect);
  return training_of(read.commands, dialect) != nullptr;
}

void read_command(std::string_view text, Reading& in) {
  const ShellScript script = script_of(text, in.source, view_of(text, in), in.dialect);
  const ShellCommand* training = training_of(script.commands, in.dialect);
  if (training == nullptr) return;
  in.run.is_command = true;
  const Arguments words = training->words;
  const size_t first = first_argument(words);
  for (const auto& [name, value] : training->environment) set_environment(in, name, value);
  in.program = started_file(*training);
  read_ranks(*training, text, in);
  note_open_branches(script, *training, text, in);
  note_loops(script, *training, text, in);
  note_other_runs(script, *training, in);
  const Arguments arguments = words.subspan(first);
  if (in.dialect == Dialect::megatron_bridge) {
    add_overrides(arguments, in);
    return;
  }
  std::vector<std::string> others;
  if (in.dialect == Dialect::torchtitan) read_named_files(arguments, in);
  for (Flag& flag : flags_of(arguments, others)) {
    leave_out_unset(flag, in);
    if (in.dialect == Dialect::torchtitan) {
      add_titan_flag(std::move(flag), in);
    } else {
      add_flag(std::move(flag), in);
    }
  }
  if (in.dialect == Dialect::megatron_lm) {
    refuse_underscores(in);
    refuse_unread_script(*training, in);
  }
  if (first > 0 && !others.empty()) {
    in.run.is_partial = true;
    in.note(fmt::format("'{}' in front of the flags was not understood", shown(others.front())));
  }
}

}  // namespace moetune::spec::dialects
