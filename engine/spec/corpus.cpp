// Reads files in a fixed order and within a limit, so that a folder gives the same bytes
// everywhere.
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
#include "kernels/base/fnv.h"

namespace moetune::spec {
namespace {

namespace fs = std::filesystem;

/// Read at once; the first block of a file also decides whether it is text.
constexpr size_t kBlockBytes = 4096;

/// Length of the UTF-8 character at the start of `text`; 0 when there is none. A character that
/// the end of `text` cuts off counts as whole. Lead bytes that no character has are refused, finer
/// rules (overlong forms, surrogates) are not looked at.
size_t utf8_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const std::string_view rest = text.substr(1, length - 1);
  const bool is_valid = std::all_of(rest.begin(), rest.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
  });
  return is_valid ? std::min(length, text.size()) : 0;
}

/// No NUL and mostly UTF-8. A tenth of other bytes is let through, for old encodings of western
/// languages; compressed data has far more.
bool looks_like_text(std::string_view head) {
  if (head.empty() || head.find('\0') != std::string_view::npos) return false;
  size_t num_invalid = 0;
  for (std::string_view rest = head; !rest.empty();) {
    const size_t length = utf8_length(rest);
    if (length == 0) ++num_invalid;
    rest.remove_prefix(std::max<size_t>(length, 1));
  }
  return num_invalid * 10 <= head.size();
}

bool is_database(const fs::path& path) {
  constexpr std::string_view kMagic = "SQLite format 3";
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  std::ifstream in(path, std::ios::binary);
  std::string head(kMagic.size(), ' ');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  return in && head == kMagic;
}

/// The lock, the copied text, the running trial, the reference run's state and the report of a runs
/// database. As text they
/// would give a folder another digest each time moetune ran in it, and no sweep could be resumed.
bool is_of_database(const fs::path& path) {
  if (path.extension() == ".html") return is_database(fs::path(path).replace_extension(".db"));
  static constexpr std::array<std::string_view, 4> kExtensions = {".lock", ".text", ".running",
                                                                  ".reference"};
  return std::find(kExtensions.begin(), kExtensions.end(), path.extension().string()) !=
             kExtensions.end() &&
         is_database(fs::path(path).replace_extension());
}

bool is_passed_over(const fs::path& path, bool is_folder) {
  if (path.filename().string().starts_with(".") || is_of_database(path)) return true;
  static constexpr std::array<std::string_view, 4> kFolders = {"build", "node_modules", "out",
                                                               "__pycache__"};
  std::error_code ignored;
  return is_folder &&
         (std::find(kFolders.begin(), kFolders.end(), path.filename().string()) != kFolders.end() ||
          fs::exists(path / "CMakeCache.txt", ignored));
}

/// In path order: the order in which a folder lists its files is not the same everywhere.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  auto entry =
      fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied);
  for (; entry != fs::recursive_directory_iterator(); ++entry) {
    // A link that leads nowhere or in a circle is no file.
    std::error_code ignored;
    const bool is_folder = entry->is_directory(ignored);
    if (is_folder && is_passed_over(entry->path(), true)) {
      entry.disable_recursion_pending();
    } else if (!is_folder && entry->is_regular_file(ignored) &&
               !is_passed_over(entry->path(), false)) {
      files.push_back(entry->path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Appends a file up to `max_bytes` in all, if it is text or `is_any` kind will do. Never holds
/// more of the file than that.
void append_file(const fs::path& path, bool is_any, size_t max_bytes, Corpus& corpus) {
  std::ifstream in(path, std::ios::binary);
  std::array<char, kBlockBytes> block{};
  bool is_first = true;
  while (in) {
    in.read(block.data(), block.size());
    const std::string_view read(block.data(), static_cast<size_t>(in.gcount()));
    if (is_first && !is_any && !in.bad() && !looks_like_text(read)) return;
    const size_t num_kept = std::min(read.size(), max_bytes - corpus.bytes.size());
    if (is_first && (is_any || num_kept > 0)) ++corpus.num_files;
    is_first = false;
    corpus.bytes.append(read.substr(0, num_kept));
    if (num_kept < read.size()) {
      corpus.is_cut = true;
      return;
    }
  }
  if (in.bad() || is_first) {
    throw base::UsageError(fmt::format("training text '{}' cannot be read", path.string()));
  }
}

}  // namespace

Corpus read_corpus(const std::string& path, int64_t max_bytes) {
  const auto limit = static_cast<size_t>(max_bytes);
  Corpus corpus;
  try {
    const fs::file_status status = fs::status(path);
    if (!fs::exists(status)) {
      throw base::UsageError(fmt::format("training text '{}' does not exist", path));
    }
    if (fs::is_regular_file(status)) {
      append_file(path, true, limit, corpus);
    } else if (fs::is_directory(status)) {
      for (const fs::path& file : files_below(path)) {
        append_file(file, false, limit, corpus);
        if (corpus.is_cut) break;
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
  corpus.digest = base::fnv_digits(corpus.bytes);
  return corpus;
}

}  // namespace moetune::spec
