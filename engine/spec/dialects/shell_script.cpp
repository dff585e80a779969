#include "engine/spec/dialects/shell_script.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/spec/dialects/values.h"

namespace moetune::spec::dialects {
namespace {

// What nests deeper is refused before it uses up the stack: a text may come from anywhere.
constexpr int kDeepestShell = 4;
constexpr int kDeepestCommand = 64;

bool is_declaration(std::string_view word) {
  constexpr std::array<std::string_view, 5> kNames = {"export", "declare", "local", "readonly",
                                                      "typeset"};
  return std::ranges::find(kNames, word) != kNames.end();
}

/// Whether a declaration in a function makes variables of its own.
bool has_locals(const ShellValues& words) {
  constexpr std::array<std::string_view, 3> kNames = {"local", "declare", "typeset"};
  if (words.empty() || std::ranges::find(kNames, words.front()) == kNames.end()) return false;
  return std::ranges::find(words, "-g") == words.end();
}

using Environment = std::map<std::string, std::string, std::less<>>;

/// Sets NAME of "NAME=VALUE". False: the word is none.
bool take_variable(std::string_view word, Environment& variables) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0 || !is_name_start(word.front()) ||
      !std::ranges::all_of(word.substr(0, equals), is_name_part)) {
    return false;
  }
  variables.insert_or_assign(std::string(word.substr(0, equals)),
                             std::string(word.substr(equals + 1)));
  return true;
}

/// "env NAME=VALUE ... COMMAND", wherever it stands, becomes COMMAND. "--export=ALL,NAME=VALUE" of
/// Slurm stays, and sets its variables too.
void take_variables(ShellValues& words, Environment& variables) {
  constexpr std::string_view kExport = "--export=";
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "env" || words[i].ends_with("/env")) {
      size_t end = i + 1;
      while (end < words.size() && take_variable(words[end], variables)) ++end;
      if (end == i + 1) continue;
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i),
                  words.begin() + static_cast<std::ptrdiff_t>(end));
    } else if (words[i].starts_with(kExport)) {
      for (std::string_view rest = std::string_view(words[i]).substr(kExport.size());
           !rest.empty();) {
        const size_t comma = std::min(rest.find(','), rest.size());
        take_variable(rest.substr(0, comma), variables);
        rest.remove_prefix(std::min(comma + 1, rest.size()));
      }
    }
  }
}

}  // namespace

ScriptReader::ScriptReader(std::string_view text, std::string source, const ShellView& view,
                           ShellBudget& budget, int depth)
    : in_(text, source),
      source_(std::move(source)),
      view_(view),
      budget_(budget),
      depth_(depth),
      word_reader_(in_, variables_, budget, view.all_set_outside) {}

ShellScript ScriptReader::read(ShellVariables variables) {
  variables_ = std::move(variables);
  variables_["@"] = view_.arguments;
  list({});
  read_uncalled();
  return {std::move(commands_), std::move(open_), std::move(open_loops_), std::move(cut_loops_)};
}

// The text between commands.

/// Behind blanks and lines that go on.
void ScriptReader::skip_blanks() {
  while (true) {
    const char c = in_.peek();
    const bool is_return = c == '\\' && in_.peek(1) == '\r' && in_.peek(2) == '\n';
    if (c == '\\' && (in_.peek(1) == '\n' || is_return)) {
      in_.next();
      in_.take('\r');
      in_.next();
    } else if (!in_.at_end() && (c == ' ' || c == '\t' || c == '\r')) {
      in_.next();
    } else {
      return;
    }
  }
}

void ScriptReader::skip_lines() {
  while (true) {
    skip_blanks();
    if (in_.at_end()) return;
    if (in_.peek() == '#') {
      in_.skip_line();
    } else if (in_.peek() == '\n') {
      newline();
    } else {
      return;
    }
  }
}

void ScriptReader::newline() {
  in_.next();
  if (!here_documents_.empty()) read_here_documents();
}

