// The JSON that commands print with --format json, key by key: for docs/formats.md, and compared
// with what they print by tests.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moetune::sweeps {

/// `path` is dotted; "[]" stands for each element of a list, "*" for each name of an object whose
/// keys are names (of knobs, metrics, ...).
struct OutputKey {
  const char* path;
  const char* type;  ///< with "or null" where there may be nothing to tell
  const char* unit;
  const char* meaning;
};

/// Keys that objects of several outputs have: a section of the page.
struct SharedKeys {
  const char* title;  ///< "A trial"
  const char* what;   ///< a sentence
  std::span<const OutputKey> keys;
};

/// Where an output has an object with shared keys.
struct OutputPart {
  const char* prefix;  ///< before its keys: "plans[].", "by_family.*."; "" for the output itself
  const SharedKeys* shared;
};

struct Output {
  const char* commands;  ///< separated by blanks
  const char* what;      ///< a sentence
  std::span<const OutputKey> keys;
  std::span<const OutputPart> parts = {};
};

std::span<const Output> outputs();
/// The paths of all its rows, shared ones behind their prefixes.
std::vector<std::string> paths_of(const Output& output);

/// The paths of a document's keys that no row of the command's output has; empty is good. Throws
/// base::Error for a command that prints no JSON.
std::vector<std::string> undocumented_keys(std::string_view command,
                                           const nlohmann::json& document);
/// The paths of the command's rows that none of the documents has: what is no longer printed.
std::vector<std::string> unprinted_keys(std::string_view command,
                                        const std::vector<nlohmann::json>& documents);

/// A section for each output.
std::string outputs_markdown();
/// The sections of files that are read without field tables (engine/spec/fields.h): measured runs.
std::string files_markdown();

}  // namespace moetune::sweeps
