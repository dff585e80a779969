// The command line of one sub-command: options, positional words, --help, and what several
// sub-commands share.
#pragma once

#include <boost/program_options.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/spec/knobs.h"
#include "engine/spec/trial_spec.h"
#include "sweeps/load.h"

namespace moetune::sweeps {

/// One option or positional word, as completion and manual pages show it.
struct OptionRow {
  std::string name;    ///< without dashes
  std::string letter;  ///< letter of the short form, or empty
  std::string value;   ///< placeholder of the value in the help; empty for a flag
  std::string help;
  bool is_positional = false;
  bool takes_several = false;  ///< a positional word that takes all that follow
  bool is_repeatable = false;  ///< an option that takes one more value each time
};

/// Parses the words of one sub-command. Every mistake becomes a base::UsageError that names the
/// option.
class CommandOptions {
 public:
  /// `usage`: "ls [--db] PATH [OPTIONS]". `help`: a sentence or two.
  CommandOptions(std::string_view usage, std::string_view help);

  /// For declaring options.
  boost::program_options::options_description_easy_init add() { return options_.add_options(); }
  /// The next positional word goes to this option; a count of -1 takes all that follow.
  void positional(const char* option, int count = 1) { positional_.add(option, count); }
  /// Adds --format with the choices "text" and "json".
  void add_format();
  /// Adds --set NAME=VALUE, repeatable.
  void add_set();
  /// Adds SPEC, a trial or sweep file, as the first positional word, and --set.
  void add_trial();
  /// Adds --launch COMMAND, for trials of several processes.
  void add_launch();

  /// False when --help was asked for and has been printed.
  [[nodiscard]] bool parse(const std::vector<std::string>& words);

  /// What was parsed.
  [[nodiscard]] const std::vector<std::string>& words() const { return words_; }
  [[nodiscard]] const std::string& usage() const { return usage_; }
  [[nodiscard]] const std::string& help() const { return help_; }
  /// All options in the order they were declared.
  [[nodiscard]] std::vector<OptionRow> rows() const;

  [[nodiscard]] bool has(const std::string& option) const { return values_.count(option) > 0; }
  [[nodiscard]] std::string text(const std::string& option) const;
  /// All values of an option that may be repeated.
  [[nodiscard]] std::vector<std::string> texts(const std::string& option) const;
  /// Throws base::UsageError when the option is missing.
  [[nodiscard]] std::string required(const std::string& option, const char* what) const;
  /// The value of --db, or of another option that names a database. Throws base::UsageError if it
  /// is missing, or if it names something other than a regular file.
  [[nodiscard]] std::string database(const std::string& option = "db") const;
  /// A whole number of at least `min`; `otherwise` when the option is missing.
  [[nodiscard]] int64_t integer(const std::string& option, int64_t min, int64_t otherwise) const;
  /// Whole seconds, at least `min`, given as a number or with a unit as files have it, such as
  /// 10min; `otherwise` when the option is missing.
  [[nodiscard]] int64_t seconds(const std::string& option, int64_t min, int64_t otherwise) const;
  /// A number from `min` to `max`; `otherwise` when the option is missing.
  [[nodiscard]] double ratio(const std::string& option, double min, double max,
                             double otherwise) const;
  [[nodiscard]] bool wants_json() const;
  /// Throws base::UsageError if one of `others` is given, options that mean nothing beside `what`
  /// ("--rows").
  void refuse_beside(std::string_view what, const std::vector<const char*>& others) const;
  /// The database and one more word, given as "--db PATH WORD" or as "PATH WORD" (positional option
  /// "id").
  [[nodiscard]] std::pair<std::string, std::string> database_and_word(const char* what) const;
  /// The value of --launch; empty if it is missing. Throws base::UsageError if it cannot be a
  /// launcher, if the trial is a single process, or if it is missing for a trial on several nodes.
  [[nodiscard]] std::string launcher(const spec::TrialSpec& trial) const;
  /// The trial of SPEC with all --set applied, and the text that it trains on.
  [[nodiscard]] Loaded<spec::TrialSpec> trial() const;
  /// Applies all --set to `knobs`.
  void apply_set(spec::Knobs& knobs) const;

 private:
  bool prints_text_or_json_ = false;
  std::string usage_;
  std::string help_;
  boost::program_options::options_description options_;
  boost::program_options::positional_options_description positional_;
  std::vector<std::string> words_;
  boost::program_options::variables_map values_;
};

}  // namespace moetune::sweeps
