// A training run as other frameworks write it down: read from a command or a configuration file,
// and written as one. What moetune does not know is kept, so that nothing is lost on the way.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/spec/names.h"
#include "engine/spec/plan_knobs.h"

namespace moetune::spec {

namespace dialects {

/// Who spells it.
enum class Dialect : uint8_t { megatron_lm, megatron_bridge, torchtitan, primus };
inline constexpr size_t kNumDialects = 4;

struct DialectRow {
  Dialect value;
  std::string_view name;
  std::string_view title;    ///< for people
  std::string_view release;  ///< whose spelling is read and written
};

}  // namespace dialects

template <>
struct NameTable<dialects::Dialect> {
  static constexpr std::array kRows = {
      dialects::DialectRow{dialects::Dialect::megatron_lm, "megatron-lm", "Megatron-LM",
                           "core_v0.19.0 (main d98e8a64, 2026-08-22)"},
      dialects::DialectRow{dialects::Dialect::megatron_bridge, "megatron-bridge", "Megatron-Bridge",
                           "v0.6.0 (main 067f987d, 2026-08-22)"},
      dialects::DialectRow{dialects::Dialect::torchtitan, "torchtitan", "torchtitan",
                           "0.2.2 (73a0e697, 2026-02-20)"},
      dialects::DialectRow{dialects::Dialect::primus, "primus", "Primus",
                           "v26.5.1 (fd1eeabb, 2026-08-22)"}};
};

namespace dialects {

/// What is known of a dialect itself.
constexpr const DialectRow& dialect_row(Dialect dialect) {
  return NameTable<Dialect>::kRows[static_cast<size_t>(dialect)];
}
static_assert([] {
  for (const DialectRow& row : NameTable<Dialect>::kRows) {
    if (&dialect_row(row.value) != &row) return false;
  }
  return true;
}());

/// What a configuration says that moetune has no word for.
struct UnknownSetting {
  std::string key;    ///< "--lr", "optimizer.lr"
  std::string value;  ///< as it is written there; empty: a switch
  /// It stands in a file that the source names, such as Primus' presets.
  bool is_inherited = false;

  bool operator==(const UnknownSetting& other) const {
    return key == other.key && value == other.value;
  }
};

/// A setting as the source of a run says it, whether there is a word of ours for it or not.
struct StatedSetting {
  std::string key;    ///< "--lr", "optimizer.lr"
  std::string value;  ///< behind a flag: words as a shell reads them back; empty: a switch

