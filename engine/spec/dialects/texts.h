// The forms that dialects come in (command lines, YAML, TOML), to and from settings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/parts.h"

namespace moetune::spec::dialects {

/// Fills settings, environment, ranks and the model's name.
void read_text(std::string_view text, Reading& reading);
/// The same of a shell's text: a script, a command, or only its flags.
void read_command(std::string_view text, Reading& reading);
/// Of Primus' YAML, with the files that it names as far as the options have them.
void read_primus(std::string_view text, Reading& reading);
/// An experiment of Primus that runs torchtitan: it overrides settings in torchtitan's words.
void read_titan_experiment(std::string_view text, Reading& reading);

/// YAML as PyYAML reads it: of a key that stands twice the last one counts, with a note.
Node read_noted_yaml(std::string_view text, const std::string& source, Reading& reading);
/// Switches of a YAML text in our words: YAML has more of them ("yes", "off"), and Python takes 1
/// and 0.
void settle_switches(Reading& reading);

/// Settings of the table, and what is passed on as it is.
std::string write_text(const Writing& writing, const std::vector<Setting>& settings,
                       const std::vector<UnknownSetting>& unknown);

/// Sets the knobs and variables that a run's choices imply, before it is written.
void add_implied(RunConfig& run, Dialect dialect);
/// The same of settings that no knob stands for.
void write_implied(Writing& writing, std::vector<Setting>& settings);
/// Takes settings that no knob stands for, and that the knobs exclude, out of a run.
void leave_out_excluded(RunConfig& run, Dialect dialect, std::vector<std::string>& notes);

/// A setting that is in no other table in the words of another dialect; none where carried_rows()
/// has none for it.
std::optional<Setting> translated(const UnknownSetting& setting, Dialect from, Dialect to);
/// Adds what can be translated of a run's unknown settings, and gives the keys of the others.
std::vector<std::string> translate_unknown(const RunConfig& run, Dialect to,
                                           std::vector<Setting>& settings);
/// Without the mark of what stands outside.
std::string shown_key(std::string_view key);

/// A setting as words of a command line; none of a switch that is off, and in Primus' words.
std::vector<std::string> words_of_setting(const Setting& setting, Dialect dialect);

/// The value of a setting as a file of torchtitan or Primus has it.
std::string value_text(const Setting& setting, Dialect dialect);

/// The name of a setting that a word of a command line gives; empty where it gives none.
std::string key_in_word(std::string_view word, Dialect dialect);

/// Takes a variable over if it matters.
void set_environment(Reading& reading, const std::string& name, const std::string& value);

/// In Primus' settings: what stands outside of the overrides.
inline constexpr char kOutside = '/';

}  // namespace moetune::spec::dialects
