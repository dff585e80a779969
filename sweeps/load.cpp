// Finds and reads files of specs, says which kind of file was given in their place, and tells
// broken rules by their lines.
#include "sweeps/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/spec/corpus.h"
#include "engine/spec/json_reader.h"
#include "engine/spec/library.h"
#include "engine/spec/problems.h"
#include "engine/spec/spec_files.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "kernels/base/utf8.h"

namespace moetune::sweeps {
namespace {

constexpr size_t kMaxSpecBytes = 64 << 20;

/// A spec file, found and read.
struct SpecFile {
  std::string source;  ///< in messages
  std::string folder;  ///< where its relative paths start from
  std::string text;
};

SpecFile open_spec(const std::string& path_or_name) {
  if (path_or_name == "-") {
    return {kStandardInput, std::filesystem::current_path(), read_standard_input()};
  }
  const std::string path = spec_path(path_or_name);
  return {path, std::filesystem::absolute(path).parent_path(), read_spec_file(path)};
}

/// The digest makes the bytes a part of the trial's identity.
std::string bind_data(spec::TrialSpec& spec, const spec::Source& source) {
  if (spec.data_path.empty()) {
    throw base::UsageError(
        fmt::format("{}key 'data_path' is missing, expected a file or folder of text to train on",
                    source.prefix("data_path")));
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
          source.name(), spec.data_path,
          base::format_bytes(static_cast<int64_t>(corpus.bytes.size())));
    }
    spec.data_digest = corpus.digest;
    return std::move(corpus.bytes);
  } catch (const base::UsageError& error) {
    std::error_code ignored;
    const bool is_there = std::filesystem::exists(spec.data_path, ignored);
    throw base::UsageError(
        fmt::format("{}key 'data_path': {}{}", source.prefix("data_path"), error.what(),
                    is_there ? "" : "; " + spec::library_hint(spec::Shelf::text, spec.data_path)));
  }
}

bool is_sweep(const nlohmann::json& document) {
  return document.is_object() && (document.contains("name") || document.contains("space"));
}

constexpr const char* kModelFile = "config.json of a model";
constexpr const char* kHardwareFile = "hardware file of a cluster";

/// Keys such as "name" and "dtype" stand in several kinds of file.
bool has_keys_of_trials(const nlohmann::json& document) {
  constexpr std::array kKeys = {"model",    "hardware",  "knobs", "space",
                                "training", "data_path", "engine"};
  return std::ranges::any_of(kKeys, [&](const char* key) { return document.contains(key); });
}

/// A model or a cluster is not read as a sweep or trial: all of its keys would be mistakes.
void refuse_other_kinds(const spec::Document& document, const std::string& path,
                        const char* expected) {
  const auto has = [&](const char* key) { return document.json.contains(key); };
  if (!document.json.is_object() || has_keys_of_trials(document.json)) return;
  const bool is_model = has("model_type");
  if (!is_model && !(has("num_nodes") && has("devices_per_node"))) return;
  throw base::UsageError(fmt::format(
      "{}: is the {}, expected a {} file; `moetune init --{} {} > sweep.json` writes one",
      document.source.name(), is_model ? kModelFile : kHardwareFile, expected,
      is_model ? "model" : "hardware", path));
}

Loaded<spec::SweepSpec> sweep_of(const spec::Document& document, const SpecFile& file) {
  spec::SweepSpec sweep = spec::sweep_from_json(document.json, document.source, file.folder);
  // Somebody else's engine has data of its own.
  if (sweep.engine.is_set()) return {std::move(sweep), {}};
  std::string text = bind_data(sweep.base, document.source);
  return {std::move(sweep), std::move(text)};
}

/// The file once more: only who is refused needs its lines. Standard input and pipes can be read
/// only once.
spec::Document read_again(const std::string& path_or_name) {
  if (path_or_name == "-") return {{}, spec::Source(kStandardInput)};
  try {
    const std::string path = spec_path(path_or_name);
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) return {{}, spec::Source(path)};
    return spec::read_document(read_spec_file(path), path);
  } catch (const base::UsageError&) {
    return {{}, spec::Source(path_or_name)};
  }
}

/// Every message of a rule begins with what it is about; the first knob in it is the one to change.
const spec::KnobRow* knob_to_change(const spec::Violation& violation) {
  const spec::KnobRow* knob = nullptr;
  size_t first = std::string::npos;
  for (const spec::KnobRow& row : spec::knob_table()) {
    const size_t at = violation.message.find(row.name);
    if (at >= first) continue;
    first = at;
    knob = &row;
  }
  return knob;
}

/// "FILE: line 12: key 'knobs.X' ". The line only where it has this value: --set may have changed
/// it.
std::string place_of(const spec::KnobRow* knob, const spec::Knobs& knobs,
                     const spec::Document& document) {
  if (knob == nullptr) return document.source.name() + ": ";
  const std::string path = fmt::format("knobs.{}", knob->name);
  std::string prefix = document.source.name() + ": ";
  const nlohmann::json::json_pointer pointer(fmt::format("/knobs/{}", knob->name));
  if (document.json.contains(pointer)) {
    const nlohmann::json& value = document.json.at(pointer);
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (text == spec::get_knob(knobs, *knob)) prefix = document.source.prefix(path);
  }
  return fmt::format("{}key '{}' ", prefix, path);
}

