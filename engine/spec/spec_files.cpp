// What a sweep or trial file holds by path or by name: found with the library, read, and told of by
// the key that names it.
#include "engine/spec/spec_files.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/spec/trial_fields.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

constexpr uintmax_t kMaxFileBytes = uintmax_t{16} << 20;

std::string resolved(const std::string& path, const std::string& folder) {
  return (std::filesystem::path(folder) / path).lexically_normal();
}

/// The file that a key names.
std::string document_path(const JsonReader& reader, Shelf shelf, const char* key,
                          const std::string& text, const std::string& folder) {
  const std::string path = find_file(shelf, text, folder);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    reader.fail(key, fmt::format("an object, a name, or the path of a JSON file ({} is none); {}",
                                 resolved(text, folder), library_hint(shelf, text)));
  }
  return path;
}

StandsFor read_stands_for(JsonReader reader, const std::string& folder) {
  StandsFor original;
  Problems problems;
  problems.attempt([&] { original.model = read_model(reader, folder); });
  problems.attempt([&] { original.hardware = read_hardware(reader, folder); });
  read_fields(reader, stands_for_sizes(), original, problems);
  problems.attempt([&] { reader.refuse_unknown_keys(); });
  problems.throw_if_any();
  return original;
}

}  // namespace

ModelSpec read_model(JsonReader& reader, const std::string& folder) {
  const Document model = load_document(reader, Shelf::model, "model", folder);
  return model_from_json(model.json, model.source);
}

HardwareSpec read_hardware(JsonReader& reader, const std::string& folder) {
  const Document document = load_document(reader, Shelf::hardware, "hardware", folder);
  HardwareSpec hardware = hardware_from_json(document.json, document.source);
  check_plausible(hardware, document.source);
  return hardware;
}

Document load_document(JsonReader& reader, Shelf shelf, const char* key,
                       const std::string& folder) {
  const json& value = reader.value(key);
  if (value.is_object()) return {value, reader.source_of(key)};
  if (!value.is_string()) reader.fail(key, "an object, a name, or the path of a JSON file");
  const std::string path = document_path(reader, shelf, key, value.get<std::string>(), folder);
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > kMaxFileBytes) {
    reader.fail(key, fmt::format("a JSON file of at most {} bytes", kMaxFileBytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) reader.fail(key, fmt::format("a JSON file that can be read ({} cannot)", path));
  return read_document(text.str(), path);
}

void read_file_parts(JsonReader& reader, const std::string& folder, TrialSpec& spec,
                     Problems& problems) {
  problems.attempt([&] { spec.model = read_model(reader, folder); });
  problems.attempt([&] { spec.hardware = read_hardware(reader, folder); });
  reader.ignore("stands_for");
  if (reader.has("stands_for")) {
    problems.attempt(
        [&] { spec.stands_for = read_stands_for(reader.object("stands_for"), folder); });
  }
  reader.ignore("knobs");
  if (!reader.has("knobs")) return;
  problems.attempt(
      [&] { spec.knobs = knobs_from_json(reader.value("knobs"), reader.source_of("knobs")); });
}

void check_learning_rates(JsonReader& reader, const TrainingSpec& training, Problems& problems) {
  constexpr double kMostRate = 1;
  struct Rate {
    const char* key;
    double value;
  };
  for (const Rate& rate : {Rate{"lr", training.lr}, Rate{"min_lr", training.min_lr}}) {
    if (rate.value <= kMostRate) continue;
    // Usual rates are some 1e-4: what is missing is the exponent.
    const double digits = rate.value / std::pow(10.0, std::floor(std::log10(rate.value)));
    problems.attempt([&] {
      reader.object("training")
          .fail(rate.key, fmt::format("a learning rate of at most {:g}; did you mean {:g}e-4?",
                                      kMostRate, digits));
    });
  }
}

std::string data_path_of(const std::string& text, const std::string& folder) {
  std::string path = resolved(text, folder);
  std::error_code error;
  if (std::filesystem::exists(path, error)) return path;
  const std::string named = find_in_library(Shelf::text, text);
  return named.empty() ? path : named;
}

TrialSpec trial_from_json(const json& document, const Source& source, const std::string& folder) {
  JsonReader reader(document, source);
  TrialSpec spec;
  Problems problems;
  read_file_parts(reader, folder, spec, problems);
  read_trial_run(reader, spec, problems);
  check_learning_rates(reader, spec.training, problems);
  read_trial_of_sweep(reader, spec, problems);
  problems.attempt([&] { reader.refuse_unknown_keys(); });
  problems.throw_if_any();
  if (!spec.data_path.empty()) spec.data_path = data_path_of(spec.data_path, folder);
  return spec;
}

}  // namespace moetune::spec
