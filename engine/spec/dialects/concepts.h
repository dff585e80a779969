// The table of concepts: what moetune calls a choice, a size or a figure of a run, and how each
// dialect does. Reading, writing and the list of what is known come from its rows.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/spec/dialects/run_config.h"
#include "engine/spec/pipeline_layout.h"

namespace moetune::spec::dialects {

/// How a value that is no member of RunConfig is written.
enum class Kind : uint8_t { flag, integer, number, word, list };

/// One of the several settings that make a knob: a writer of its own puts them together.
struct Part {
  Kind kind;
};
/// A size or trait of the model in Megatron's terms; model_sizes.h makes Hugging Face's of them.
struct Trait {
  Kind kind;
};
using Target =
    std::variant<PlanKnobMember, int64_t RunConfig::*, std::string RunConfig::*, Part, Trait>;

/// A value of ours and of theirs. Of several rows with one value of ours the first is written.
struct Word {
  std::string_view ours;  ///< empty: theirs is none of ours, and is passed on with a note
  std::string_view theirs;
  /// Of which dialect; none: of those that have no words of their own in the row.
  std::optional<Dialect> dialect = std::nullopt;
};

/// By dialect, in the order of the enum.
using ByDialect = std::array<std::string_view, kNumDialects>;

/// In a row's keys: Megatron-LM's, without dashes and in the place where the dialect has it.
inline constexpr std::string_view kSame = "=";
/// In a row's keys: other rows of the table make it, put together by parts_of_megatron.cpp and
/// parts_of_titan.cpp.
inline constexpr std::string_view kByParts = "*";

struct Row {
  std::string_view name;  ///< of the knob, or Megatron's name
  Target target;
  /// Empty: the dialect cannot say it. A '!' before it: what it says is the contrary.
  ByDialect keys;
  /// What holds where it is not said, in our words; empty: nothing does.
  ByDialect fallbacks;
  std::span<const Word> words = {};  ///< empty: values are the same everywhere
  bool is_always_said = false;       ///< also where it is the fallback
  /// A carried row: holds for one layout, or only beside stages, replicas or recomputing that
  /// another layout may not have.
  bool follows_layout = false;
};

/// Other keys of a row: older spellings, and where a dialect keeps a thing twice.
struct OtherKey {
  enum class Use : uint8_t {
    read,    ///< the row's key wins
    agrees,  ///< has to be the same, and is written as well
    /// The row's key wins. Older releases have only this one and newer ones take it, too: it is
    /// written where the text has a setting of an older release (OldSetting::is_of_release).
    older,
  };
  std::string_view row;
  Dialect dialect;
  std::string_view key;
  Use use = Use::read;
};

/// An older setting and what it means today: the settings of the same dialect that it stands for.
struct OldSetting {
  Dialect dialect;
  std::string_view key;
  struct Meaning {
    std::string_view key;
    std::string_view value;  ///< empty: that of the old one
  };
  std::array<Meaning, 2> means;  ///< the second may be empty
  /// A text that has it is of an older release, or for one. Not of a short form that is still
  /// usual.
  bool is_of_release = true;
};

/// The two halves of the table, and both.
std::span<const Row> knob_rows();
std::span<const Row> trait_rows();
std::span<const Row> rows();
/// Choices that nothing here prices (carried_table.cpp): of `rows` none. Their settings stay in
/// RunConfig::unknown and are translated on the way to another dialect.
std::span<const Row> carried_rows();
/// The one that has the key; null for others.
const Row* find_carried(std::string_view key, Dialect dialect);
std::span<const OtherKey> other_keys();
std::span<const OldSetting> old_settings();
/// Environment variables that change how fast a run is or what it needs.
std::span<const std::string_view> environment_names();
/// Of them the one that PlanKnobs::cuda_device_max_connections stands for.
inline constexpr std::string_view kConnections = "CUDA_DEVICE_MAX_CONNECTIONS";
/// The option of Megatron-Bridge's scripts that names a recipe: it makes no setting of a run.
inline constexpr std::string_view kRecipeOption = "--recipe";
/// torchtitan's setting that names a file with settings.
inline constexpr std::string_view kConfigFile = "job.config_file";

/// The key of a row in a dialect, without '!'; empty where it cannot say it.
std::string key_of(const Row& row, Dialect dialect);
bool is_inverted(const Row& row, Dialect dialect);
std::string_view fallback_of(const Row& row, Dialect dialect);
/// The row of that name, carried ones among them: who needs a setting asks for it by its concept.
const Row& row_of(std::string_view name);
/// Whether a row, an older setting or another key has it.
bool is_known(std::string_view key, Dialect dialect);
Kind kind_of(const Row& row);
/// Whether a run's text says the row's setting, in any spelling: defaults are no statement.
bool is_said(const RunConfig& run, const Row& row);
/// What Megatron counts as a layer beside those of the model, as the run's text says. Its two flags
/// stay in RunConfig::unknown.
CountedEnds counted_ends(const RunConfig& run);
/// The keys of these flags in the run's dialect, as far as they are on.
std::vector<std::string> keys_of_counted_ends(const RunConfig& run);
/// The row that has the key; null for unknown ones.
const Row* find_row(std::string_view key, Dialect dialect);

}  // namespace moetune::spec::dialects
