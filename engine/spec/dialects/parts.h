// The state of a conversion between a framework's text and a RunConfig, for either direction. It
// holds what has no field of its own in a RunConfig: settings of which several make one knob, and
// the model in Megatron's terms.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/settings.h"
#include "engine/spec/problems.h"

namespace moetune::spec::dialects {

/// More ranks than any cluster has.
inline constexpr int64_t kMostRanks = 1'000'000;

/// Values of the table's Part rows by the row's name. Asking for a value marks it as taken. Values
/// that nobody takes are passed on as unknown settings.
class Parts {
 public:
  explicit Parts(Dialect dialect) : dialect_(dialect) {}

  void say(std::string_view name, std::vector<std::string> words) {
    words_[std::string(name)] = std::move(words);
  }
  void say(std::string_view name, std::string_view word) { say(name, {{std::string(word)}}); }
  void say(std::string_view name, bool is_on) { say(name, is_on ? "true" : "false"); }
  void say(std::string_view name, const char* word) { say(name, std::string_view(word)); }
  void say(std::string_view name, int64_t value) { say(name, std::to_string(value)); }

  [[nodiscard]] bool has(std::string_view name) const { return words_.contains(name); }
  /// Takes the value, or the dialect's default if none was said. null is an empty text.
  std::string word(std::string_view name);
  bool flag(std::string_view name) { return word(name) == "true"; }
  std::vector<std::string> list(std::string_view name);
  /// Empty if it was not said and has no default.
  std::optional<int64_t> integer(std::string_view name);
  /// Whether the flag is on, without taking it.
  [[nodiscard]] bool is_on(std::string_view name) const;
  /// Gives back what was taken only in part.
  void leave(std::string_view name) { taken_.erase(std::string(name)); }

  [[nodiscard]] const std::set<std::string, std::less<>>& taken() const { return taken_; }
  [[nodiscard]] const std::map<std::string, std::vector<std::string>, std::less<>>& said() const {
    return words_;
  }

 private:
  Dialect dialect_;
  std::map<std::string, std::vector<std::string>, std::less<>> words_;
  std::set<std::string, std::less<>> taken_;
};

/// A text that is being read into a RunConfig.
struct Reading {
  Reading(Dialect dialect_in, const ImportOptions& options_in);

  Dialect dialect;
  const ImportOptions& options;
  std::string source;
  Settings settings;
  Parts parts;
  nlohmann::json traits = nlohmann::json::object();  ///< by the names of the Trait rows
  RunConfig run;
  Problems problems;
  std::set<std::string, std::less<>> unsaid_traits;  ///< those that have the dialect's default
  bool has_etp = false;
  /// The number of ranks is a default, of the script ("${SLURM_NNODES:-1}") or of the launcher.
  bool has_default_ranks = false;
  std::string program;  ///< of a command: the file that it starts, with or without a launcher
  /// Of Primus' text: it names other files, and these are the keys that it says itself.
  std::optional<std::set<std::string, std::less<>>> own_keys;

  void note(std::string text);
  /// "SOURCE: text" as a mistake.
  void problem(const std::string& text);
  /// Whether the text itself says the row's setting: defaults are no statement.
  [[nodiscard]] bool is_stated(std::string_view row) const;
  /// See dialects::may_stand_elsewhere.
  [[nodiscard]] bool may_stand_elsewhere() const;
  /// The key that a part was said with, for messages.
  [[nodiscard]] std::string key(std::string_view row) const;
  /// "'--tensor-model-parallel-size' 2 x '...' 4": knobs by their rows, and by their keys.
  [[nodiscard]] std::string product_of(const std::vector<std::string_view>& rows) const;
  /// The same of the ranks that hold the model once.
  [[nodiscard]] std::string replica_text() const;
};

/// A RunConfig that is being written as a text.
struct Writing {
  Writing(Dialect dialect_in, const RunConfig& run_in)
      : dialect(dialect_in),
        run(run_in),
        parts(dialect_in),
        overrides_others(dialect_in == Dialect::megatron_bridge ||
                         (dialect_in == Dialect::primus && run_in.dialect == dialect_in &&
                          !run_in.model_name.empty())) {}

  Dialect dialect;
  const RunConfig& run;
  Parts parts;
  nlohmann::json traits = nlohmann::json::object();
  std::vector<std::string> notes;
  std::vector<std::string> unsaid;  ///< names of what cannot_say was told of
  /// What is written changes a recipe or a model's file: defaults have to be said as well.
  bool overrides_others = false;

  [[nodiscard]] const PlanKnobs& knobs() const { return run.knobs; }
  /// "Primus cannot be told ...": `what` is "knob=value", or words.
  void cannot_say(std::string_view what, std::string_view why = "");
};

/// Settings of the table's rows to knobs, figures, traits and parts; and back.
void read_rows(Reading& reading);
std::vector<Setting> write_rows(Writing& writing);

/// What several settings say together.
void read_parts_of_megatron(Reading& reading);
void write_parts_of_megatron(Writing& writing);
void read_parts_of_titan(Reading& reading);
void write_parts_of_titan(Writing& writing);

/// What Megatron says of single layers: windows, and the letters of hybrids. Before the parts, as
/// stages may stand among the letters.
void read_layer_flags(Reading& reading);
/// Changes the run that `writing` is of: stages move into the letters.
void write_layer_flags(Writing& writing, RunConfig& run);

/// Before the rows: runs of what is no GPT, or not only one, are refused or told as far as they are
/// not priced.
void judge_other_models(Reading& reading);

/// Adds as mistakes what Megatron refuses to start with.
void refuse_contradictions(Reading& reading);

/// Primus' list of the layers that are recomputed, which counts in the place of a number.
bool names_recomputed_layers(const Reading& reading);
/// Makes a number for each stage of it.
void read_listed_layers(Reading& reading);

/// What of precision is only Megatron's: presets, formats and recipes.
void read_precision(Reading& reading);
void write_precision(Writing& writing);
/// What these presets make of the weights; behind all that it depends on.
void read_weights_of_preset(Reading& reading);
void write_weights_of_preset(Writing& writing);

}  // namespace moetune::spec::dialects
