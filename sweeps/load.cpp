// Files of specs; see load.h.
#include "sweeps/load.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/spec/corpus.h"
#include "engine/spec/json_reader.h"
#include "engine/spec/library.h"
#include "engine/spec/spec_files.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"

namespace moetune::sweeps {
namespace {

constexpr uintmax_t kMaxSpecBytes = 64 << 20;
constexpr const char* kStandardInput = "standard input";

/// A spec file, found and read.
struct SpecFile {
  std::string source;  ///< in messages
  std::string folder;  ///< where its relative paths start from
  std::string text;
};

SpecFile read_standard_input() {
  std::string text;
  for (std::array<char, 1 << 16> buffer; std::cin.good() && text.size() <= kMaxSpecBytes;) {
    std::cin.read(buffer.data(), buffer.size());
    text.append(buffer.data(), static_cast<size_t>(std::cin.gcount()));
  }
  if (text.size() > kMaxSpecBytes) {
    throw base::UsageError(fmt::format("{}: has more than {} bytes, expected a JSON file",
                                       kStandardInput, kMaxSpecBytes));
  }
  return {kStandardInput, std::filesystem::current_path(), std::move(text)};
}

SpecFile open_spec(const std::string& path_or_name) {
  if (path_or_name == "-") return read_standard_input();
  const std::string path = spec_path(path_or_name);
  return {path, std::filesystem::absolute(path).parent_path(), read_spec_file(path)};
}

/// The digest makes the bytes a part of the trial's identity.
std::string bind_data(spec::TrialSpec& spec, const std::string& source) {
  if (spec.data_path.empty()) {
    throw base::UsageError(fmt::format(
        "{}: key 'data_path' is missing, expected a file or folder of text to train on", source));
  }
  try {
    spec::Corpus corpus = spec::read_corpus(spec.data_path);
    const auto num_needed = static_cast<size_t>(spec.training.seq_length) + 1;
    if (corpus.bytes.size() < num_needed) {
      throw base::UsageError(fmt::format("'{}' has {} bytes, a sequence needs {} (seq_length + 1)",
                                         spec.data_path, corpus.bytes.size(), num_needed));
    }
    // Not through Progress: it would be lost with --quiet, and who reads the losses has to know.
    if (corpus.is_cut) {
      std::cerr << fmt::format(
          "moetune: note: {}: key 'data_path': '{}' holds more than {} of text; the rest is not "
          "read\n",
          source, spec.data_path, base::format_bytes(static_cast<int64_t>(corpus.bytes.size())));
    }
    spec.data_digest = corpus.digest;
    return std::move(corpus.bytes);
  } catch (const base::UsageError& error) {
    throw base::UsageError(fmt::format("{}: key 'data_path': {}", source, error.what()));
  }
}

bool is_sweep(const nlohmann::json& document) {
  return document.is_object() && (document.contains("name") || document.contains("space"));
}

Loaded<spec::SweepSpec> sweep_of(const spec::Document& document, const SpecFile& file) {
  spec::SweepSpec sweep = spec::sweep_from_json(document.json, document.source, file.folder);
  std::string text = bind_data(sweep.base, file.source);
  return {std::move(sweep), std::move(text)};
}

}  // namespace

std::string read_spec_file(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    throw base::UsageError(fmt::format("{}: is a folder, expected a JSON file", path));
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > kMaxSpecBytes) {
    throw base::UsageError(fmt::format("{}: has {} bytes, expected a JSON file of at most {}", path,
                                       size, kMaxSpecBytes));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw base::UsageError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  }
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string spec_path(const std::string& path_or_name) {
  std::string path = path_or_name;
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_directory(path, error)) {
    return path;
  }
  const std::string named = spec::find_in_library(spec::Shelf::sweep, path);
  if (!named.empty()) return named;
  // Who reads it says what is wrong with a folder, or with a path that cannot be a name.
  if (std::filesystem::exists(path, error) || path.find('/') != std::string::npos) return path;
  throw base::UsageError(fmt::format("{}: there is no such file, and no sweep of that name; {}",
                                     path, spec::library_hint(spec::Shelf::sweep, path)));
}

Loaded<spec::SweepSpec> load_sweep(const std::string& path_or_name) {
  const SpecFile file = open_spec(path_or_name);
  return sweep_of(spec::read_document(file.text, file.source), file);
}

Loaded<spec::TrialSpec> load_trial(const std::string& path_or_name) {
  const SpecFile file = open_spec(path_or_name);
  const spec::Document document = spec::read_document(file.text, file.source);
  if (is_sweep(document.json)) {
    Loaded<spec::SweepSpec> sweep = sweep_of(document, file);
    return {std::move(sweep.spec.base), std::move(sweep.text)};
  }
  spec::TrialSpec spec = spec::trial_from_json(document.json, document.source, file.folder);
  std::string text = bind_data(spec, file.source);
  return {std::move(spec), std::move(text)};
}

std::string violation_text(const std::string& path, const spec::Violation& violation) {
  // Every message begins with what it is about; the first knob in it is the one to change.
  std::string key;
  size_t first = std::string::npos;
  for (const spec::KnobRow& row : spec::knob_table()) {
    const size_t at = violation.message.find(row.name);
    if (at >= first) continue;
    first = at;
    key = fmt::format("key 'knobs.{}' ", row.name);
  }
  return fmt::format("{}: {}breaks the rule {}: {}", path == "-" ? kStandardInput : path, key,
                     violation.rule, violation.message);
}

void check_can_run(const spec::TrialSpec& trial, const std::string& path) {
  const std::vector<spec::Violation> violations = spec::check_constraints(spec::parts_of(trial));
  if (!violations.empty()) throw base::UsageError(violation_text(path, violations.front()));
}

TextSnapshot::TextSnapshot(const std::string& database_path, const std::string& text)
    : path_(std::filesystem::absolute(database_path).string() + ".text") {
  std::ofstream file(path_, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) {
    const int error = errno;
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
    throw base::Error(fmt::format("{}: cannot be written: {}", path_, std::strerror(error)));
  }
}

TextSnapshot::~TextSnapshot() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace moetune::sweeps
