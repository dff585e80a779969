#include "sweeps/adapters/left_files.h"

#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "kernels/base/error.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFilesBelow = 20'000;

/// Separated by blanks that no backslash stands before.
std::vector<std::string> split_patterns(std::string_view patterns) {
  std::vector<std::string> words;
  std::string word;
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (std::string_view(" \t\n\r").find(patterns[i]) != std::string_view::npos) {
      if (!word.empty()) words.push_back(std::exchange(word, {}));
      continue;
    }
    if (patterns[i] == '\\' && i + 1 < patterns.size()) word += patterns[i++];
    word += patterns[i];
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

void add_mark(const std::string& path, FileMarks& files) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  files[path] = {int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec, info.st_size};
}

void add_marks_below(const std::string& folder, FileMarks& files) {
  std::error_code error;
  const auto options = fs::directory_options::skip_permission_denied;
  size_t num_files = 0;
  for (auto entry = fs::recursive_directory_iterator(folder, options, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().filename().string().starts_with('.')) {
      if (entry->is_directory(ignored)) entry.disable_recursion_pending();
      continue;
    }
    // Two names of one file are one file.
    if (!entry->is_regular_file(ignored) || entry->is_symlink(ignored)) continue;
    // With a part of them nobody could tell which are new.
    if (++num_files > kMostFilesBelow) {
      throw base::UsageError(fmt::format(
          "{}: there are more than {} files in this folder: narrow the pattern to the run's files",
          folder, kMostFilesBelow));
    }
    add_mark(entry->path(), files);
  }
}

}  // namespace

std::string escaped_for_patterns(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (std::string_view("*?[\\ \t\n\r").find(c) != std::string_view::npos) text += '\\';
    text += c;
  }
  return text;
}

FileMarks files_at(std::string_view patterns, const std::string& folder) {
  FileMarks files;
  for (const std::string& pattern : split_patterns(patterns)) {
    const std::string path =
        pattern.starts_with('/') ? pattern : escaped_for_patterns(folder) + "/" + pattern;
    glob_t found{};
    if (glob(path.c_str(), 0, nullptr, &found) == 0) {
      for (size_t i = 0; i < found.gl_pathc; ++i) {
        const std::string match = found.gl_pathv[i];
        std::error_code error;
        if (fs::is_directory(match, error)) {
          add_marks_below(match, files);
        } else {
          add_mark(match, files);
        }
      }
    }
    globfree(&found);
  }
  return files;
}

std::vector<std::string> changed_files(std::string_view patterns, const std::string& folder,
                                       const FileMarks& before) {
  std::vector<std::string> changed;
  for (const auto& [path, mark] : files_at(patterns, folder)) {
    const auto was = before.find(path);
    if (was == before.end() || !(was->second == mark)) changed.push_back(path);
  }
  return changed;
}

int64_t bytes_of(const std::vector<std::string>& files) {
  int64_t bytes = 0;
  for (const std::string& file : files) {
    struct stat info {};
    if (stat(file.c_str(), &info) == 0) bytes += info.st_size;
  }
  return bytes;
}

std::string end_of_file(const std::string& path, int64_t most_bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const int64_t size = file.tellg();
  file.seekg(std::max<int64_t>(0, size - most_bytes));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace moetune::sweeps
