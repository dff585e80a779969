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

/// Of a folder or its files, the latest change; 0 where there is nothing.
std::time_t changed_at(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_mtim.tv_sec : 0;
}

}  // namespace

std::vector<std::string> files_left(std::string_view patterns, const std::string& folder,
                                    std::time_t since) {
  std::vector<std::string> files;
  std::istringstream words{std::string(patterns)};
  for (std::string pattern; words >> pattern;) {
    const std::string path = fs::path(pattern).is_absolute() ? pattern : folder + "/" + pattern;
    glob_t found{};
    if (glob(path.c_str(), 0, nullptr, &found) == 0) {
      for (size_t i = 0; i < found.gl_pathc; ++i) {
        const std::string file = found.gl_pathv[i];
        std::error_code error;
        // Folders are looked into by whoever reads them; their own time says little.
        const bool is_new = fs::is_directory(file, error) || changed_at(file) >= since;
        if (is_new && std::ranges::find(files, file) == files.end()) files.push_back(file);
      }
    }
    globfree(&found);
  }
  return files;
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
