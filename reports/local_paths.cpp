// Finds where an absolute path begins and ends in free text, and what may stand in its place.
#include "reports/local_paths.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace moetune::reports {
namespace {

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

// What names of files are made of; anything beyond ASCII counts.
bool is_name_character(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0 ||
         std::string_view("_.~+@%,-").find(c) != std::string_view::npos;
}

// Whether a path may start here: behind a space, a quote, a sign, or an option of one letter (-I).
bool may_start(std::string_view before) {
  if (before.empty()) return true;
  constexpr std::string_view kBefore = " \t\n\r\"'`=([{,;:|>&";
  if (kBefore.find(before.back()) != std::string_view::npos) return true;
  return before.size() >= 2 && is_letter(before.back()) && before[before.size() - 2] == '-' &&
         (before.size() == 2 || before[before.size() - 3] == ' ');
}

// One name behind a slash is a path only where it is a usual folder: "tokens /s" and "/dtype" are
// none.
constexpr auto kTopFolders = std::to_array<std::string_view>(
    {"bin",  "data", "dev",     "etc", "home", "lib", "mnt", "nfs", "opt", "proc", "repo",
     "root", "run",  "scratch", "srv", "src",  "sys", "tmp", "usr", "var", "work", "workspace"});
// Keys of a trial's spec that hold others.
constexpr auto kSpecKeys =
    std::to_array<std::string_view>({"hardware", "knobs", "model", "training"});

// Whether "a/b/c", which stands behind a slash, names a file or folder.
bool is_path(std::string_view names) {
  const size_t slash = names.find('/');
  const std::string_view first = names.substr(0, slash);
  if (slash == std::string_view::npos) return std::ranges::count(kTopFolders, first) > 0;
  const bool has_dot = names.find('.') != std::string_view::npos;
  return has_dot || std::ranges::count(kSpecKeys, first) == 0;
}

// Length of the absolute path that `text` starts with, 0: none. Two slashes begin no path but the
// host of an address.
size_t path_length(std::string_view text) {
  size_t start = 0;
  while (start < text.size() && text[start] == '/') ++start;
  if (start == 0 || start == 2) return 0;
  size_t end = start;
  while (end < text.size() && (is_name_character(text[end]) || text[end] == '/')) ++end;
  return is_path(text.substr(start, end - start)) ? end : 0;
}

std::string_view last_part(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);
}

// `name(path)` in the place of each absolute path.
template <typename Name>
std::string with_paths_named(std::string_view text, Name name) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length =
        text[i] == '/' && may_start(text.substr(0, i)) ? path_length(text.substr(i)) : 0;
    if (length == 0) {
      result += text[i++];
      continue;
    }
    result += name(text.substr(i, length));
    i += length;
  }
  return result;
}

}  // namespace

std::string without_folders(std::string_view text) { return with_paths_named(text, last_part); }

std::string seen_from(std::string_view folder, std::string_view text) {
  while (folder.ends_with('/')) folder.remove_suffix(1);
  return with_paths_named(text, [&](std::string_view path) -> std::string_view {
    if (folder.empty() || !path.starts_with(folder)) return path;
    const std::string_view rest = path.substr(folder.size());
    if (rest.empty() || rest == "/") return ".";
    return rest.front() == '/' ? rest.substr(1) : path;
  });
}

TypedCommand typed_command(const std::string& command_line) {
  constexpr std::string_view kChange = "cd ";
  constexpr std::string_view kThen = " && ";
  const size_t then = command_line.find(kThen);
  if (!command_line.starts_with(kChange) || then == std::string::npos) return {"", command_line};
  std::string folder = command_line.substr(kChange.size(), then - kChange.size());
  if (folder.size() >= 2 && folder.front() == '\'' && folder.back() == '\'') {
    folder = folder.substr(1, folder.size() - 2);
  }
  const std::string typed = command_line.substr(then + kThen.size());
  // The program is found on the path; everything else is where it was.
  const size_t end = typed.find(' ');
  return {folder, without_folders(std::string_view(typed).substr(0, end)) +
                      (end == std::string::npos ? "" : seen_from(folder, typed.substr(end)))};
}

}  // namespace moetune::reports