void ScriptReader::skip_redirection() {
  const bool is_here_string = in_.starts_with("<<<");
  const bool is_here_document = in_.starts_with("<<") && !is_here_string;
  HereDocument here;
  while (!in_.at_end() && std::string_view("<>&").find(in_.peek()) != std::string::npos) in_.next();
  if (is_here_document) here.skips_tabs = in_.take('-');
  in_.skip_blanks();
  if (in_.at_line_end() || in_.peek() == '|' || in_.peek() == ';') return;
  if (is_here_string) {
    here_string_ = word_reader_.operand();
    return;
  }
  here.end = joined(word_reader_.words());
  if (is_here_document && !here.end.empty()) here_documents_.push_back(std::move(here));
}

/// Scripts that a script hands on. A text that is none has no commands.
void ScriptReader::read_here_documents() {
  for (const HereDocument& here : std::exchange(here_documents_, {})) {
    Cursor ahead = in_;
    const size_t first = ahead.at();
    size_t end = first;
    bool is_found = false;
    while (!ahead.at_end() && !is_found) {
      end = ahead.at();
      if (here.skips_tabs) {
        while (ahead.take('\t')) continue;
      }
      const size_t start = ahead.at();
      ahead.skip_line();
      std::string_view line = ahead.from(start);
      if (line.ends_with('\r')) line.remove_suffix(1);
      is_found = line == here.end;
      ahead.next();
    }
    step((ahead.at() - first) / kBytesPerStep);
    if (!is_found) return;  // as lines of the script itself
    const std::string_view text = ahead.from(first).substr(0, end - first);
    in_ = ahead;
    if (!runs()) continue;
    try {
      read_inside(text, {});
    } catch (const base::UsageError&) {
      continue;
    }
  }
}

std::string ScriptReader::bare_word() const {
  constexpr size_t kLongest = 9;
  std::string word;
  while (word.size() < kLongest) {
    const char c = in_.peek(word.size());
    if (std::string_view(" \t\r\n;&|()<>").find(c) != std::string::npos || c == '\0') break;
    word += c;
  }
  return word;
}

bool ScriptReader::take_word(std::string_view word) {
  if (bare_word() != word) return false;
  in_.skip(word.size());
  return true;
}

// Commands.

ScriptReader::List ScriptReader::list(std::initializer_list<std::string_view> closers) {
  Truth truth = Truth::yes;
  while (true) {
    skip_blanks();
    if (in_.at_end()) return {{}, truth};
    const char c = in_.peek();
    for (const std::string_view closer : closers) {
      const bool is_sign = closer == ";;" || closer == ")";
      if (is_sign ? !in_.starts_with(closer) : !take_word(closer)) continue;
      if (is_sign) in_.skip(closer.size());
      return {closer, truth};
    }
    if (c == '\n') {
      newline();
    } else if (c == '#') {
      in_.skip_line();
    } else if (c == ';' || c == '|' || c == ')' || (c == '&' && in_.peek(1) != '>')) {
      in_.next();
    } else {
      const size_t before = in_.at();
      truth = and_or();
      if (in_.at() == before) in_.next();
    }
  }
}

Truth ScriptReader::and_or() {
  const size_t mark = journal_.size();
  const Stop before = stop_;
  Truth truth = pipeline();
  while (true) {
    skip_blanks();
    const bool is_and = in_.starts_with("&&");
    if (!is_and && !in_.starts_with("||")) {
      if (in_.peek() == '&') end_subshell(mark, before);  // beside what follows
      return truth;
    }
    in_.skip(2);
    skip_lines();
    const Truth runs_next = is_and ? truth : contrary_of(truth);
    Choice choice;
    read_part(choice, runs_next, [&] { return pipeline(); });
    const Truth found = settle(choice);
    if (runs_next != Truth::no) truth = runs_next == Truth::yes ? found : Truth::unknown;
  }
}

Truth ScriptReader::pipeline() {
  size_t mark = journal_.size();
  const Stop before = stop_;
  Truth truth = command();
  bool is_piped = false;
  while (true) {
    skip_blanks();
    const bool has_more = !in_.at_end() && in_.peek() == '|' && in_.peek(1) != '|';
    is_piped = is_piped || has_more;
    if (is_piped) end_subshell(mark, before);
    if (!has_more) return truth;
    in_.next();
    in_.take('&');
    skip_lines();
    mark = journal_.size();
    truth = command();
  }
}

