#include "sweeps/runs/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <utility>
#include <vector>

#include "engine/spec/dialects/concepts.h"
#include "engine/spec/dialects/values.h"

namespace moetune::sweeps {
namespace {

using Words = std::vector<std::string>;

/// "--wandb-api-key", "WANDB_API_KEY": wandb, api, key.
Words words_of_name(std::string_view name) {
  Words words(1);
  for (const unsigned char c : name) {
    if (std::isalnum(c) != 0) {
      words.back() += static_cast<char>(std::tolower(c));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

bool is_one_of(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

bool names_secret(const Words& words) {
  constexpr std::array<std::string_view, 7> kAlone = {
      "secret", "secrets", "password", "passwd", "passphrase", "apikey", "credentials"};
  constexpr std::array<std::string_view, 7> kOfKeys = {"api",     "access",     "private", "auth",
                                                       "account", "encryption", "wandb"};
  for (size_t i = 0; i < words.size(); ++i) {
    if (is_one_of(words[i], kAlone)) return true;
    if (i > 0 && words[i] == "key" && is_one_of(words[i - 1], kOfKeys)) return true;
  }
  return false;
}

/// That lets somebody in; those of a vocabulary do not.
bool names_token(const Words& words) {
  constexpr std::array<std::string_view, 16> kOfVocabulary = {
      "pad", "bos",  "eos",     "unk",   "mask",  "sep", "cls",   "eod",
      "end", "stop", "special", "start", "image", "img", "video", "audio"};
  if (words.empty() || words.back() != "token") return false;
  if (words.size() == 1) return true;
  const std::string& kind = words[words.size() - 2];
  return kind != "per" && !is_one_of(kind, kOfVocabulary);
}

bool is_choice(std::string_view value) {
  return value.empty() || spec::dialects::parse_switch(value) || value == "None" ||
         value == "none" || value == "null";
}

bool may_name_secret(std::string_view name) {
  const Words words = words_of_name(name);
  return names_secret(words) || names_token(words);
}

bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_quote(char c) { return c == '\'' || c == '"'; }
/// What a name may stand behind. A backslash belongs to a quote or blank behind it.
bool ends_name(char c) {
  return is_blank(c) || is_quote(c) || c == '=' || c == ',' || c == ';' || c == '\\';
}

/// Goes through a shell's command from its front to its end, once.
class CommandScan {
 public:
  explicit CommandScan(std::string_view command) : rest_(command) {}

  std::string without_secrets() {
    while (!rest_.empty()) {
      size_t length = 0;
      while (length < rest_.size() && !ends_name(rest_[length])) ++length;
      const std::string_view name = rest_.substr(0, length);
      if (!take_address(length)) keep(length);
      if (may_name_secret(name) && take_member(name)) continue;
      const bool has_value = rest_.starts_with('=');
      const bool is_flag = name.starts_with('-') && !rest_.empty() && is_blank(rest_.front());
      if ((has_value || is_flag) && may_name_secret(name)) {
        if (has_value) keep(1);
        if (is_flag) keep_blanks();
        if (!is_flag || !rest_.starts_with('-')) take_value(name);
      } else if (!rest_.empty()) {
        const Piece piece = next_piece();
        if (piece.quote != 0) turn(piece.quote);
        keep(piece.length);
      }
    }
    return std::move(text_);
  }

 private:
  /// A character, with the backslashes in front of it.
  struct Piece {
    size_t length = 1;
    char quote = 0;  ///< one of a few that are told apart by how deep they are escaped; 0: none
    bool is_end = false;  ///< of a word, where no quote is open
  };

  void keep(size_t length) {
    text_ += rest_.substr(0, length);
    rest_.remove_prefix(length);
  }

  /// Hides who calls an address at the front of the rest: "https://user:password@host", or a token
  /// alone. False where the word at the front, of that length, begins none.
  bool take_address(size_t length) {
    constexpr size_t kShortestToken = 20;
    const size_t scheme = rest_.substr(0, length).find("://");
    if (scheme == std::string_view::npos) return false;
    const size_t user = scheme + 3;
    const size_t end = std::min(rest_.find_first_of(" \t\r\n'\"/\\", user), rest_.size());
    const std::string_view whole = rest_.substr(user, end - user);
    const size_t host = whole.rfind('@');
    if (host == std::string_view::npos || host == 0) return false;
    if (whole.substr(0, host).find(':') == std::string_view::npos && host < kShortestToken) {
      return false;
    }
    keep(user);
    text_ += kHidden;
    rest_.remove_prefix(host);
    // The rest of the word is not searched again: it may be long.
    if (length > user + host) keep(length - user - host);
    return true;
  }

  static constexpr std::string_view kQuoting = "'\"\\";

  /// Quotes and backslashes at the front of the rest: a shell may have quoted each quote.
  size_t quoting_length() const {
    return std::min(rest_.find_first_not_of(kQuoting), rest_.size());
  }

  void keep_pieces(size_t length) {
    while (length > 0) {
      const Piece piece = next_piece();
      if (piece.quote != 0) turn(piece.quote);
      const size_t taken = std::clamp<size_t>(piece.length, 1, length);
      keep(taken);
      length -= taken;
    }
  }

  /// Whether the rest, from a comma on, begins with the next text of a list that is no flag:
  /// ", 'value'".
  [[nodiscard]] bool has_list_value(size_t comma) const {
    const size_t opening = std::min(rest_.find_first_not_of(", ", comma), rest_.size());
    return rest_[comma] == ',' && opening + 1 < rest_.size() && is_quote(rest_[opening]) &&
           rest_[opening + 1] != '-';
  }

  /// The value of a JSON object's or a Python dict's member whose name was just kept:
  /// `": "value"`; of a flag in a list also `', 'value'`. False where the rest is none.
  bool take_member(std::string_view name) {
    const size_t quoting = quoting_length();
    size_t colon = quoting;
    while (colon < rest_.size() && is_blank(rest_[colon])) ++colon;
    if (quoting == 0 || colon >= rest_.size()) return false;
    const bool is_of_list = name.starts_with('-') && has_list_value(colon);
    if (rest_[colon] != ':' && !is_of_list) return false;
    keep_pieces(quoting);
    keep(colon - quoting + 1);
    keep_blanks();
    const size_t opening = quoting_length();
    keep_pieces(opening);
    hide_or_keep(name, opening > 0 ? std::min(rest_.find_first_of(kQuoting), rest_.size())
                                   : length_of_plain_value());
    return true;
  }

  /// Up to a comma or the end of the object; a list or an object up to its own end.
  [[nodiscard]] size_t length_of_plain_value() const {
    int depth = 0;
    for (size_t at = 0; at < rest_.size(); ++at) {
      const char c = rest_[at];
      if (c == '[' || c == '{') ++depth;
      if (depth == 0 && (c == ',' || c == '}' || c == ']' || is_quote(c) || is_blank(c))) return at;
      if ((c == ']' || c == '}') && --depth == 0) return at + 1;
    }
    return rest_.size();
  }

  /// Also ends of lines that a backslash takes away.
  void keep_blanks() {
    while (!rest_.empty() && (is_blank(rest_.front()) || rest_.starts_with("\\\n"))) keep(1);
  }

  /// `at`: in the rest.
  [[nodiscard]] Piece next_piece(size_t at = 0) const {
    size_t end = at;
    while (end < rest_.size() && rest_[end] == '\\') ++end;
    const size_t num_escapes = end - at;
    if (end == rest_.size()) return {.length = num_escapes};
    const char c = rest_[end];
    Piece piece{.length = num_escapes + 1};
    if (is_quote(c)) {
      // Between single quotes a backslash is one. Each level of double quotes adds some.
      constexpr size_t kMostLevels = 3;
      const bool is_plain = num_escapes % 2 == 0 || (c == '\'' && open_.ends_with('a'));
      const size_t level = is_plain ? 0 : std::min((num_escapes + 1) / 2, kMostLevels);
      piece.quote = static_cast<char>((c == '"' ? 'A' : 'a') + level);
    } else if (num_escapes > 0 && num_escapes % 2 == 0) {
      piece.length = num_escapes;
    } else {
      piece.is_end = num_escapes == 0 && (is_blank(c) || c == ';');
    }
    return piece;
  }

  /// Closes the quote, with those that were left open in it, or else opens it.
  void turn(char quote) {
    const size_t opened = open_.rfind(quote);
    if (opened == std::string::npos) {
      open_ += quote;
    } else {
      open_.resize(opened);
    }
  }

  /// The end of the word at the front of the rest, or of the quotes that it stands in.
  size_t end_of_value() {
    const size_t num_around = open_.size();
    size_t at = 0;
    while (at < rest_.size()) {
      const Piece piece = next_piece(at);
      if (piece.is_end && open_.size() == num_around) break;
      if (piece.quote != 0) {
        const size_t opened = open_.rfind(piece.quote);
        const bool closes_around = opened != std::string::npos && opened < num_around;
        const size_t behind = at + piece.length;
        const bool is_last =
            behind == rest_.size() || is_blank(rest_[behind]) || rest_[behind] == ';';
        if (closes_around && (at > 0 || is_last)) break;
        // A value that begins with a quote is quoted, whatever was left open before.
        if (closes_around) {
          open_ += piece.quote;
        } else {
          turn(piece.quote);
        }
      }
      at += piece.length;
    }
    // Quotes that the value opens and never closes are its own.
    if (open_.size() > num_around) open_.resize(num_around);
    return at;
  }

  void take_value(std::string_view name) { hide_or_keep(name, end_of_value()); }

  void hide_or_keep(std::string_view name, size_t length) {
    if (is_secret(name, rest_.substr(0, length))) {
      text_ += kHidden;
      rest_.remove_prefix(length);
    } else {
      keep(length);
    }
  }

  std::string text_;
  std::string_view rest_;
  std::string open_;  ///< quotes, the innermost at the end
};

}  // namespace

bool is_secret(std::string_view key, std::string_view value,
               std::optional<spec::dialects::Dialect> dialect) {
  if (is_choice(value)) return false;
  if (dialect && spec::dialects::is_known(key, *dialect)) return false;
  const Words words = words_of_name(key);
  const bool is_number = spec::dialects::parse_number(value).has_value();
  return names_secret(words) || (names_token(words) && !is_number);
}

void hide_secrets(spec::dialects::RunConfig& config) {
  const auto hide = [&](std::string_view key, std::string& value) {
    value = is_secret(key, value, config.dialect) ? std::string(kHidden) : without_secrets(value);
  };
  for (auto& [name, value] : config.environment) hide(name, value);
  for (auto& setting : config.unknown) hide(setting.key, setting.value);
  for (auto& setting : config.stated) hide(setting.key, setting.value);
}

std::string without_secrets(std::string_view command) {
  return CommandScan(command).without_secrets();
}

}  // namespace moetune::sweeps
