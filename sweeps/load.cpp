// Files of specs; see load.h.
#include "sweeps/load.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/spec/corpus.h"
#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"

namespace moetune::sweeps {
namespace {

constexpr uintmax_t kMaxSpecBytes = 64 << 20;

std::string folder_of(const std::string& path) {
  return std::filesystem::absolute(path).parent_path();
}

/// The digest makes the bytes a part of the trial's identity; the path becomes absolute, because
/// the ranks run elsewhere.
std::string bind_data(spec::TrialSpec& spec, const std::string& source, const std::string& folder) {
  if (spec.data_path.empty()) {
    throw base::UsageError(fmt::format(
        "{}: key 'data_path' is missing, expected a file or folder of text to train on", source));
  }
  spec.data_path = (std::filesystem::path(folder) / spec.data_path).lexically_normal();
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

Loaded<spec::SweepSpec> load_sweep(const std::string& path) {
  const nlohmann::json document = spec::parse_json(read_spec_file(path), path);
  spec::SweepSpec sweep = spec::sweep_from_json(document, path, folder_of(path));
  std::string text = bind_data(sweep.base, path, folder_of(path));
  return {std::move(sweep), std::move(text)};
}

Loaded<spec::TrialSpec> load_trial(const std::string& path) {
  const nlohmann::json document = spec::parse_json(read_spec_file(path), path);
  if (is_sweep(document)) {
    Loaded<spec::SweepSpec> sweep = load_sweep(path);
    return {std::move(sweep.spec.base), std::move(sweep.text)};
  }
  spec::TrialSpec spec = spec::trial_spec_from_json(document, path);
  std::string text = bind_data(spec, path, folder_of(path));
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
  return fmt::format("{}: {}breaks the rule {}: {}", path, key, violation.rule, violation.message);
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

std::string digest_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace moetune::sweeps
