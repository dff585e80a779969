// The share folder and its shelves: names are compared, files are never opened.
#include "engine/spec/library.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "engine/spec/json_reader.h"

namespace moetune::spec {

namespace fs = std::filesystem;

namespace {

constexpr std::array kShelves = {
    ShelfRow{Shelf::model, "model", "models"},
    ShelfRow{Shelf::hardware, "hardware", "hardware"},
    ShelfRow{Shelf::sweep, "sweep", "sweeps"},
    ShelfRow{Shelf::text, "text", "data"},
};

constexpr std::array<std::string_view, 2> kEndings = {".json", ".txt"};

bool has_ending(std::string_view file) {
  return std::ranges::any_of(kEndings,
                             [&](std::string_view ending) { return file.ends_with(ending); });
}

const ShelfRow& row_of(Shelf shelf) {
  return *std::ranges::find(kShelves, shelf, &ShelfRow::shelf);
}

/// Sorted by name.
std::vector<fs::path> files_on(Shelf shelf) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(share_folder() / row_of(shelf).folder, error), end;
       !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (has_ending(entry->path().native()) && entry->is_regular_file(ignored)) {
      files.push_back(entry->path());
    }
  }
  std::ranges::sort(files, {}, [](const fs::path& file) { return library_name(file.native()); });
  return files;
}

std::string without_dashes(std::string name) {
  std::erase(name, '-');
  return name;
}

std::string joined_name(std::string name) {
  std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
  return name;
}

/// Parts of each other, or a few letters apart.
std::vector<std::string> near_names(const std::vector<std::string>& names, std::string_view name) {
  constexpr size_t kFewestLetters = 3;
  const std::string wanted = without_dashes(library_name(name));
  std::vector<std::string> near;
  if (wanted.size() >= kFewestLetters) {
    std::ranges::copy_if(names, std::back_inserter(near), [&](const std::string& other) {
      return without_dashes(other).find(wanted) != std::string::npos;
    });
  }
  if (near.empty()) {
    const std::string nearest = nearest_name(library_name(name), names);
    if (!nearest.empty()) near.push_back(nearest);
  }
  return near;
}

}  // namespace

std::span<const ShelfRow> shelf_table() { return kShelves; }

fs::path share_folder() {
  const char* named = std::getenv("MOETUNE_SHARE");
  if (named != nullptr && *named != '\0') return named;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return program.parent_path().parent_path() / "share" / "moetune";
}

std::string library_name(std::string_view file) {
  std::string name(file.substr(file.rfind('/') + 1));
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = '-';
  }
  for (const std::string_view ending : kEndings) {
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  }
  return name;
}

std::vector<std::string> library_names(Shelf shelf) {
  std::vector<std::string> names;
  for (const fs::path& file : files_on(shelf)) names.push_back(library_name(file.native()));
  return names;
}

std::string find_in_library(Shelf shelf, std::string_view name) {
  if (name.find('/') != std::string_view::npos) return {};
  const std::string wanted = library_name(name);
  for (const fs::path& file : files_on(shelf)) {
    if (library_name(file.native()) == wanted) return file;
  }
  return {};
}

std::string likely_in_library(Shelf shelf, std::string_view name) {
  // The name of a file that is missing is not guessed at.
  if (name.find('/') != std::string_view::npos || has_ending(name)) return {};
  const std::string wanted = library_name(name);
  std::vector<fs::path> same;
  std::vector<fs::path> longer;
  for (const fs::path& file : files_on(shelf)) {
    const std::string other = library_name(file.native());
    if (joined_name(other) == joined_name(wanted)) same.push_back(file);
    if (!wanted.empty() && other.starts_with(wanted + "-")) longer.push_back(file);
  }
  const std::vector<fs::path>& found = same.empty() ? longer : same;
  return found.size() == 1 ? found.front().native() : std::string();
}

std::string find_file(Shelf shelf, const std::string& path_or_name, const std::string& folder) {
  std::string path = (fs::path(folder) / path_or_name).lexically_normal();
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error)) return path;
  return find_in_library(shelf, path_or_name);
}

std::string library_hint(Shelf shelf, std::string_view name) {
  const ShelfRow& row = row_of(shelf);
  const std::vector<std::string> names = library_names(shelf);
  std::error_code error;
  if (!fs::exists(share_folder(), error)) {
    return fmt::format(
        "there are no names: the share folder {} is missing, which comes with moetune; the "
        "environment variable MOETUNE_SHARE can name another",
        share_folder().native());
  }
  if (names.empty()) {
    return fmt::format("there are no names: nothing is in {}",
                       (share_folder() / row.folder).native());
  }
  const std::vector<std::string> near = near_names(names, name);
  if (near.empty()) return fmt::format("known names: {}", fmt::join(names, ", "));
  return fmt::format("did you mean '{}'?", fmt::join(near, "' or '"));
}

}  // namespace moetune::spec
