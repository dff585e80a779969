// The parts of a sweep or trial file that may stand in files of their own: model, hardware, text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/spec/json_reader.h"
#include "engine/spec/library.h"
#include "engine/spec/problems.h"
#include "engine/spec/trial_spec.h"

namespace moetune::spec {

/// What a key holds: an object as it is, or the file that a text names, as a path from `folder` or
/// by its name on the shelf. Throws base::UsageError naming file, key, value, what would be right
/// and near names.
Document load_document(JsonReader& reader, Shelf shelf, const char* key, const std::string& folder);

/// The values of the keys "model" and "hardware". Throw base::UsageError.
ModelSpec read_model(JsonReader& reader, const std::string& folder);
HardwareSpec read_hardware(JsonReader& reader, const std::string& folder);

/// model, hardware, knobs and what a miniature stands for, of a file that a person wrote; what is
/// wrong goes to `problems`, also figures that no machine has.
void read_file_parts(JsonReader& reader, const std::string& folder, TrialSpec& spec,
                     Problems& problems);

/// Adds learning rates that no training has, with what was likely meant: AdamW moves each parameter
/// by about the rate a step. `training` is what was read of the key of that name.
void check_learning_rates(JsonReader& reader, const TrainingSpec& training, Problems& problems);

/// A file or folder of text, as a path from `folder` or by name; what is neither is told when it is
/// read.
std::string data_path_of(const std::string& text, const std::string& folder);

/// A trial that a person wrote: model and hardware may be objects, paths or names. (What a rank is
/// given has all in one: trial_spec_from_json.) Throws base::UsageError.
TrialSpec trial_from_json(const nlohmann::json& json, const Source& source,
                          const std::string& folder);

}  // namespace moetune::spec
