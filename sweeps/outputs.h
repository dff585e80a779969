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

struct Output {
  const char* commands;  ///< separated by blanks
  const char* what;      ///< a sentence
  std::span<const OutputKey> keys;
  /// Of a trial, where the object has those keys, too: "" for itself, else the path to it; null:
  /// no.
  const char* trial_path;
};

std::span<const Output> outputs();
/// Keys that every object of a trial has.
std::span<const OutputKey> trial_keys();

/// The paths of a document's keys that no row of the command's output has; empty is good. Throws
/// base::Error for a command that prints no JSON.
std::vector<std::string> undocumented_keys(std::string_view command,
                                           const nlohmann::json& document);

/// A section for each output.
std::string outputs_markdown();

}  // namespace moetune::sweeps