  bool operator==(const StatedSetting&) const = default;
};
/// What lies beyond is left out with a note.
inline constexpr size_t kMostStated = 4096;
/// Longer values are cut: their length and a hash of the whole stand at their end.
inline constexpr size_t kMostStatedBytes = 4096;

/// A run. Figures of 0 and empty texts are not said.
struct RunConfig {
  Dialect dialect = Dialect::megatron_lm;  ///< whose words `unknown` has
  PlanKnobs knobs;
  /// The architecture in terms of a Hugging Face config.json, as model_from_json reads it. Sizes
  /// that the run does not say are missing; empty: it says none.
  nlohmann::json model = nlohmann::json::object();
  /// What its source says of the model, and what follows from that, by Megatron's names (the Trait
  /// rows): `model` has not words for all of it. Empty where it was made of what a log echoes: a
  /// parser's defaults are no statement.
  nlohmann::json model_flags = nlohmann::json::object();
  /// The other traits that the dialect has a default for.
  nlohmann::json model_defaults = nlohmann::json::object();
  /// Of values for which the dialect has several words the run's own, by the name of the row.
  std::map<std::string, std::string, std::less<>> spellings;
  std::string model_name;         ///< a recipe, a flavour, a file with the sizes
  int64_t global_batch_size = 0;  ///< sequences
  /// It follows from micro-batch and replicas, as the run does not say it.
  bool is_batch_derived = false;
  /// Experts' tensor parallelism is not said: it is that of attention.
  bool is_etp_derived = false;
  int64_t seq_length = 0;  ///< tokens
  int64_t world_size = 0;  ///< ranks
  /// Those that the launcher of a command starts, whatever the importer was told.
  int64_t stated_world_size = 0;
  std::string pipeline_layout;  ///< stages written by hand, as in "Et*3|(tt|)*2tL"
  /// As torchtitan names it, of a pipeline; empty: 1F1B, or Interleaved1F1B of virtual stages.
  std::string pipeline_schedule;
  /// Of torchtitan: the order of its pipeline is in a file of its own.
  bool has_listed_schedule = false;
  /// Of torchtitan: sequences of a replica that go through the pipeline before it drains; 0: all.
  int64_t pass_sequences = 0;
  /// Of torchtitan: its first and last stage have fewer layers, where an even split is priced.
  bool has_lighter_ends = false;
  /// Layers are made of Megatron-Core's own modules in the place of Transformer Engine's.
  bool has_own_modules = false;
  /// Depth of multi-token prediction, where it is said. Nothing trains it unasked.
  std::optional<int64_t> mtp_depth;
  /// Variables that change how fast the run is or what it needs.
  std::map<std::string, std::string, std::less<>> environment;
  std::vector<UnknownSetting> unknown;  ///< in their order
  /// All that its source says, in its order, before knobs were made of it. Nothing is written from
  /// this: it tells what two runs say differently.
  std::vector<StatedSetting> stated;
  /// It was made of the configuration that a log echoes: without variables of the environment, and
  /// without settings that moetune has no word for.
  bool is_echo = false;
  /// Its source says also what is as the recipe has it: the file that Megatron-Bridge writes.
  bool is_whole = false;
  /// It names files with settings of their own that were not given, or has words that were not
  /// understood: what it leaves out may stand there.
  bool is_partial = false;
  /// Its source is a command, which may name files.
  bool is_command = false;
  /// It is known from elsewhere that its model has no experts.
  bool is_dense = false;
  std::vector<std::string> notes;  ///< what was understood only in part, a sentence each
};

/// The note of a run whose tokenizer decides its vocabulary.
inline constexpr std::string_view kUnsaidVocabulary =
    "the vocabulary is not said: the tokenizer decides it";

/// Whether what a run leaves out may stand where nobody looked: in a recipe, or in files and words
/// that were not given.
bool may_stand_elsewhere(const RunConfig& run);

/// Whether a setting that no knob stands for stands in a table all the same: nothing prices it.
bool is_known_choice(const UnknownSetting& setting, Dialect dialect);
/// Settings of a run that no knob stands for, by their keys: what its own text says comes first.
struct UnpricedSettings {
  std::vector<std::string> known;    ///< choices that nothing here prices (concepts.h)
  std::vector<std::string> unknown;  ///< all others
  size_t num_inherited = 0;          ///< of the unknown ones: at their end
};
UnpricedSettings unpriced_settings(const RunConfig& run);

/// Of a list of keys so many are named where people read it; the others are counted.
inline constexpr size_t kMostNamed = 20;
/// "--lr, --data-path and 3 more".
std::string text_of_keys(const std::vector<std::string>& keys);

/// Whether a run sends tokens to experts in turns, whatever its router says; its figures say
/// nothing of real routing.
bool forces_balance(const RunConfig& run);

/// Whether a run is known to be dense without sizes: from elsewhere, or as torchtitan names the
/// model ("llama3/8B", in its logs "llama3 8B").
bool names_dense_model(const RunConfig& run);

/// Whether the schedule that a run states runs with the virtual stages of `knobs`, and keeps all
/// micro-batches of a step until the first backward, as GPipe does.
bool holds_all_micro_batches(const RunConfig& run, const PlanKnobs& knobs);
/// Whether virtual stages take the micro-batches in rounds, which have to be even.
bool has_rounds(const RunConfig& run, const PlanKnobs& knobs);
/// Whether each virtual stage needs a micro-batch.
bool fills_stages(const RunConfig& run, const PlanKnobs& knobs);
/// Whether the order is that of 1F1B, or Interleaved1F1B of virtual stages.
bool has_usual_schedule(const RunConfig& run, const PlanKnobs& knobs);

/// Whether a run's DeepEP takes experts that are padded to a capacity. Primus' own does; of a text
/// that says both, import_run has found out that its framework need not refuse it.
bool takes_padded_deepep(const RunConfig& run);

/// Whether a setting that no knob stands for holds for one layout only, such as a list of stages.
bool follows_layout(const UnknownSetting& setting, Dialect dialect);
/// Whether two runs have the same stages and groups, and compute the same again.
bool have_same_layout(const RunConfig& a, const RunConfig& b);

/// Thrown for a text without any setting that the dialect takes: it is about something else.
class NoSettings : public base::UsageError {
 public:
  using UsageError::UsageError;
};

/// Gives a reader the files that a text names.
class NamedFileSource {
 public:
  struct File {
    std::string place;  ///< from the folder of all of them; the same for all names of one file
    std::string text;
  };