Truth ScriptReader::command() {
  if (nested_ == kDeepestCommand)
    in_.fail(fmt::format("nested more than {} deep", kDeepestCommand));
  ++nested_;
  Truth truth = Truth::unknown;
  const std::string word = bare_word();
  if (in_.starts_with("((")) {
    truth = arithmetic(arithmetic_text());
  } else if (in_.take('(')) {
    truth = group(')');
  } else if (take_word("{")) {
    truth = group('}');
  } else if (take_word("!")) {
    skip_blanks();
    truth = contrary_of(command());
  } else if (take_word("[[")) {
    truth = test("]]");
  } else if (take_word("[")) {
    truth = test("]");
  } else if (take_word("test")) {
    truth = test("");
  } else if (take_word("if")) {
    truth = if_clause();
  } else if (take_word("case")) {
    truth = case_clause();
  } else if (take_word("while") || take_word("until")) {
    truth = while_clause(word == "until");
  } else if (take_word("for") || take_word("select")) {
    truth = for_clause();
  } else if (!take_function()) {
    truth = simple_command();
  }
  --nested_;
  while (true) {
    skip_blanks();
    const char c = in_.peek();
    const bool has_number = c >= '0' && c <= '9' && (in_.peek(1) == '>' || in_.peek(1) == '<');
    if (has_number || in_.starts_with("&>")) {
      in_.next();
    } else if (in_.at_end() || (c != '<' && c != '>')) {
      return truth;
    }
    skip_redirection();
  }
}

Truth ScriptReader::simple_command() {
  command_words_.clear();
  here_string_.reset();
  first_assigned_ = journal_.size();
  while (true) {
    skip_blanks();
    const char c = in_.peek();
    if (in_.at_end() || std::string_view("\n;|()").find(c) != std::string::npos) break;
    if (c == '#') {
      in_.skip_line();
      break;
    }
    if (in_.starts_with("&>")) {
      in_.next();
      skip_redirection();
    } else if (c == '&') {
      break;
    } else if (c == '<' || c == '>') {
      skip_redirection();
    } else {
      read_word();
    }
  }
  return end_command();
}

void ScriptReader::read_word() {
  if ((command_words_.empty() || is_declaration(command_words_.front())) && is_assignment()) {
    if (has_locals(command_words_)) make_local(name_here());
    assign();
    return;
  }
  // "2>" is a redirection, too.
  if ((in_.peek() == '1' || in_.peek() == '2') && in_.peek(1) == '>') {
    in_.next();
    skip_redirection();
    return;
  }
  for (std::string& word : word_reader_.words()) add(std::move(word));
}

void ScriptReader::add(std::string word) {
  if (budget_.words == 0) in_.fail("it has too many words");
  --budget_.words;
  command_words_.push_back(std::move(word));
}

Truth ScriptReader::end_command() {
  ShellValues words = std::exchange(command_words_, {});
  const size_t mark = first_assigned_;
  for (const auto& [name, value] : word_reader_.take_defaults()) {
    if (runs()) set(name, ShellValues{value});
  }
  if (!runs()) return Truth::unknown;
  if (has_locals(words)) {
    for (const std::string& name : words) make_local(name);
  }
  if (words.empty() || is_declaration(words.front())) {
    const bool is_known = std::all_of(
        journal_.begin() + static_cast<std::ptrdiff_t>(mark), journal_.end(), [&](const auto& row) {
          return joined(variables_[row.first]).find_first_of("$`") == std::string::npos;
        });
    return is_known ? Truth::yes : Truth::unknown;
  }
  if (const auto truth = built_in(words)) return *truth;
  if (const auto function = functions_.find(words.front()); function != functions_.end()) {
    function->second.is_called = true;
    return call(function->second, {words.begin() + 1, words.end()});
  }
  const bool is_exec = words.front() == "exec" && words.size() > 1;
  if (is_exec) words.erase(words.begin());
  look_inside(words);
  auto variables = environment();
  take_variables(words, variables);
  commands_.push_back({std::move(words), std::move(variables)});
  undo(mark);
  if (is_exec) stop_ = Stop::script;
  return Truth::unknown;
}

