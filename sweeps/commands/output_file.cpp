// Tells what a file is by its beginning, or by the keys that it has.
#include "sweeps/commands/output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "kernels/base/error.h"
#include "profiler/store/untrusted_json.h"
#include "reports/page.h"
#include "sweeps/load.h"

namespace moetune::sweeps {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytesToParse = size_t{16} << 20;

std::string head_of(const std::string& path, size_t num_bytes) {
  std::string head(num_bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  return head;
}

/// A file of JSON with this key at the top.
bool has_top_key(const std::string& path, const char* key) {
  const std::string text = head_of(path, kMostBytesToParse);
  const nlohmann::json document = store::parse_untrusted(text, {.has_comments = true});
  return document.is_object() && document.contains(key);
}

bool is_of_kind(const std::string& path, OutputKind kind) {
  constexpr size_t kHeadBytes = 4096;
  const std::string head = head_of(path, kHeadBytes);
  switch (kind) {
    case OutputKind::chrome:
      return head.starts_with('{') && head.find("\"traceEvents\"") != std::string::npos;
    case OutputKind::perfetto:
      // A packet of the first field; text that begins with an empty line has no such bytes.
      return head.starts_with('\n') && std::ranges::any_of(head, [](char c) {
               return c >= 0 && c < ' ' && c != '\n' && c != '\r' && c != '\t';
             });
    case OutputKind::hardware:
      return has_top_key(path, "devices_per_node");
    case OutputKind::rates:
      return has_top_key(path, "rates");
    case OutputKind::page:
    case OutputKind::fresh:
      return false;
  }
  return false;
}

std::string_view words_for(OutputKind kind) {
  switch (kind) {
    case OutputKind::chrome:
      return "trace in Chrome's format";
    case OutputKind::perfetto:
      return "trace in Perfetto's format";
    case OutputKind::hardware:
      return "hardware file";
    case OutputKind::rates:
      return "file of rates";
    case OutputKind::page:
      return "HTML page";
    case OutputKind::fresh:
      break;
  }
  return "new file";
}

/// By name too: a database may be made only later.
bool names_same_file(const std::string& one, const std::string& other) {
  std::error_code error;
  if (fs::equivalent(one, other, error)) return true;
  const fs::path first = fs::weakly_canonical(one, error);
  if (error) return false;
  const fs::path second = fs::weakly_canonical(other, error);
  return !error && first == second;
}

}  // namespace

void check_output(const std::string& path, OutputKind kind, const std::string& option,
                  const std::vector<std::string>& inputs) {
  if (path.empty()) return;
  for (const std::string& input : inputs) {
    if (input.empty() || input == "-" || !names_same_file(path, input)) continue;
    throw base::UsageError(
        fmt::format("{}: is what this command reads; {} takes another file", path, option));
  }
  if (kind == OutputKind::page) return reports::check_target("", path, option);
  std::error_code ignored;
  std::error_code error;
  const fs::path folder = fs::absolute(path, ignored).parent_path();
  const fs::file_status status = fs::status(path, error);
  // A name that is too long, or a link to itself.
  if (status.type() == fs::file_type::none) {
    throw base::UsageError(fmt::format("{}: {}", shown_path(path), error.message()));
  }
  if (fs::is_directory(status) || !fs::is_directory(folder, ignored)) {
    throw base::UsageError(
        fmt::format("{}: {} needs a folder that exists and may be written", path, option));
  }
  if (kind == OutputKind::fresh && fs::exists(status)) {
    throw base::UsageError(fmt::format("{}: {} is there already", option, path));
  }
  if (fs::is_regular_file(status) && fs::file_size(path, ignored) > 0) {
    constexpr std::string_view kSqlite = "SQLite format 3";
    if (head_of(path, kSqlite.size()) == kSqlite) {
      throw base::UsageError(fmt::format("{}: is a database; {} takes another file", path, option));
    }
    if (!is_of_kind(path, kind)) {
      throw base::UsageError(fmt::format("{0}: is there already and is no {1}; {2} takes a {1}",
                                         path, words_for(kind), option));
    }
  }
  const std::string written = fs::exists(status) ? path : folder.string();
  if (::access(written.c_str(), W_OK) != 0) {
    throw base::UsageError(fmt::format("{}: {} cannot be written", path, option));
  }
}

}  // namespace moetune::sweeps