  NamedFileSource() = default;
  NamedFileSource(const NamedFileSource&) = delete;
  NamedFileSource& operator=(const NamedFileSource&) = delete;
  virtual ~NamedFileSource() = default;
  /// The first of these places with a file; null: none has one. Throws base::UsageError where too
  /// much is asked for. What it points to stays.
  virtual const File* first_of(const std::vector<std::string>& places) = 0;
};

struct ImportOptions {
  std::string source;      ///< names the text in messages; empty: the dialect's name
  int64_t world_size = 0;  ///< ranks, where the text does not say them
  /// Layers of the model, where the text does not say them: stages may be said by their layers.
  int64_t num_layers = 0;
  /// It was made of what a log echoes: the framework has taken it, contradictions or not.
  bool is_echo = false;
  /// Files that the text names, by their name without the folder: Primus' models and presets. A
  /// command's also by the word that names them, which counts before that.
  std::map<std::string, std::string, std::less<>> files;
  std::vector<std::string> arguments{};  ///< that a text which is a script is started with
  /// In the place of `files` where Primus' text lies in a folder; null: it lies in none.
  std::shared_ptr<NamedFileSource> named{};
  /// Of the text itself in that folder; of a command the folder below which its files were looked
  /// for.
  std::string place{};
};

/// Whether a text is an experiment of Primus: it starts modules, whose settings other files have.
bool is_experiment(std::string_view text);

/// Whose words a text has, by its content; none where it looks like none of them.
std::optional<Dialect> detect_dialect(std::string_view text);

/// Whether a script or a command has a setting of the dialect, or names a file that has.
bool has_settings(std::string_view script, Dialect dialect, const ImportOptions& options);

/// Reads a command (with its variables, launcher and quotes) or a configuration file. What is not
/// said has the dialect's default. Throws base::UsageError for what is no such text (NoSettings),
/// values out of range, and settings that contradict each other.
RunConfig import_run(std::string_view text, Dialect dialect, const ImportOptions& options = {});

/// The run as text that `dialect` takes: a shell command, or a file. What it cannot be told stands
/// in comments, settings of another dialect that are lost by name; the first one names the release.
std::string export_run(const RunConfig& run, Dialect dialect);

/// Adds to a run what another one says of its model and in which words. With a model of its own,
/// `to` gets only the flags that this model does not say.
void take_model_flags(const RunConfig& from, bool has_own_model, RunConfig& to);

/// Whether a dialect has words for what a run says of one of its knobs, by the knob's name.
bool can_say(const RunConfig& run, std::string_view knob, Dialect dialect);
/// Sets the knobs that a dialect has no setting for to what it does by itself.
void follow_defaults(PlanKnobs& knobs, Dialect dialect);

/// Whether Megatron-Bridge's preset for the precision keeps the products' weights in 8 bits alone,
/// in all releases, and Megatron takes that beside the other choices.
bool preset_gathers_fp8(const PlanKnobs& knobs);

/// What has to be written differently for another run of the same dialect.
struct SettingChange {
  std::string key;
  std::optional<std::string> before;  ///< as it is written; none: it is not said
  std::optional<std::string> after;   ///< none: it is to be left out; empty: a switch
  bool is_variable = false;           ///< of the environment
  /// Behind a command that says other values: the words that make it so. Empty for variables, for
  /// what is to be left out, and in dialects whose settings are no words.
  std::vector<std::string> words{};
  std::vector<std::string> value_words{};  ///< of `after` those of the value alone
  /// The value as a file of the dialect has it, where that is another text than `after`: a list, a
  /// word in quotes. Empty: it is the same.
  std::string form{};
  bool is_option = false;  ///< of torchtitan's command, and not of a file
};
/// In the order of the table: what is new or has another value, then what goes, then variables.
std::vector<SettingChange> changed_settings(const RunConfig& from, const RunConfig& to,
                                            Dialect dialect);
/// The same of a run's own text: a setting that stands there under another key is changed there, an
/// older one that says otherwise goes, and what only followed from others is not named.
std::vector<SettingChange> changes_of_text(const RunConfig& from, const RunConfig& to);
/// A setting with one value, in the words of the run's dialect.
SettingChange change_to(const RunConfig& run, const std::string& key, std::string value);
/// "--micro-batch-size 2", "training.local_batch_size = 2", "without --recompute-method".
/// Variables, flags and overrides are quoted as a shell needs it.
std::string text_of(const SettingChange& change, Dialect dialect);

/// A setting that stands in no table (RunConfig::unknown) as words of a command; a value of "true"
/// or "false" is a switch. Empty where it has to be left out, and in dialects without such words.
std::vector<std::string> words_of(const UnknownSetting& setting, Dialect dialect);
/// The settings of a run as words of a command, without launcher and script: those that are not as
/// in `defaults`, and those whose key stands in `said`, the text that the run comes from. None in
/// dialects whose settings do not all fit there (torchtitan, Primus).
std::optional<std::vector<std::string>> command_words(const RunConfig& run, Dialect dialect,
                                                      const RunConfig& defaults,
                                                      std::string_view said);

}  // namespace dialects
}  // namespace moetune::spec
