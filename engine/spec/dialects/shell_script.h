// The commands of a script, as they would run.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/spec/dialects/shell.h"
#include "engine/spec/dialects/shell_tests.h"
#include "engine/spec/dialects/shell_words.h"

namespace moetune::spec::dialects {

/// Whether one of them says flags, and does more than print them.
bool has_launch(const std::vector<ShellCommand>& commands);

/// Reads a text once, from its begin to its end; bodies of loops and functions several times.
class ScriptReader {
 public:
  ScriptReader(std::string_view text, std::string source, const ShellView& view,
               ShellBudget& budget, int depth);

  /// With variables that are set already.
  ShellScript read(ShellVariables variables);

 private:
  /// Values of variables as they were before they were changed; none: not set.
  using Journal = std::vector<std::pair<std::string, std::optional<ShellValues>>>;
  /// How far what follows is not run.
  enum class Stop : uint8_t {
    none,
    round,     ///< of a loop: 'continue'
    loop,      ///< 'break'
    function,  ///< 'return'
    script     ///< 'exit'
  };
  struct Function {
    Cursor body;
    size_t size = 0;
    char closer = '}';
    bool is_called = false;
  };
  /// One of the parts of which a condition chooses.
  struct Part {
    Journal changes;
    std::vector<ShellCommand> commands;
    Stop stop = Stop::none;
    Truth truth = Truth::unknown;

    /// Whether it can be what a user runs: it goes on, or ends behind what it has started.
    [[nodiscard]] bool is_viable() const;
  };
  /// A list of commands, and the word that closed it; empty: the end of the text.
  struct List {
    std::string_view closer;
    Truth truth = Truth::yes;
  };
  struct HereDocument {
    std::string end;
    bool skips_tabs = false;
  };
  /// What is read of a choice: the parts that may be taken.
  struct Choice {
    std::vector<Part> parts;
    bool is_decided = false;  ///< the last of them is taken where no other is
    OpenBranch about;         ///< without a condition: it need not be told
  };
  /// Nothing is done while one lives.
  class Pause {
   public:
    Pause(ScriptReader& reader, bool is_paused) : reader_(reader), old_(reader.is_paused_) {
      reader.is_paused_ = old_ || is_paused;
    }
    ~Pause() { reader_.is_paused_ = old_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    ScriptReader& reader_;
    bool old_;
  };

  [[nodiscard]] bool runs() const { return !is_paused_ && stop_ == Stop::none; }
  void step(size_t count = 1) { word_reader_.step(count); }

  // The text between commands.
  void skip_blanks();
  void skip_lines();
  void newline();
  void skip_redirection();
  void read_here_documents();
  /// What stands here up to a blank or a separator, as far as reserved words are long.
  [[nodiscard]] std::string bare_word() const;
  bool take_word(std::string_view word);

  // Commands.
  /// Up to one of the words that close it, which is taken.
  List list(std::initializer_list<std::string_view> closers);
  Truth and_or();
  Truth pipeline();
  Truth command();
  Truth simple_command();
  void read_word();
  void add(std::string word);
  Truth end_command();
  /// None for words that are no command of the shell itself.
  std::optional<Truth> built_in(const ShellValues& words);
  /// 'exit', 'return', 'break' and 'continue'; false for other words.
  bool stop_by(const ShellValues& words);
  /// A part that has a shell of its own changes nothing and ends nothing.
  void end_subshell(size_t mark, Stop before);
  void read_variables(const ShellValues& words);
  void look_inside(const ShellValues& words);
  void read_inside(std::string_view text, ShellValues arguments);

  // What is made of commands.
  Truth group(char closer);
  Truth test(std::string_view closer);
  /// Of what stands between "((" and "))"; it may set variables.
  Truth arithmetic(std::string_view text);
  /// What stands there, which is taken.
  std::string_view arithmetic_text();
  /// Variables that arithmetic sets; such as nobody can work out stay as it is written.
  void assign_in(std::string_view expressions);
  Truth if_clause();
  void if_parts(Choice& choice, bool ignores_conditions);
  Truth case_clause();
  void case_parts(Choice& choice, bool ignores_conditions, const ShellOperand& subject);
  Truth matching_case(const ShellOperand& subject);
  /// Reads the parts of a choice. Where what is taken ends in an error, its users set something
  /// that leads elsewhere: then the parts are read once more, as if nobody knew the conditions.
  Truth choose(const std::function<void(Choice&, bool ignores_conditions)>& read);
  Truth while_clause(bool is_until);
  Truth for_clause();
  Truth counting_clause();
  /// The word behind the head of a loop: gives the one that closes its body; empty: there is none.
  std::string_view take_body();
  /// Of the variables that a condition names.
  ShellVariables values_in(std::string_view text);
  /// Whether a round has changed one of these, all to what is known: not in a branch that only a
  /// run could choose (guesses_, since there were so many).
  [[nodiscard]] bool counts(const ShellVariables& before, size_t num_guesses) const;
  /// Whether a loop, of which nobody can tell how often it goes round, is read again after so many.
  bool is_read_again(int64_t line, size_t round);
  void read_round(Truth condition, std::string_view closer);
  /// To where the same commands are read again.
  void go_back(const Cursor& start);
  /// Behind a round of a loop: whether there may be another.
  bool ends_round();
  bool take_function();
  Truth call(const Function& function, ShellValues arguments);
  void read_uncalled();
  void read_part(Choice& choice, Truth condition, const std::function<Truth()>& read);
  Truth settle(Choice& choice);

  // Variables.
  [[nodiscard]] bool is_assignment() const;
  /// The characters of a name that stand here.
  [[nodiscard]] std::string name_here() const;
  void assign();
  /// The variable has its old value again when the function that runs ends.
  void make_local(const std::string& name);
  ShellValues array();
  void set(const std::string& name, std::optional<ShellValues> values);
  Journal undo(size_t mark);
  void redo(Journal changes);
  [[nodiscard]] std::map<std::string, std::string, std::less<>> environment();

  Cursor in_;
  std::string source_;
  const ShellView& view_;
  ShellBudget& budget_;
  int depth_;
  int nested_ = 0;  ///< commands in commands
  ShellVariables variables_;
  ShellWords word_reader_;
  Journal journal_;
  size_t first_assigned_ = 0;  ///< in the journal, before the command that is read
  ShellValues command_words_;
  std::map<std::string, Function, std::less<>> functions_;
  int calls_ = 0;  ///< functions that run
  std::vector<HereDocument> here_documents_;
  std::optional<ShellOperand> here_string_;  ///< behind "<<<" of the command that is read
  bool is_paused_ = false;
  Stop stop_ = Stop::none;
  int64_t stopped_loops_ = 0;         ///< of 'break' and 'continue'
  int loops_ = 0;                     ///< that run
  std::vector<std::string> guesses_;  ///< variables that a branch set, where another may be taken
  std::vector<Journal> locals_;       ///< of the functions that run: what their variables hide
  std::vector<ShellCommand> commands_;
  std::vector<OpenBranch> open_;
  std::vector<int64_t> open_loops_;
  std::vector<int64_t> cut_loops_;
};

}  // namespace moetune::spec::dialects
