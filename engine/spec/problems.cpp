// Messages about one file, gathered.
#include "engine/spec/problems.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace moetune::spec {

namespace {

std::string all_of(const std::vector<std::string>& messages) {
  constexpr size_t kMostShown = 20;
  std::string text = fmt::format("{} mistakes:", messages.size());
  for (size_t i = 0; i < std::min(messages.size(), kMostShown); ++i) text += "\n  " + messages[i];
  if (messages.size() > kMostShown) {
    text += fmt::format("\n  and {} more", messages.size() - kMostShown);
  }
  return text;
}

struct ToldPlace {
  std::string_view file;
  int64_t line;
};

/// "f.json" and 7 of "f.json: hardware: line 7: ..."; none where a message has no line.
std::optional<ToldPlace> told_place(std::string_view message) {
  constexpr std::string_view kLine = ": line ";
  const size_t at = message.find(kLine);
  if (at == std::string_view::npos) return std::nullopt;
  const char* const first = message.data() + at + kLine.size();
  ToldPlace place{message.substr(0, at), 0};
  if (std::from_chars(first, message.data() + message.size(), place.line).ec != std::errc()) {
    return std::nullopt;
  }
  // Behind the file stands the part of it that was read, a dotted key.
  while (true) {
    const size_t part = place.file.rfind(": ");
    const bool is_key =
        part != std::string_view::npos &&
        place.file.find_first_not_of("abcdefghijklmnopqrstuvwxyz_.", part + 2) == place.file.npos;
    if (!is_key) return place;
    place.file = place.file.substr(0, part);
  }
}

/// The messages of a file by their lines, in the places that they have among the others'.
std::vector<std::string> in_order_of_lines(std::vector<std::string> messages) {
  std::map<std::string, std::vector<std::pair<int64_t, size_t>>> by_file;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (const auto place = told_place(messages[i])) {
      by_file[std::string(place->file)].emplace_back(place->line, i);
    }
  }
  std::vector<std::string> ordered = messages;
  for (const auto& [file, lines] : by_file) {
    auto sorted = lines;
    std::ranges::sort(sorted);
    for (size_t i = 0; i < lines.size(); ++i) {
      ordered[lines[i].second] = std::move(messages[sorted[i].second]);
    }
  }
  return ordered;
}

}  // namespace

UsageErrors::UsageErrors(std::vector<std::string> messages)
    : UsageError(all_of(messages)), messages_(std::move(messages)) {}

void Problems::add(std::string message) {
  if (std::find(messages_.begin(), messages_.end(), message) == messages_.end()) {
    messages_.push_back(std::move(message));
  }
}

void Problems::throw_if_any() const {
  if (messages_.empty()) return;
  if (messages_.size() == 1) throw base::UsageError(messages_.front());
  throw UsageErrors(in_order_of_lines(messages_));
}

}  // namespace moetune::spec
