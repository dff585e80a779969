// What scripts make of commands: groups, tests, choices, loops, functions.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/spec/dialects/shell_arithmetic.h"
#include "engine/spec/dialects/shell_script.h"

namespace moetune::spec::dialects {
namespace {

// Beyond these nothing is read any more: a function may call itself, a loop may be endless.
constexpr int kDeepestCall = 8;

constexpr std::string_view kDone = "done";

/// A command that says flags, and does more than print them.
bool is_launch(const ShellCommand& command) {
  const std::string& first = command.words.front();
  if (first == "echo" || first == "printf") return false;
  return std::ranges::any_of(command.words, [](std::string_view word) {
    return word.size() > 2 && word.starts_with("--");
  });
}
/// Of what stands between "if" and behind "then".
std::string condition_in(std::string_view text) {
  text.remove_suffix(std::string_view("then").size());
  constexpr std::string_view kAround = " \t\r\n;";
  const size_t first = std::min(text.find_first_not_of(kAround), text.size());
  text.remove_prefix(first);
  return std::string(text.substr(0, text.find_last_not_of(kAround) + 1));
}

}  // namespace

bool has_launch(const std::vector<ShellCommand>& commands) {
  return std::ranges::any_of(commands, is_launch);
}

bool ScriptReader::Part::is_viable() const { return stop != Stop::script || has_launch(commands); }

Truth ScriptReader::group(char closer) {
  if (closer == '}') return list({"}"}).truth;
  const size_t mark = journal_.size();
  const Stop before = stop_;
  const Truth truth = list({")"}).truth;
  end_subshell(mark, before);
  return truth;
}

Truth ScriptReader::test(std::string_view closer) {
  const bool is_double = closer == "]]";
  std::vector<TestWord> words;
  while (true) {
    skip_blanks();
    if (is_double && in_.peek() == '\n') newline();
    if (in_.at_end()) break;
    if (!closer.empty() && take_word(closer)) break;
    const char c = in_.peek();
    const bool is_long = in_.starts_with("&&") || in_.starts_with("||");
    const bool is_short = std::string_view("()<>").find(c) != std::string::npos;
    if (is_double && (is_long || is_short)) {
      std::string text(1, in_.next());
      if (is_long) text += in_.next();
      words.push_back({{std::move(text)}, true});
      continue;
    }
    if (is_short || std::string_view("\n;&|").find(c) != std::string::npos) break;
    words.push_back({word_reader_.operand()});
    step();
  }
  return truth_of_test(words, variables_);
}

std::string_view ScriptReader::arithmetic_text() {
  const size_t first = in_.at();
  skip_parentheses(in_);
  const std::string_view text = in_.from(first);
  return text.ends_with("))") ? text.substr(2, text.size() - 4) : std::string_view();
}

Truth ScriptReader::arithmetic(std::string_view text) {
  const ShellOperand inside = word_reader_.filled(text);
  const auto value = arithmetic_value(inside.text, variables_);
  // "--x" has a value, too, and changes x.
  const bool is_test = value && inside.is_known && !arithmetic_change(inside.text);
  if (is_test) return truth_of(*value != 0);
  assign_in(inside.text);
  return Truth::unknown;
}

void ScriptReader::assign_in(std::string_view expressions) {
  if (!runs()) return;
  while (!expressions.empty()) {
    const size_t end = std::min(expressions.find(','), expressions.size());
    const std::string_view one = expressions.substr(0, end);
    expressions.remove_prefix(std::min(end + 1, expressions.size()));
    const auto change = arithmetic_change(one);
    if (!change) continue;
    const auto value = arithmetic_value(change->value, variables_);
    set(change->name, ShellValues{value ? std::to_string(*value) : fmt::format("$(({}))", one)});
  }
}

Truth ScriptReader::choose(const std::function<void(Choice&, bool ignores_conditions)>& read) {
  const Cursor start = in_;
  Choice choice;
  read(choice, false);
  const bool fails = choice.is_decided && std::ranges::none_of(choice.parts, &Part::is_viable);
  if (fails && runs()) {
    go_back(start);
    choice = {};
    read(choice, true);
  }
  return settle(choice);
}

void ScriptReader::go_back(const Cursor& start) {
  step((in_.at() - start.at()) / kBytesPerStep + 1);
  in_ = start;
}

Truth ScriptReader::if_clause() {
  return choose(
      [&](Choice& choice, bool ignores_conditions) { if_parts(choice, ignores_conditions); });
}

void ScriptReader::if_parts(Choice& choice, bool ignores_conditions) {
  choice.about.line = in_.line();
  while (true) {
    List head;
    const size_t first = in_.at();
    {
      const Pause pause(*this, choice.is_decided);
      head = list({"then", "fi"});
      if (head.closer != "then") return;
    }
    if (choice.about.condition.empty()) choice.about.condition = condition_in(in_.from(first));
    List part;
    read_part(choice, ignores_conditions ? Truth::unknown : head.truth, [&] {
      part = list({"elif", "else", "fi"});
      return part.truth;
    });
    if (part.closer == "else") {
      read_part(choice, Truth::yes, [&] { return list({"fi"}).truth; });
    }
    if (part.closer != "elif") return;
  }
}

Truth ScriptReader::case_clause() {
  const int64_t line = in_.line();
  skip_blanks();
  const size_t first = in_.at();
  const ShellOperand subject = word_reader_.operand();
  const std::string condition(in_.from(first));
  skip_lines();
  if (!take_word("in")) return Truth::unknown;
  return choose([&](Choice& choice, bool ignores_conditions) {
    choice.about = {line, condition};
    case_parts(choice, ignores_conditions, subject);
  });
}

void ScriptReader::case_parts(Choice& choice, bool ignores_conditions,
                              const ShellOperand& subject) {
  while (true) {
    skip_lines();
    if (in_.at_end() || take_word("esac")) return;
    in_.take('(');
    const Truth match = matching_case(subject);
    List part;
    read_part(choice, ignores_conditions ? Truth::unknown : match, [&] {
      part = list({";;", "esac"});
      return part.truth;
    });
    if (part.closer != ";;") return;
  }
}

/// Reads the patterns in front of a part.
Truth ScriptReader::matching_case(const ShellOperand& subject) {
  Truth found = Truth::no;
  while (true) {
    skip_lines();
    if (in_.at_end() || in_.take(')')) return found;
    const size_t before = in_.at();
    const ShellOperand pattern = word_reader_.operand();
    if (in_.at() == before) {
      in_.next();  // '|'
      continue;
    }
    const Truth truth = truth_of_match(subject, pattern);
    if (truth == Truth::yes || found == Truth::no) found = truth;
  }
}

/// Loops are followed whose condition is known and reads what a round has changed: arguments that
/// are shifted, a variable that counts.
Truth ScriptReader::while_clause(bool is_until) {
  const Cursor start = in_;
  const int64_t line = in_.line();
  size_t num_open = 0;
  for (size_t round = 0;; ++round) {
    const size_t first = in_.at();
    const List head = list({"do"});
    if (head.closer.empty()) return Truth::unknown;
    const std::string_view text = in_.from(first);
    Truth condition = is_until ? contrary_of(head.truth) : head.truth;
    // What a branch that may not have been taken has set ends no loop.
    if (num_open > 0 && condition == Truth::no) condition = Truth::unknown;
    // The last of these was read to know whether there is one more.
    const bool is_cut = runs() && condition == Truth::yes && round >= view_.most_rounds;
    if (is_cut) {
      cut_loops_.push_back(line);
      condition = Truth::no;
    }
    const ShellVariables before = runs() ? values_in(text) : ShellVariables();
    const size_t num_arguments = variables_["@"].size();
    const size_t num_guesses = guesses_.size();
    read_round(condition, kDone);
    if (!ends_round() || !runs() || condition == Truth::no) return Truth::unknown;
    const bool is_known = condition == Truth::yes;
    const bool is_shifted = is_known && variables_["@"].size() < num_arguments;
    const bool is_counting = is_known && !is_shifted && counts(before, num_guesses);
    const bool is_counted = is_counting && budget_.rounds > 0;
    if (is_counted) --budget_.rounds;
    if (is_counting && !is_counted && round > 0) {
      cut_loops_.push_back(line);
      return Truth::unknown;
    }
    if (!is_shifted && !is_counted && !is_read_again(line, num_open++)) return Truth::unknown;
    go_back(start);
  }
}

ShellVariables ScriptReader::values_in(std::string_view text) {
  ShellVariables values;
  step(text.size() / kBytesPerStep + 1);
  while (!text.empty()) {
    const size_t size = std::ranges::find_if_not(text, is_name_part) - text.begin();
    const auto found = variables_.find(text.substr(0, size));
    if (found != variables_.end()) {
      size_t bytes = 0;
      for (const std::string& value : found->second) bytes += value.size();
      step(found->second.size() + bytes / kBytesPerStep);
      values.insert(*found);
    }
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return values;
}

bool ScriptReader::counts(const ShellVariables& before, size_t num_guesses) const {
  bool has_changed = false;
  for (const auto& [name, values] : before) {
    const auto now = variables_.find(name);
    if (now == variables_.end() || now->second == values) continue;
    const auto first = guesses_.begin() + static_cast<std::ptrdiff_t>(num_guesses);
    const bool is_known = joined(now->second).find_first_of("$`") == std::string::npos;
    if (!is_known || std::find(first, guesses_.end(), name) != guesses_.end()) return false;
    has_changed = true;
  }
  return has_changed;
}

bool ScriptReader::is_read_again(int64_t line, size_t round) {
  if (round == 0) open_loops_.push_back(line);
  return round + 1 < view_.open_rounds;
}

std::string_view ScriptReader::take_body() {
  in_.skip_blanks();
  in_.take(';');
  skip_lines();
  if (take_word("do")) return kDone;
  return take_word("{") ? "}" : "";
}

/// "for ((i = 0; i < 4; i++))".
Truth ScriptReader::counting_clause() {
  const int64_t line = in_.line();
  std::array<std::string_view, 3> parts;  // what is set first, the condition, what a round changes
  std::string_view text = arithmetic_text();
  for (std::string_view& part : parts) {
    part = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
  }
  const std::string_view closer = take_body();
  if (closer.empty()) return Truth::unknown;
  const Cursor start = in_;
  arithmetic(parts[0]);
  Truth condition = arithmetic(parts[1]);
  for (size_t round = 0;; ++round) {
    read_round(condition, closer);
    if (!ends_round() || !runs() || condition == Truth::no) return Truth::unknown;
    arithmetic(parts[2]);
    condition = arithmetic(parts[1]);
    if (condition == Truth::no) return Truth::unknown;
    const bool is_counted =
        condition == Truth::yes && round + 1 < view_.most_rounds && budget_.rounds > 0;
    if (is_counted) --budget_.rounds;
    if (!is_counted && condition == Truth::yes && round > 0) cut_loops_.push_back(line);
    if (!is_counted && !is_read_again(line, round)) return Truth::unknown;
    go_back(start);
  }
}

Truth ScriptReader::for_clause() {
  skip_blanks();
  if (in_.starts_with("((")) return counting_clause();
  const int64_t line = in_.line();
  const size_t first = in_.at();
  while (is_name_part(in_.peek())) in_.next();
  const std::string name(in_.from(first));
  ShellValues items = variables_["@"];
  skip_lines();
  if (take_word("in")) {
    items.clear();
    while (true) {
      skip_blanks();
      const size_t before = in_.at();
      for (std::string& word : word_reader_.words()) items.push_back(std::move(word));
      if (in_.at() == before) break;
    }
  }
  const std::string_view closer = take_body();
  if (closer.empty()) return Truth::unknown;
  const Cursor start = in_;
  if (items.size() > view_.most_rounds) cut_loops_.push_back(line);
  for (size_t i = 0; i < std::max<size_t>(items.size(), 1) && i < view_.most_rounds; ++i) {
    if (i > 0) {
      if (!runs()) break;
      go_back(start);
    }
    if (runs() && !items.empty() && !name.empty()) set(name, ShellValues{items[i]});
    read_round(truth_of(!items.empty()), closer);
    if (!ends_round()) break;
  }
  return Truth::unknown;
}

/// The commands of a loop up to its end, once.
void ScriptReader::read_round(Truth condition, std::string_view closer) {
  Choice choice;
  ++loops_;
  read_part(choice, condition, [&] { return list({closer}).truth; });
  settle(choice);
  --loops_;
}

bool ScriptReader::ends_round() {
  if (stop_ != Stop::round && stop_ != Stop::loop) return true;
  const bool is_here = --stopped_loops_ <= 0;
  const bool goes_on = is_here && stop_ == Stop::round;
  if (is_here) stop_ = Stop::none;
  return goes_on;
}

/// "NAME() {", "function NAME {". False where none is defined here.
bool ScriptReader::take_function() {
  constexpr std::string_view kWord = "function";
  const bool has_word = bare_word() == kWord;
  Cursor ahead = in_;
  if (has_word) {
    ahead.skip(kWord.size());
    ahead.skip_blanks();
  }
  const size_t first = ahead.at();
  while (is_name_part(ahead.peek()) || ahead.peek() == '-' || ahead.peek() == '.') ahead.next();
  const std::string name(ahead.from(first));
  ahead.skip_blanks();
  const bool has_parentheses = ahead.peek() == '(' && ahead.peek(1) == ')';
  if (name.empty() || !(has_word || has_parentheses)) return false;
  in_ = ahead;
  if (has_parentheses) in_.skip(2);
  skip_lines();
  const char opening = in_.peek();
  if (opening != '{' && opening != '(') return true;
  in_.next();
  const Cursor body = in_;
  const char closer = opening == '{' ? '}' : ')';
  {
    const Pause pause(*this, true);
    group(closer);
  }
  if (runs()) functions_.insert_or_assign(name, Function{body, in_.at() - body.at(), closer});
  return true;
}

Truth ScriptReader::call(const Function& function, ShellValues arguments) {
  if (calls_ == kDeepestCall) return Truth::unknown;
  ++calls_;
  step(function.size / kBytesPerStep + 1);
  const Cursor back = in_;
  const std::vector<HereDocument> here_documents = std::exchange(here_documents_, {});
  ShellValues outer = variables_["@"];
  set("@", std::move(arguments));
  in_ = function.body;
  locals_.emplace_back();
  const Truth truth = group(function.closer);
  if (stop_ == Stop::function) stop_ = Stop::none;
  Journal hidden = std::move(locals_.back());
  locals_.pop_back();
  redo(std::move(hidden));
  in_ = back;
  here_documents_ = here_documents;
  set("@", std::move(outer));
  --calls_;
  return truth;
}

/// Where a script only defines what trains, it is called by others.
void ScriptReader::read_uncalled() {
  if (has_launch(commands_)) return;
  stop_ = Stop::none;
  const std::map<std::string, Function, std::less<>> functions = functions_;
  for (const auto& row : functions) {
    if (row.second.is_called) continue;
    Choice choice;
    read_part(choice, Truth::unknown, [&] { return call(row.second, {}); });
    settle(choice);
  }
}

void ScriptReader::read_part(Choice& choice, Truth condition, const std::function<Truth()>& read) {
  const Pause pause(*this, condition == Truth::no || choice.is_decided);
  if (!runs()) {
    read();
    return;
  }
  const size_t mark = journal_.size();
  std::vector<ShellCommand> outer = std::exchange(commands_, {});
  Part part;
  part.truth = read();
  part.stop = std::exchange(stop_, Stop::none);
  part.commands = std::exchange(commands_, std::move(outer));
  part.changes = undo(mark);
  choice.parts.push_back(std::move(part));
  choice.is_decided = condition == Truth::yes;
}

/// What a choice leaves behind: variables of one part; the commands of that, and of all where that
/// starts nothing.
Truth ScriptReader::settle(Choice& choice) {
  if (!runs()) return Truth::unknown;
  std::vector<Part*> viable;
  for (Part& part : choice.parts) {
    if (part.is_viable()) viable.push_back(&part);
  }
  const bool has_none = !choice.is_decided;  // nothing at all may be taken
  if (viable.empty()) return Truth::unknown;
  const bool is_open = viable.size() + (has_none ? 1 : 0) > 1;
  if (is_open && !choice.about.condition.empty()) open_.push_back(choice.about);
  Part* taken = viable.back();
  if (view_.takes_first) taken = has_none ? nullptr : viable.front();
  if (taken != nullptr) {
    for (const auto& change : taken->changes) {
      if (is_open) guesses_.push_back(change.first);
    }
    redo(std::move(taken->changes));
  }
  const bool takes_one = taken != nullptr && has_launch(taken->commands);
  for (Part* part : viable) {
    if (takes_one && part != taken) continue;
    std::ranges::move(part->commands, std::back_inserter(commands_));
  }
  if (is_open || taken == nullptr) return Truth::unknown;
  stop_ = taken->stop;
  return taken->truth;
}

}  // namespace moetune::spec::dialects
