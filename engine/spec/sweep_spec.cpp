// Reads a sweep file: the trial part is a trial spec without the parts a sweep decides itself, the
// rest is the search.
#include "engine/spec/sweep_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/spec/json_reader.h"
#include "kernels/base/error.h"

namespace moetune::spec {

using nlohmann::json;

namespace {

constexpr uintmax_t kMaxFileBytes = uintmax_t{16} << 20;
constexpr int64_t kMaxCount = 1'000'000;

std::string resolved(const std::string& path, const std::string& folder) {
  return (std::filesystem::path(folder) / path).lexically_normal();
}

/// The document that a key holds: an object as it is, or the file that a text names.
json load_document(JsonReader& reader, const char* key, const std::string& folder,
                   std::string& source) {
  const json& value = reader.value(key);
  source = reader.source() + ": " + key;
  if (value.is_object()) return value;
  if (!value.is_string()) reader.fail(key, "an object, or the path of a JSON file");
  const std::string path = resolved(value.get<std::string>(), folder);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    reader.fail(key, fmt::format("an object, or the path of a JSON file ({} is none)", path));
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > kMaxFileBytes) {
    reader.fail(key, fmt::format("a JSON file of at most {} bytes", kMaxFileBytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) reader.fail(key, fmt::format("a JSON file that can be read ({} cannot)", path));
  source = path;
  return parse_json(text.str(), path);
}

SweepBudget budget_from(JsonReader reader) {
  SweepBudget budget;
  budget.max_trials = reader.integer_or("max_trials", budget.max_trials, kMinTrials, kMaxCount);
  budget.max_seconds = reader.integer_or("max_seconds", budget.max_seconds, 1, kMaxCount);
  budget.trial_timeout_s = reader.number_or("trial_timeout_s", budget.trial_timeout_s, 0.1, 1e6);
  reader.refuse_unknown_keys();
  return budget;
}

/// One allowed value, brought into the form that get_knob gives.
std::string axis_value(const json& value, const KnobRow& row, const Knobs& base,
                       const JsonReader& space) {
  if (!value.is_string() && !value.is_boolean() && !value.is_number_integer()) {
    space.fail(row.name, fmt::format("a list of values ({})", row.values));
  }
  Knobs knobs = base;
  try {
    set_knob(knobs, row, value.is_string() ? value.get<std::string>() : value.dump());
  } catch (const base::UsageError& error) {
    throw base::UsageError(
        fmt::format("{}: key '{}': {}", space.source(), space.path_of(row.name), error.what()));
  }
  return get_knob(knobs, row);
}

void read_space(JsonReader space, SweepSpec& sweep) {
  for (const KnobRow& row : knob_table()) {
    space.ignore(row.name);
    if (!space.has(row.name)) continue;
    std::vector<std::string>& values = sweep.space[std::string(row.name)];
    for (const json& value : space.array(row.name)) {
      std::string text = axis_value(value, row, sweep.base.knobs, space);
      for (const std::string& other : values) {
        if (other == text)
          space.fail(row.name, fmt::format("each value once, '{}' is there twice", text));
      }
      values.push_back(std::move(text));
    }
    if (values.empty()) space.fail(row.name, fmt::format("at least one value ({})", row.values));
  }
  space.refuse_unknown_keys();
  // Every layout is predicted before the first is measured.
  constexpr int64_t kMostLayouts = 20'000;
  int64_t num_layouts = 1;
  for (const auto& [name, values] : sweep.space) {
    const KnobRow* row = find_knob(name);
    if (row->group != "parallelism" && row->group != "batch") continue;
    num_layouts = std::min(num_layouts * static_cast<int64_t>(values.size()), kMostLayouts + 1);
    if (num_layouts <= kMostLayouts) continue;
    space.fail(name,
               fmt::format("fewer values: parallelism and batch axes span more than {} layouts",
                           kMostLayouts));
  }
}

// Configurations are told apart by the 95 % interval of a median, which six values are the fewest
// for, and the workflow reads the wall from a trace.
void check_measurement(const JsonReader& reader, const SweepSpec& sweep) {
  constexpr int64_t kFewestSteps = 6;
  if (sweep.base.num_steps < kFewestSteps) {
    reader.fail("num_steps", fmt::format("at least {}: fewer have no 95 % interval", kFewestSteps));
  }
  if (sweep.strategy != "three_walls") return;
  if (sweep.base.trace == TraceLevel::none)
    reader.fail("trace", "ops or all: the wall is read from a trace");
  if (sweep.base.num_traced_steps < 1) {
    reader.fail("num_traced_steps", "at least 1: the wall is read from a trace");
  }
}

}  // namespace

SweepSpec sweep_from_json(const json& document, const std::string& source,
                          const std::string& folder) {
  JsonReader reader(document, source);
  SweepSpec sweep;
  sweep.name = reader.text("name");
  sweep.strategy = reader.text_or("strategy", sweep.strategy);

  std::string model_source;
  std::string hardware_source;
  // Checked one by one first, so that a message names the file the value is in.
  const json model = load_document(reader, "model", folder, model_source);
  const json hardware = load_document(reader, "hardware", folder, hardware_source);
  json trial = {{"model", to_json(model_from_json(model, model_source))},
                {"hardware", to_json(hardware_from_json(hardware, hardware_source))}};
  for (const char* key :
       {"knobs", "training", "data_path", "data_digest", "dtype", "clock", "backend",
        "communicator", "fake_rank", "trace", "counts_hardware", "num_warmup_steps", "num_steps",
        "num_traced_steps", "reference_tolerance", "fault"}) {
    reader.ignore(key);
    if (reader.has(key)) trial[key] = reader.value(key);
  }
  sweep.base = trial_spec_from_json(trial, source);
  if (!sweep.base.data_path.empty()) {
    sweep.base.data_path = resolved(sweep.base.data_path, folder);
  }

  if (reader.has("space")) read_space(reader.object("space"), sweep);
  if (reader.has("budget")) sweep.budget = budget_from(reader.object("budget"));
  for (const char* key : {"space", "budget"}) reader.ignore(key);
  sweep.scale_trials = reader.integer_or("scale_trials", sweep.scale_trials, 0, kMaxCount);
  sweep.min_gain_ratio = reader.number_or("min_gain_ratio", sweep.min_gain_ratio, 0, 1);
  sweep.validate_steps = reader.integer_or("validate_steps", sweep.validate_steps, 1, kMaxCount);
  sweep.validate_max_loss = reader.number_or("validate_max_loss", sweep.validate_max_loss, 0, 1e6);
  sweep.memory_margin_ratio =
      reader.number_or("memory_margin_ratio", sweep.memory_margin_ratio, 0, 0.99);
  reader.refuse_unknown_keys();
  check_measurement(reader, sweep);
  return sweep;
}

}  // namespace moetune::spec
