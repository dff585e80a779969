// Reading of training text; see corpus.h.
#include "engine/spec/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"

namespace moetune::spec {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = size_t{64} << 20;

bool is_text_name(const fs::path& path) {
  static constexpr std::array<std::string_view, 12> kExtensions = {
      ".txt", ".md", ".h", ".cpp", ".cu", ".cuh", ".c", ".py", ".sql", ".cmake", ".js", ".css"};
  const std::string extension = path.extension().string();
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

bool is_passed_over(const fs::path& folder) {
  static constexpr std::array<std::string_view, 3> kFolders = {"build", "node_modules", "out"};
  const std::string name = folder.filename().string();
  return name.starts_with(".") ||
         std::find(kFolders.begin(), kFolders.end(), name) != kFolders.end();
}

std::vector<fs::path> text_files(const fs::path& folder) {
  std::vector<fs::path> files;
  auto entry =
      fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied);
  for (; entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry->is_directory() && is_passed_over(entry->path())) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && is_text_name(entry->path())) {
      files.push_back(entry->path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

void append_file(const fs::path& path, std::string& bytes) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw base::UsageError(fmt::format("training text '{}' cannot be read", path.string()));
  }
  bytes.append(std::istreambuf_iterator<char>(in), {});
  if (bytes.size() > kMaxBytes) bytes.resize(kMaxBytes);
}

std::string fnv1a(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace

Corpus read_corpus(const std::string& path) {
  Corpus corpus;
  try {
    const fs::file_status status = fs::status(path);
    if (!fs::exists(status)) {
      throw base::UsageError(fmt::format("training text '{}' does not exist", path));
    }
    if (fs::is_regular_file(status)) {
      append_file(path, corpus.bytes);
      corpus.num_files = 1;
    } else if (fs::is_directory(status)) {
      for (const fs::path& file : text_files(path)) {
        append_file(file, corpus.bytes);
        ++corpus.num_files;
        if (corpus.bytes.size() >= kMaxBytes) break;
      }
    } else {
      throw base::UsageError(
          fmt::format("training text '{}' is neither a file nor a folder", path));
    }
  } catch (const fs::filesystem_error& error) {
    throw base::UsageError(
        fmt::format("training text '{}' cannot be read: {}", path, error.code().message()));
  }
  if (corpus.bytes.empty()) {
    throw base::UsageError(fmt::format("training text '{}' holds no text", path));
  }
  corpus.digest = fnv1a(corpus.bytes);
  return corpus;
}

}  // namespace moetune::spec