std::optional<Truth> ScriptReader::built_in(const ShellValues& words) {
  const std::string& name = words.front();
  if (name == "true" || name == ":") return Truth::yes;
  if (name == "false") return Truth::no;
  if (stop_by(words)) return Truth::unknown;
  if (name == "let") {
    for (size_t i = 1; i < words.size(); ++i) assign_in(words[i]);
    return Truth::unknown;
  }
  if (name == "unset") {
    for (size_t i = 1; i < words.size(); ++i) set(words[i], std::nullopt);
    return Truth::yes;
  }
  if (name == "shift" || (name == "set" && words.size() > 1 && words[1] == "--")) {
    ShellValues arguments = variables_["@"];
    if (name == "set") {
      arguments.assign(words.begin() + 2, words.end());
    } else {
      const auto count = words.size() > 1 ? parse_integer(words[1]) : 1;
      const auto num = static_cast<int64_t>(arguments.size());
      if (!count || *count < 0 || *count > num) return Truth::no;
      arguments.erase(arguments.begin(), arguments.begin() + *count);
    }
    word_reader_.spend(arguments);
    set("@", std::move(arguments));
    return Truth::yes;
  }
  if (name == "read") {
    read_variables(words);
    return Truth::unknown;
  }
  if (name == "eval") {
    read_inside(joined({words.begin() + 1, words.end()}), variables_["@"]);
    return Truth::unknown;
  }
  return std::nullopt;
}

bool ScriptReader::stop_by(const ShellValues& words) {
  const std::string& name = words.front();
  const bool is_round = name == "continue";
  if (name == "exit") {
    stop_ = Stop::script;
  } else if (name == "return") {
    if (calls_ > 0) stop_ = Stop::function;
  } else if (is_round || name == "break") {
    if (loops_ > 0) stop_ = is_round ? Stop::round : Stop::loop;
    stopped_loops_ = words.size() > 1 ? parse_integer(words[1]).value_or(1) : 1;
  } else {
    return false;
  }
  return true;
}

void ScriptReader::end_subshell(size_t mark, Stop before) {
  undo(mark);
  stop_ = before;
}

/// "IFS=, read -r A B <<< TEXT". What comes from elsewhere is not known.
void ScriptReader::read_variables(const ShellValues& words) {
  std::string between = " \t\n";
  if (const auto set_here = variables_.find("IFS"); set_here != variables_.end()) {
    between = joined(set_here->second);
  }
  undo(first_assigned_);
  const bool is_array =
      std::ranges::any_of(words, [](const auto& word) { return word == "-a" || word == "-ra"; });
  std::string_view rest = here_string_ ? std::string_view(here_string_->text) : std::string_view();
  if (!here_string_ || !here_string_->is_known) return;
  const auto next = [&](bool takes_all) {
    const size_t end = takes_all ? rest.size() : std::min(rest.find_first_of(between), rest.size());
    std::string value(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return value;
  };
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i].starts_with('-')) continue;
    ShellValues values;
    do {
      values.push_back(next(!is_array && i + 1 == words.size()));
    } while (is_array && !rest.empty());
    set(words[i], std::move(values));
  }
}

/// `bash -c TEXT` holds commands of its own.
void ScriptReader::look_inside(const ShellValues& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    const bool is_shell = words[i] == "bash" || words[i] == "sh" || words[i].ends_with("/bash") ||
                          words[i].ends_with("/sh");
    if (!is_shell) continue;
    size_t k = i + 1;
    bool has_text = false;
    for (; k < words.size() && words[k].starts_with('-') && !has_text; ++k) {
      has_text = !words[k].starts_with("--") && words[k].ends_with('c');
    }
    if (!has_text || k >= words.size()) continue;
    const size_t first = std::min(k + 2, words.size());  // behind the name of the shell
    read_inside(words[k], {words.begin() + static_cast<std::ptrdiff_t>(first), words.end()});
  }
}

void ScriptReader::read_inside(std::string_view text, ShellValues arguments) {
  if (depth_ == kDeepestShell) in_.fail(fmt::format("shells in shells, more than {}", depth_));
  for (const auto& [name, values] : variables_) {
    size_t bytes = name.size();
    for (const std::string& value : values) bytes += value.size();
    step(1 + values.size() + bytes / kBytesPerStep);
  }
  ShellView view = view_;
  view.arguments = std::move(arguments);
  ShellScript inner = ScriptReader(text, source_, view, budget_, depth_ + 1).read(variables_);
  std::ranges::move(inner.commands, std::back_inserter(commands_));
  std::ranges::move(inner.open, std::back_inserter(open_));
  std::ranges::move(inner.open_loops, std::back_inserter(open_loops_));
  std::ranges::move(inner.cut_loops, std::back_inserter(cut_loops_));
}

