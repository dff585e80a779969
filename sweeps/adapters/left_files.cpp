#include "sweeps/adapters/left_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;

}  // namespace

FileMarks files_at(std::string_view patterns, const std::string& folder) {
  FileMarks files;
  std::istringstream words{std::string(patterns)};
  for (std::string pattern; words >> pattern;) {
    const std::string path = fs::path(pattern).is_absolute() ? pattern : folder + "/" + pattern;
    glob_t found{};
    if (glob(path.c_str(), 0, nullptr, &found) == 0) {
      for (size_t i = 0; i < found.gl_pathc; ++i) {
        struct stat info {};
        if (stat(found.gl_pathv[i], &info) != 0) continue;
        files[found.gl_pathv[i]] = {
            int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec, info.st_size};
      }
    }
    globfree(&found);
  }
  return files;
}

std::vector<std::string> files_left(std::string_view patterns, const std::string& folder,
                                    const FileMarks& before) {
  std::vector<std::string> left;
  for (const auto& [path, mark] : files_at(patterns, folder)) {
    const auto was = before.find(path);
    std::error_code error;
    if (was == before.end() || !(was->second == mark) || fs::is_directory(path, error)) {
      left.push_back(path);
    }
  }
  return left;
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
