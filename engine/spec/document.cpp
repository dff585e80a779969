// Reading documents that people wrote: syntax, lines, and what is refused before any key is read.
#include "engine/spec/document.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "engine/spec/problems.h"
#include "kernels/base/error.h"
#include "kernels/base/utf8.h"

namespace moetune::spec {

using base::UsageError;
using nlohmann::json;

namespace {

// Beyond this a document is no longer a configuration; deep nesting also costs stack in recursive
// code.
constexpr int kMaxDepth = 64;

/// "line 2, column 7" of a byte, counted from 1, in characters.
std::string place_of(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const size_t line_start =
      before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  const auto is_first_byte = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return fmt::format("line {}, column {}", std::count(before.begin(), before.end(), '\n') + 1,
                     std::count_if(before.begin() + static_cast<std::ptrdiff_t>(line_start),
                                   before.end(), is_first_byte) +
                         1);
}

/// Part of a document that is not valid, made printable: bytes that are no ASCII text become '?'.
std::string quoted(std::string_view token) {
  std::string text(token.substr(0, kMostShownBytes + 1));
  for (char& c : text) c = c < 0x20 || c > 0x7E ? '?' : c;
  if (token.size() == 1 && text == "?") {
    return fmt::format("byte 0x{:02X}", static_cast<unsigned char>(token.front()));
  }
  return fmt::format("'{}'", base::shortened(text, kMostShownBytes));
}

/// The part of a document that the parser stopped at, given where it stopped and what it says.
std::string_view offending(std::string_view text, size_t last, std::string_view complaint) {
  const auto is_word = [&](size_t at) {
    constexpr std::string_view kOthers = "+-._";
    const char c = text[at];
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kOthers.find(c) != std::string_view::npos;
  };
  const auto complains = [&](const char* part) {
    return complaint.find(part) != std::string_view::npos;
  };
  size_t first = last;
  size_t end = last + 1;
  if (text[last] == '"' && complains("unexpected string")) {
    first = text.rfind('"', std::max<size_t>(last, 1) - 1);
    if (first == std::string_view::npos) first = last;
  } else if (is_word(last) || complains("invalid literal") || complains("invalid number")) {
    while (first > 0 && is_word(first - 1)) --first;
    while (is_word(end - 1) && end < text.size() && is_word(end)) ++end;
  }
  return text.substr(first, end - first);
}

/// Whether an object or a list ends at `at` where a comma says that it goes on.
bool closes_behind_comma(std::string_view text, size_t at) {
  if (at >= text.size() || (text[at] != '}' && text[at] != ']')) return false;
  const size_t before = text.substr(0, at).find_last_not_of(" \t\r\n");
  return before != std::string_view::npos && text[before] == ',';
}

/// Reads characters and counts the lines that are behind it.
class LineCounter {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineCounter(const char* at, int64_t* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  LineCounter& operator++() {
    if (*at_ == '\n') ++*line_;
    ++at_;
    return *this;
  }
  LineCounter operator++(int) {
    LineCounter before = *this;
    ++*this;
    return before;
  }
  bool operator==(const LineCounter& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  int64_t* line_;
};

/// Reads a document without keeping it, and notes where its keys stand and what read_document
/// refuses.
class Checker : public nlohmann::json_sax<json> {
 public:
  /// `line` is the one that the parser has come to.
  Checker(std::string_view text, const std::string& source, const int64_t& line)
      : text_(text), source_(source), line_(line) {}

  Lines take_lines() { return std::move(lines_); }
  /// Throws for all that was noted.
  void throw_if_any() const { problems_.throw_if_any(); }

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool string(string_t& value) override {
    if (value.find('\0') != std::string::npos) {
      add(fmt::format("{}: {}a text holds a NUL character (\\u0000)", source_, where()));
    }
    return true;
  }
  bool key(string_t& name) override {
    string(name);
    Level& level = levels_.back();
    level.key = name;
    if (const auto [first, is_new] = level.keys.emplace(name, line_); !is_new) {
      // The only line of a text needs no number.
      const bool has_lines = text_.find('\n') != std::string_view::npos;
      add(fmt::format("{}: {}key '{}' is there twice in the same object{}", source_,
                      has_lines ? fmt::format("line {}: ", line_) : "",
                      base::shortened(path(), kMostShownBytes),
                      has_lines ? fmt::format(", first in line {}", first->second) : ""));
    }
    note_line();
    return true;
  }
  bool start_object(size_t /*size*/) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(size_t /*size*/) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const json::exception& error) override {
    constexpr int kNumberTooLarge = 406;
    if (position > text_.size()) {
      add(fmt::format("{}: {}: not valid JSON (found the end of the file)", source_,
                      place_of(text_, text_.size())));
      return false;
    }
    const std::string_view found =
        offending(text_, std::max<size_t>(position, 1) - 1, error.what());
    const auto at = static_cast<size_t>(found.data() - text_.data());
    const char* more = error.id == kNumberTooLarge      ? ", a number too large"
                       : closes_behind_comma(text_, at) ? " behind a comma"
                                                        : "";
    add(fmt::format("{}: {}: not valid JSON (found {}{})", source_, place_of(text_, at),
                    quoted(found), more));
    return false;
  }

 private:
  /// An object or array that is open.
  struct Level {
    std::map<std::string, int64_t, std::less<>> keys;  ///< with their lines
    std::string key;
  };

  void add(std::string message) {
    problems_.add(std::move(message));
    // A hostile file is not read to its end.
    constexpr int kMostProblems = 100;
    if (++num_problems_ >= kMostProblems) problems_.throw_if_any();
  }
  bool enter() {
    if (levels_.empty()) note_line();
    levels_.emplace_back();
    if (levels_.size() <= static_cast<size_t>(kMaxDepth)) return true;
    throw UsageError(fmt::format("{}: JSON nested deeper than {} levels", source_, kMaxDepth));
  }
  bool leave() {
    levels_.pop_back();
    return true;
  }
  /// Of what a message may be about: a hostile file has no room here.
  void note_line() {
    constexpr size_t kMostLines = 10'000;
    constexpr size_t kLongestPath = 300;
    if (lines_.size() >= kMostLines) return;
    size_t length = 0;
    for (const Level& level : levels_) length += level.key.size() + 1;
    if (length <= kLongestPath) lines_.emplace(path(), line_);
  }
  [[nodiscard]] std::string path() const {
    std::string path;
    for (const Level& level : levels_) {
      if (level.key.empty()) continue;
      path += (path.empty() ? "" : ".") + level.key;
    }
    return path;
  }
  [[nodiscard]] std::string where() const {
    const std::string at = base::shortened(path(), kMostShownBytes);
    return at.empty() ? "" : fmt::format("key '{}': ", at);
  }

  std::string_view text_;
  const std::string& source_;
  const int64_t& line_;
  std::vector<Level> levels_;
  Lines lines_;
  Problems problems_;
  int num_problems_ = 0;
};

}  // namespace

std::string describe(const json& value) {
  if (value.is_object()) return fmt::format("an object with {} keys", value.size());
  if (value.is_array()) return fmt::format("an array of {} values", value.size());
  return base::shortened(value.dump(-1, ' ', false, json::error_handler_t::replace),
                         kMostShownBytes);
}

Source::Source(std::string name, Lines lines)
    : name_(std::move(name)), lines_(std::make_shared<const Lines>(std::move(lines))) {}

Source Source::within(std::string_view key) const {
  Source part = *this;
  part.name_ += fmt::format(": {}", key);
  part.path_ += (path_.empty() ? "" : ".") + std::string(key);
  return part;
}

std::string Source::prefix(std::string_view path) const {
  if (lines_ == nullptr) return name_ + ": ";
  std::string whole = path_ + (path_.empty() || path.empty() ? "" : ".") + std::string(path);
  while (true) {
    if (const auto found = lines_->find(whole); found != lines_->end()) {
      return fmt::format("{}: line {}: ", name_, found->second);
    }
    if (whole.empty()) return name_ + ": ";
    const size_t end = whole.find_last_of(".[");
    whole.resize(end == std::string::npos ? 0 : end);
  }
}

Document read_document(std::string_view text, const std::string& name) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw UsageError(fmt::format("{}: is empty, expected a JSON document", name));
  }
  // The parser would take a NUL for the end of the text and not look at what follows.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw UsageError(
        fmt::format("{}: {}: not valid JSON (found a NUL byte)", name, place_of(text, nul)));
  }
  constexpr bool kStrict = true;
  constexpr bool kIgnoresComments = true;
  int64_t line = 1;
  Checker checker(text, name, line);
  json::sax_parse(LineCounter(text.data(), &line), LineCounter(text.data() + text.size(), &line),
                  &checker, json::input_format_t::json, kStrict, kIgnoresComments);
  checker.throw_if_any();
  return {json::parse(text.begin(), text.end(), nullptr, true, kIgnoresComments),
          Source(name, checker.take_lines())};
}

json parse_json(std::string_view text, const std::string& source) {
  return read_document(text, source).json;
}

}  // namespace moetune::spec