// Variables.

/// NAME=, NAME+= before the first word of a command.
bool ScriptReader::is_assignment() const {
  size_t i = 0;
  if (!is_name_start(in_.peek())) return false;
  while (is_name_part(in_.peek(i))) ++i;
  if (in_.peek(i) == '+') ++i;
  return in_.peek(i) == '=';
}

std::string ScriptReader::name_here() const {
  std::string name;
  for (size_t i = 0; is_name_part(in_.peek(i)); ++i) name += in_.peek(i);
  return name;
}

void ScriptReader::make_local(const std::string& name) {
  if (!runs() || locals_.empty() || name.empty() || !is_name_start(name[0])) return;
  Journal& locals = locals_.back();
  const bool is_known =
      std::ranges::any_of(locals, [&](const auto& row) { return row.first == name; });
  if (is_known) return;
  step(locals.size());
  const auto old = variables_.find(name);
  locals.emplace_back(name, old == variables_.end() ? std::nullopt : std::optional(old->second));
}

void ScriptReader::assign() {
  const std::string name = name_here();
  in_.skip(name.size());
  const bool appends = in_.take('+');
  in_.next();
  const bool is_array = in_.peek() == '(';
  ShellValues values = is_array ? array() : ShellValues{joined(word_reader_.words())};
  if (!runs()) return;
  if (appends) {
    ShellValues all;
    if (const auto old = variables_.find(name); old != variables_.end()) all = old->second;
    if (!is_array && all.size() == 1) {
      all[0] += values[0];
    } else {
      all.insert(all.end(), values.begin(), values.end());
    }
    word_reader_.spend(all);
    values = std::move(all);
  }
  set(name, std::move(values));
}

ShellValues ScriptReader::array() {
  const int64_t line = in_.line();
  in_.next();
  ShellValues values;
  while (!in_.take(')')) {
    if (in_.at_end()) in_.fail(line, "a parenthesis is not closed");
    const char c = in_.peek();
    if (c == '#') {
      in_.skip_line();
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      in_.next();
    } else if (c == '\\' && in_.peek(1) == '\n') {
      in_.skip(2);
    } else if (std::string_view("(;&|<>").find(c) != std::string::npos) {
      in_.fail(fmt::format("'{}' in an array", c));
    } else {
      for (std::string& word : word_reader_.words()) values.push_back(std::move(word));
    }
  }
  return values;
}

void ScriptReader::set(const std::string& name, std::optional<ShellValues> values) {
  step();
  std::optional<ShellValues> old;
  if (const auto at = variables_.find(name); at != variables_.end()) old = std::move(at->second);
  if (values) {
    variables_[name] = std::move(*values);
  } else {
    variables_.erase(name);
  }
  journal_.emplace_back(name, std::move(old));
}

/// Takes changes back, and gives them.
ScriptReader::Journal ScriptReader::undo(size_t mark) {
  Journal changes;
  while (journal_.size() > mark) {
    auto [name, old] = std::move(journal_.back());
    journal_.pop_back();
    std::optional<ShellValues> now;
    if (const auto at = variables_.find(name); at != variables_.end()) now = std::move(at->second);
    if (old) {
      variables_[name] = std::move(*old);
    } else {
      variables_.erase(name);
    }
    changes.emplace_back(std::move(name), std::move(now));
  }
  return changes;
}

void ScriptReader::redo(Journal changes) {
  for (auto change = changes.rbegin(); change != changes.rend(); ++change) {
    set(change->first, std::move(change->second));
  }
}

Environment ScriptReader::environment() {
  Environment all;
  for (const auto& [name, values] : variables_) {
    if (name == "@") continue;
    std::string text = joined(values);
    step(1 + text.size() / kBytesPerStep);
    all.emplace_hint(all.end(), name, std::move(text));
  }
  return all;
}

}  // namespace moetune::spec::dialects
