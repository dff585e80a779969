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
  std::string letter;  ///< of the short form, or empty
  std::string value;   ///< what stands for the value in the help, empty for a flag
  std::string help;
  bool is_positional = false;
  bool takes_several = false;  ///< as a positional word: all that follow
  bool is_repeatable = false;  ///< as an option: each time one more value
};

/// Parses the words of one sub-command. Every mistake becomes a base::UsageError that names the
/// option.
class CommandOptions {
 public:
  /// `usage`: "ls [--db] PATH [OPTIONS]". `help`: a sentence or two.
  CommandOptions(std::string_view usage, std::string_view help);

  /// To declare options on.
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
  /// The value of --db, or of another option that names a database; throws base::UsageError when
  /// it is missing, or there but no regular file.
  [[nodiscard]] std::string database(const std::string& option = "db") const;
  /// A whole number of at least `min`; `otherwise` when the option is missing.
  [[nodiscard]] int64_t integer(const std::string& option, int64_t min, int64_t otherwise) const;
  /// A number from `min` to `max`; `otherwise` when the option is missing.
  [[nodiscard]] double ratio(const std::string& option, double min, double max,
                             double otherwise) const;
  [[nodiscard]] bool wants_json() const;
  /// The database and one more word, given as "--db PATH WORD" or as "PATH WORD" (positional option
  /// "id").
  [[nodiscard]] std::pair<std::string, std::string> database_and_word(const char* what) const;
  /// The value of --launch, empty when it is missing. Throws base::UsageError when it can be no
  /// launcher, when the trial is one process, and when one is missing for several nodes.
  [[nodiscard]] std::string launcher(const spec::TrialSpec& trial) const;
  /// The trial of SPEC with the knobs of all --set, and the text that it trains on.
  [[nodiscard]] Loaded<spec::TrialSpec> trial() const;
  /// Sets the knobs of all --set.
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