/// "FILE: line 12: key 'training.X' " where a message begins with a key of the recipe that the file
/// has, and the file says nothing of the knob; else empty.
std::string place_in_recipe(const spec::Violation& violation, const spec::KnobRow* knob,
                            const spec::Knobs& knobs, const spec::Document& document) {
  using Pointer = nlohmann::json::json_pointer;
  const bool is_knob_chosen =
      knob != nullptr && (document.json.contains(Pointer(fmt::format("/knobs/{}", knob->name))) ||
                          spec::get_knob(knobs, *knob) != spec::get_knob(spec::Knobs{}, *knob));
  if (is_knob_chosen) return {};
  for (const char* key : {"global_batch_size", "seq_length"}) {
    if (!violation.message.starts_with(key)) continue;
    if (!document.json.contains(Pointer(fmt::format("/training/{}", key)))) continue;
    const std::string path = fmt::format("training.{}", key);
    return fmt::format("{}key '{}' ", document.source.prefix(path), path);
  }
  return {};
}

/// Of each broken rule what a person reads.
spec::Problems broken_rules(const spec::TrialSpec& trial, const std::string& path) {
  spec::Problems problems;
  const std::vector<spec::Violation> violations = spec::check_constraints(spec::parts_of(trial));
  if (violations.empty()) return problems;
  const spec::Document document = read_again(path);
  for (const spec::Violation& violation : violations) {
    const spec::KnobRow* knob = knob_to_change(violation);
    std::string place = place_in_recipe(violation, knob, trial.knobs, document);
    if (place.empty()) place = place_of(knob, trial.knobs, document);
    problems.add(fmt::format("{}breaks the rule {}: {}", place, violation.rule, violation.message));
  }
  return problems;
}

}  // namespace

std::string read_at_most(std::istream& in, size_t max_bytes, const std::string& name) {
  std::string text;
  for (std::array<char, 1 << 16> buffer; in.good() && text.size() <= max_bytes;) {
    in.read(buffer.data(), buffer.size());
    text.append(buffer.data(), static_cast<size_t>(in.gcount()));
  }
  if (in.bad()) throw base::UsageError(fmt::format("{}: cannot be read", name));
  if (text.size() > max_bytes) {
    throw base::UsageError(
        fmt::format("{}: has more than {} bytes, expected a JSON file", name, max_bytes));
  }
  return text;
}

std::string read_standard_input() { return read_at_most(std::cin, kMaxSpecBytes, kStandardInput); }

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
    throw base::UsageError(
        fmt::format("{}: cannot be read: {}", shown_path(path), std::strerror(errno)));
  }
  // A device or a pipe has no size: its end may never come.
  return read_at_most(file, kMaxSpecBytes, path);
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
                                     shown_path(path),
                                     spec::library_hint(spec::Shelf::sweep, path)));
}

Loaded<spec::SweepSpec> load_sweep(const std::string& path_or_name) {
  const SpecFile file = open_spec(path_or_name);
  const spec::Document document = spec::read_document(file.text, file.source);
  refuse_other_kinds(document, path_or_name, "sweep");
  return sweep_of(document, file);
}

void refuse_other_kind_of_file(const spec::Document& document, std::string_view option) {
  if (!document.json.is_object()) return;
  const bool is_model = document.json.contains("model_type");
  const bool is_hardware = document.json.contains("devices_per_node");
  const bool wants_model = option == "model";
  if (wants_model ? is_model : is_hardware) return;
  const char* expected = wants_model ? kModelFile : kHardwareFile;
  if (is_model || is_hardware) {
    throw base::UsageError(fmt::format(
        "{}: is the {}, expected the {}; --{} takes it", document.source.name(),
        is_model ? kModelFile : kHardwareFile, expected, is_model ? "model" : "hardware"));
  }
  if (!has_keys_of_trials(document.json)) return;
  throw base::UsageError(fmt::format("{}: is a sweep or trial file, expected the {} for --{}",
                                     document.source.name(), expected, option));
}

void check_sweep_text(const std::string& text, const std::string& source,
                      const std::string& folder) {
  const Loaded<spec::SweepSpec> sweep =
      sweep_of(spec::read_document(text, source), {source, folder, text});
  check_can_run(sweep.spec.base, source);
}

Loaded<spec::TrialSpec> load_trial(const std::string& path_or_name) {
  const SpecFile file = open_spec(path_or_name);
  const spec::Document document = spec::read_document(file.text, file.source);
  refuse_other_kinds(document, path_or_name, "trial or sweep");
  if (is_sweep(document.json)) {
    Loaded<spec::SweepSpec> sweep = sweep_of(document, file);
    if (sweep.spec.engine.is_set()) {
      throw base::UsageError(fmt::format(
          "{}: has an engine that is not moetune's: `moetune sweep {} --dry-run` tells its next "
          "command",
          document.source.name(), path_or_name));
    }
    return {std::move(sweep.spec.base), std::move(sweep.text)};
  }
  spec::TrialSpec spec = spec::trial_from_json(document.json, document.source, file.folder);
  std::string text = bind_data(spec, document.source);
  return {std::move(spec), std::move(text)};
}

void check_can_run(const spec::TrialSpec& trial, const std::string& path) {
  broken_rules(trial, path).throw_if_any();
}

std::string broken_rules_text(const spec::TrialSpec& trial, const std::string& path) {
  try {
    check_can_run(trial, path);
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return {};
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
