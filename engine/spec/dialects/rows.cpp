// The table at work: settings to members, and members to settings.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "engine/spec/dialects/parts.h"
#include "engine/spec/dialects/shell_words.h"
#include "engine/spec/dialects/text_cursor.h"
#include "engine/spec/dialects/values.h"

namespace moetune::spec::dialects {
namespace {

/// As many tokens as other descriptions of runs may have (trial_spec.cpp).
constexpr int64_t kMostFigure = int64_t{1} << 28;
constexpr int64_t kMostSize = 1'000'000'000'000;

/// The row's words that count in a dialect.
std::vector<Word> words_for(const Row& row, Dialect dialect) {
  const bool has_own =
      std::ranges::any_of(row.words, [&](const Word& word) { return word.dialect == dialect; });
  std::vector<Word> words;
  for (const Word& word : row.words) {
    if (has_own ? word.dialect == dialect : !word.dialect) words.push_back(word);
  }
  return words;
}

/// The dialect's words for a value of ours; none where it has none.
std::optional<std::string> theirs_of_ours(const Row& row, Dialect dialect,
                                          const std::string& ours) {
  if (!row.words.empty()) {
    for (const Word& word : words_for(row, dialect)) {
      if (word.ours == ours) return std::string(word.theirs);
    }
    return std::nullopt;
  }
  if (!is_inverted(row, dialect)) return ours;
  return ours == "true" ? "false" : "true";
}

std::string theirs_of(const Row& row, Dialect dialect) {
  std::vector<std::string_view> theirs;
  for (const Word& word : words_for(row, dialect)) theirs.push_back(word.theirs);
  return fmt::format("one of {}", fmt::join(theirs, ", "));
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

/// Reads the settings of one row.
class RowReader {
 public:
  RowReader(const Row& row, Reading& reading) : row_(row), in_(reading) {}

  void read() {
    const Setting* setting = choose();
    if (setting == nullptr) {
      if (!std::holds_alternative<Part>(row_.target)) {
        const std::string_view fallback = fallback_of(row_, in_.dialect);
        if (fallback.empty()) return;
        store(std::string(fallback), {});
        if (std::holds_alternative<Trait>(row_.target)) in_.unsaid_traits.emplace(row_.name);
      }
      return;
    }
    key_ = setting->key;
    std::vector<std::string> words = setting->words;
    if (std::holds_alternative<Part>(row_.target)) {
      read_part(std::move(words), setting->is_null);
      return;
    }
    if (const auto text = text_of_words(words)) {
      if (row_.name == "etp") in_.has_etp = true;
      store(*text, words);
      forget();
    }
  }

 private:
  /// The first of the row's keys that says something; others have to agree where the table says so.
  const Setting* choose() {
    const Setting* chosen = nullptr;
    const auto consider = [&](const std::string& key, bool has_to_agree) {
      const Setting* setting = key.empty() ? nullptr : in_.settings.find(key);
      if (setting == nullptr) return;
      keys_.push_back(key);
      const bool may_be_null = row_.name == "mixed_precision";
      if (setting->is_null && !may_be_null) return;
      if (chosen == nullptr) {
        chosen = setting;
      } else if (has_to_agree && setting->words != chosen->words) {
        in_.problem(fmt::format("'{}' is '{}' and '{}' is '{}': they have to be the same",
                                chosen->key,
                                shown(fmt::format("{}", fmt::join(chosen->words, " "))), key,
                                shown(fmt::format("{}", fmt::join(setting->words, " ")))));
      }
    };
    consider(key_of(row_, in_.dialect), false);
    for (const OtherKey& other : other_keys()) {
      if (other.dialect != in_.dialect || other.row != row_.name) continue;
      consider(std::string(other.key), other.use == OtherKey::Use::agrees);
    }
    if (chosen == nullptr) forget();
    return chosen;
  }

  void forget() {
    for (const std::string& key : keys_) in_.settings.remove(key);
  }

  void fail(std::string_view value, const std::string& expected) {
    const std::string_view variable = unset_variable_in(value);
    if (!variable.empty()) {
      in_.problem(fmt::format("'{}' is '{}', and nothing sets {}{}: put its value there", key_,
                              shown(value), is_name_start(variable[0]) ? "" : "argument ",
                              shown(variable)));
      return;
    }
    in_.problem(fmt::format("'{}' is '{}', expected {}", key_, shown(value), expected));
  }

  /// A part keeps its setting until somebody takes it.
  void read_part(std::vector<std::string> words, bool is_null) {
    const Kind kind = kind_of(row_);
    if (kind == Kind::list) {
      if (words.size() == 1 && in_.dialect == Dialect::torchtitan)
        words = split_at_commas(words[0]);
      in_.parts.say(row_.name, std::move(words));
      return;
    }
    if (is_null) {
      in_.parts.say(row_.name, std::vector<std::string>{});
      return;
    }
    const auto text = text_of_words(words);
    if (!text) return;
    if (kind == Kind::integer) {
      const int64_t least = fallback_of(row_, in_.dialect) == "-1" ? -1 : 0;
      const auto value = parse_integer(*text);
      if (!value || *value < least || *value > kMostSize) {
        fail(*text, fmt::format("an integer from {} to {}", least, kMostSize));
        return;
      }
    }
    if (kind == Kind::number && !parse_number(*text)) {
      fail(*text, "a number");
      return;
    }
    in_.parts.say(row_.name, *text);
  }

  /// In our words; none where a mistake was told or the value is passed on.
  std::optional<std::string> text_of_words(const std::vector<std::string>& words) {
    if (kind_of(row_) == Kind::flag) return switch_of(words);
    if (words.empty()) {
      fail("", "a value behind it");
      return std::nullopt;
    }
    const bool is_pattern = row_.name == "moe_layer_freq" || row_.name == "linear_attention_freq" ||
                            row_.name == "window_attn_skip_freq";
    if (is_pattern || kind_of(row_) == Kind::list) {
      std::string text = fmt::format("{}", fmt::join(words, ","));
      if (is_pattern) text = unquoted(text);
      // A list of a file, in the form that a flag takes, too.
      return is_pattern && words.size() > 1 && !text.starts_with('[') ? "[" + text + "]" : text;
    }
    if (std::ranges::any_of(words, [&](const auto& word) { return word != words.front(); })) {
      in_.note(fmt::format("'{}' has several values and was not understood", key_));
      return std::nullopt;
    }
    return row_.words.empty() ? std::optional(words.front()) : ours_of(words.front());
  }

  std::optional<std::string> switch_of(const std::vector<std::string>& words) {
    std::optional<bool> is_on = true;
    if (words.size() == 1) is_on = parse_switch(words.front());
    if (!is_on || words.size() > 1) {
      const bool is_line = in_.dialect == Dialect::megatron_lm;
      fail(fmt::format("{}", fmt::join(words, " ")),
           is_line ? "nothing behind it: it is a switch" : "true or false");
      return std::nullopt;
    }
    return *is_on != is_inverted(row_, in_.dialect) ? "true" : "false";
  }

  std::optional<std::string> ours_of(const std::string& theirs) {
    for (const Word& word : words_for(row_, in_.dialect)) {
      if (word.theirs != theirs) continue;
      if (!word.ours.empty()) {
        if (theirs_of_ours(row_, in_.dialect, std::string(word.ours)) != theirs) {
          in_.run.spellings.emplace(row_.name, theirs);
        }
        return std::string(word.ours);
      }
      in_.note(fmt::format("'{}' is '{}', for which moetune has no word: '{}' is taken", key_,
                           theirs, fallback_of(row_, in_.dialect)));
      return std::nullopt;
    }
    fail(theirs, theirs_of(row_, in_.dialect));
    return std::nullopt;
  }

  void store(const std::string& text, const std::vector<std::string>& words) {
    if (const auto* member = std::get_if<PlanKnobMember>(&row_.target)) {
      const bool is_none = row_.name == "capacity_factor" && text.starts_with('-');
      if (!set_text(in_.run.knobs, *member, is_none ? "0" : text)) fail(text, values_of(*member));
    } else if (const auto* figure = std::get_if<int64_t RunConfig::*>(&row_.target)) {
      store_integer(in_.run.**figure, text, 1, kMostFigure);
    } else if (const auto* layout = std::get_if<std::string RunConfig::*>(&row_.target)) {
      store_layout(in_.run.**layout, text, words);
    } else {
      store_trait(text);
    }
  }

  void store_integer(int64_t& value, const std::string& text, int64_t least, int64_t most) {
    const auto parsed = parse_integer(text);
    const bool is_rest = in_.dialect == Dialect::torchtitan && parsed == -1;
    if (is_rest) return;
    if (parsed && *parsed >= least && *parsed <= most) {
      value = *parsed;
    } else {
      fail(text, fmt::format("an integer from {} to {}", least, most));
    }
  }

  void store_layout(std::string& layout, const std::string& text,
                    const std::vector<std::string>& words) {
    if (words.size() > 1 || text.starts_with('[')) {
      in_.note(fmt::format("'{}' is a list of stages and was not understood", key_));
      return;
    }
    layout = unquoted(text);
  }

  void store_trait(const std::string& text) {
    auto& value = in_.traits[std::string(row_.name)];
    switch (kind_of(row_)) {
      case Kind::flag:
        value = text == "true";
        break;
      case Kind::integer: {
        int64_t size = 0;
        store_integer(size, text, 0, kMostSize);
        value = size;
        break;
      }
      case Kind::number:
        if (const auto number = parse_number(text)) {
          value = *number;
        } else {
          fail(text, "a number");
        }
        break;
      default:
        value = text;
    }
  }

  const Row& row_;
  Reading& in_;
  std::string key_;
  std::vector<std::string> keys_;  ///< all that are said
};

/// Older settings as today's.
void translate_old_settings(Reading& reading) {
  for (const OldSetting& old : old_settings()) {
    if (old.dialect != reading.dialect) continue;
    const Setting* found = reading.settings.find(old.key);
    if (found == nullptr) continue;
    const Setting setting = *found;
    reading.settings.remove(old.key);
    const bool is_off = setting.is_null || (!setting.words.empty() && setting.words[0] == "false");
    for (const OldSetting::Meaning& meaning : old.means) {
      if (meaning.key.empty()) continue;
      Setting today = setting;
      today.key = meaning.key;
      if (!meaning.value.empty()) {
        if (is_off) continue;
        today.words = {std::string(meaning.value)};
        today.value = meaning.value;
      }
      reading.settings.add(std::move(today), reading.problems);
    }
  }
}

}  // namespace

void read_rows(Reading& reading) {
  translate_old_settings(reading);
  for (const Row& row : rows()) RowReader(row, reading).read();
}

namespace {

/// The word of a run for a value of ours, where it is another than the usual one of its dialect.
std::optional<std::string> own_spelling(const Row& row, const Writing& out,
                                        const std::string& ours) {
  const auto found = out.run.spellings.find(row.name);
  if (out.run.dialect != out.dialect || found == out.run.spellings.end()) return std::nullopt;
  // As a log echoes a type: Megatron-LM's parser refuses that.
  if (out.dialect == Dialect::megatron_lm && found->second.starts_with("torch.")) {
    return std::nullopt;
  }
  for (const Word& word : words_for(row, out.dialect)) {
    if (word.theirs == found->second && word.ours == ours) return found->second;
  }
  return std::nullopt;  // the choice is another by now
}

std::string text_of_trait(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  return value.is_number_float() ? number_text(value.get<double>()) : value.dump();
}

/// What the run says of a row, in our words; none where it says nothing.
std::optional<std::vector<std::string>> words_of_row(const Row& row, const Writing& out) {
  using Texts = std::vector<std::string>;
  if (const auto* member = std::get_if<PlanKnobMember>(&row.target)) {
    return Texts{text_of(out.knobs(), *member)};
  }
  if (const auto* figure = std::get_if<int64_t RunConfig::*>(&row.target)) {
    const int64_t value = out.run.**figure;
    return value == 0 ? std::nullopt : std::optional(Texts{std::to_string(value)});
  }
  if (const auto* text = std::get_if<std::string RunConfig::*>(&row.target)) {
    const std::string& value = out.run.**text;
    if (value.empty() && out.overrides_others) return Texts{"null"};
    return value.empty() ? std::nullopt : std::optional(Texts{value});
  }
  if (std::holds_alternative<Part>(row.target)) {
    const auto at = out.parts.said().find(row.name);
    return at == out.parts.said().end() ? std::nullopt : std::optional(at->second);
  }
  const auto at = out.traits.find(std::string(row.name));
  if (at == out.traits.end()) return std::nullopt;
  // Behind a flag a list is one word.
  const bool has_words = kind_of(row) == Kind::list && out.dialect != Dialect::megatron_lm;
  return has_words ? split_at_commas(text_of_trait(*at)) : Texts{text_of_trait(*at)};
}

}  // namespace

std::vector<Setting> write_rows(Writing& writing) {
  std::vector<Setting> settings;
  for (const Row& row : rows()) {
    auto words = words_of_row(row, writing);
    if (!words) continue;
    const std::string ours = fmt::format("{}", fmt::join(*words, " "));
    const std::optional<std::string> spelling = own_spelling(row, writing, ours);
    const bool is_default = !spelling && ours == fallback_of(row, writing.dialect);
    const std::string key = key_of(row, writing.dialect);
    // A preset's name and fields of its own do not go together: fields only where they have to.
    const bool says_defaults = writing.overrides_others && !key.starts_with("mixed_precision.");
    if (is_default && !row.is_always_said && !says_defaults) continue;
    if (key.empty()) {
      const bool is_by_parts = row.keys[static_cast<size_t>(writing.dialect)] == kByParts;
      const bool is_trait = std::holds_alternative<Trait>(row.target);
      if (!is_by_parts && !is_trait && !is_default) {
        writing.cannot_say(fmt::format("{}={}", row.name, ours));
      }
      continue;
    }
    Setting setting{.key = key};
    if (is_default && ours == "0") words = {"null"};  // as a count that is not set
    for (const std::string& word : *words) {
      const auto theirs = spelling ? spelling : theirs_of_ours(row, writing.dialect, word);
      if (theirs) setting.words.push_back(*theirs);
    }
    if (setting.words.size() < words->size()) {
      writing.cannot_say(fmt::format("{}={}", row.name, ours));
      continue;
    }
    settings.push_back(setting);
    for (const OtherKey& other : other_keys()) {
      if (other.dialect != writing.dialect || other.row != row.name ||
          other.use != OtherKey::Use::agrees) {
        continue;
      }
      setting.key = other.key;
      settings.push_back(setting);
    }
  }
  return settings;
}

}  // namespace moetune::spec::dialects
