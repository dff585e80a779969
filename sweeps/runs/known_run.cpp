#include "sweeps/runs/known_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/spec/model_spec.h"
#include "kernels/base/error.h"
#include "kernels/base/units.h"
#include "sweeps/runs/echoed_config.h"
#include "sweeps/runs/token_rate.h"
#include "sweeps/runs/traced_layout.h"
#include "sweeps/table.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;
using spec::dialects::Dialect;
using spec::dialects::RunConfig;
using spec::dialects::StatedSetting;

/// Whether a command says other ranks than the run is known to have: then nothing follows from
/// both.
bool is_of_other_world(const RunConfig& config, const RunFacts& facts) {
  return config.world_size > 0 && facts.world_size && config.world_size != *facts.world_size;
}

bool contradicts_traces(const RunDiagnosis& diagnosis) {
  return diagnosis.traces &&
         !contradicted_sizes(diagnosis.traces->wall.groups, diagnosis.config->knobs).empty();
}

void take_traces(const RunDiagnosis& diagnosis, KnownRun& run) {
  for (const ParallelSizeRow& row : parallel_sizes()) {
    std::optional<int64_t>& size = run.facts.parallel.*row.size;
    if (!size) size = diagnosis.traced_sizes.*row.size;
  }
  if (!diagnosis.traces) return;
  if (!run.facts.step_time) run.traced_s = step_time_s(*diagnosis.traces);
  for (const profiler::ImportedTrace& trace : diagnosis.traces->traces) {
    if (!run.facts.world_size) run.facts.world_size = trace.facts.world_size;
  }
}

/// Megatron-LM leaves its vocabulary to the tokenizer, and logs what comes of that.
void take_vocabulary(RunFacts& facts) {
  if (!facts.config || !facts.config->model.is_object() || facts.config->model.empty()) return;
  json& sizes = facts.config->model;
  for (const auto& [key, size] : {std::pair("vocab_size", facts.named.vocab_size),
                                  std::pair("padded_vocab_size", facts.named.padded_vocab_size)}) {
    if (size > 0 && !sizes.contains(key)) sizes[key] = size;
  }
}

/// By the accounting of Megatron-LM (ModelSpec::training_flops_per_token), where tokens and all
/// sizes of the model are known and no log says them. Whether they are.
bool compute_tflops(RunFacts& facts) {
  const bool has_sizes = facts.config && facts.config->model.is_object();
  if (facts.tflops_per_gpu || !facts.tokens_per_s_per_gpu || !facts.seq_length || !has_sizes) {
    return false;
  }
  try {
    const spec::ModelSpec model = spec::model_from_json(facts.config->model, "the run's sizes");
    facts.tflops_per_gpu =
        *facts.tokens_per_s_per_gpu * model.training_flops_per_token(*facts.seq_length) / 1e12;
    return true;
  } catch (const base::UsageError&) {
    return false;  // a model that no plan has
  }
}

Framework framework_of(Dialect dialect) {
  for (const FrameworkRow& row : spec::NameTable<Framework>::kRows) {
    if (dialect_of(row.value) == dialect) return row.value;
  }
  return Framework::unknown;
}

std::string sizes_text(const RunFacts& facts) {
  std::vector<std::string> words = size_words(facts.parallel);
  const auto add = [&](const char* name, const std::optional<int64_t>& value) {
    if (value) words.push_back(fmt::format("{} {}", name, *value));
  };
  add("micro-batch", facts.micro_batch_size);
  add("global batch", facts.global_batch_size);
  add("sequence", facts.seq_length);
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string seconds_text(double seconds) {
  return base::format_ns(static_cast<int64_t>(seconds * 1e9));
}

/// The most that a rank needed, and the least of those whose reading is of the same kind.
std::string rank_memory_text(const RunFacts& facts) {
  if (!facts.peak_memory) return {};
  const MemoryReading& most = *facts.peak_memory;
  const MemoryReading* least = nullptr;
  for (const MemoryReading& reading : facts.memory) {
    const bool is_alike =
        reading.kind == most.kind && reading.is_peak == most.is_peak && reading.rank >= 0;
    if (!is_alike || reading.rank == most.rank) continue;
    if (least == nullptr || reading.bytes < least->bytes) least = &reading;
  }
  const auto words_of = [](const MemoryReading& reading, const char* which) {
    std::string text = fmt::format("{} {}", base::format_bytes(reading.bytes), which);
    if (reading.rank >= 0) text += fmt::format(", on rank {}", reading.rank);
    if (reading.step >= 0) text += fmt::format(" (read after step {})", reading.step);
    return text;
  };
  std::string text = words_of(most, "at most");
  if (least != nullptr && most.rank >= 0) text += "; " + words_of(*least, "at least");
  return text;
}

std::string model_text(const RunFacts& facts) {
  std::string text = facts.model_name;
  if (text.empty() && facts.config) text = model_words(*facts.config);
  if (!facts.num_parameters) return text;
  return fmt::format("{}{:.3g} billion parameters", text.empty() ? "" : text + ", ",
                     static_cast<double>(*facts.num_parameters) / 1e9);
}

/// "--bf16", "--seq-length 4096", "training.seq_len=4096"
std::string setting_text(const StatedSetting& setting, Dialect dialect) {
  if (setting.value.empty()) return setting.key;
  return setting.key + (dialect == Dialect::megatron_lm ? " " : "=") + setting.value;
}

/// What the log echoes, or else what the command or file says.
std::string config_text(const RunFacts& facts) {
  if (!facts.config) return {};
  constexpr size_t kMostSettings = 200;
  const RunConfig& config = *facts.config;
  std::vector<std::string> settings;
  for (const auto& [name, value] : config.environment) settings.push_back(name + "=" + value);
  const size_t num_all = settings.size() + config.stated.size();
  for (const StatedSetting& setting : config.stated) {
    if (settings.size() >= kMostSettings) break;
    settings.push_back(setting_text(setting, config.dialect));
  }
  if (settings.empty()) return {};
  std::string source = facts.config_source;
  if (source.empty()) source = config.is_echo ? "as the log echoes it" : "as the log's command";
  std::string text = fmt::format("{}: {}", source, fmt::join(settings, " "));
  if (num_all > settings.size()) text += fmt::format(" and {} more", num_all - settings.size());
  return text;
}

/// Broken at blanks; lines after the first begin with as many as a name takes.
std::string broken(std::string_view text, size_t width) {
  constexpr std::string_view kIndent = "         ";
  const size_t room = std::max<size_t>(width, 40) - kIndent.size();
  std::string lines;
  while (text.size() > room) {
    size_t end = text.rfind(' ', room);
    if (end == std::string_view::npos || end == 0) end = text.find(' ', room);
    if (end == std::string_view::npos) break;
    lines += text.substr(0, end);
    lines += '\n';
    lines += kIndent;
    text.remove_prefix(end + 1);
  }
  return lines += text;
}

}  // namespace

KnownRun known_run(const RunDiagnosis& diagnosis) {
  KnownRun run;
  RunFacts& facts = run.facts;
  facts = diagnosis.facts.value_or(RunFacts{});
  take_traces(diagnosis, run);
  bool is_one_run = true;
  if (diagnosis.config) {
    const RunConfig& config = *diagnosis.config;
    if (facts.framework == Framework::unknown) facts.framework = framework_of(config.dialect);
    is_one_run = !is_of_other_world(config, facts) && !contradicts_traces(diagnosis);
    const std::optional<int64_t> dp = facts.parallel.dp;
    if (!facts.world_size && !diagnosis.has_default_world && config.world_size > 0) {
      facts.world_size = config.world_size;
    }
    take_configured_sizes(config, facts);
    if (!is_one_run) facts.parallel.dp = dp;
    if (!facts.config) {
      facts.config = config;
      facts.config_source = diagnosis.config_source;
    }
  }
  take_vocabulary(facts);
  if (is_one_run) {
    derive_tokens(run.traced_s, facts);
    run.is_tflops_derived = compute_tflops(facts);
  }
  return run;
}

json known_json(const RunDiagnosis& diagnosis, const json& of_traces) {
  const KnownRun known = known_run(diagnosis);
  const RunFacts& facts = known.facts;
  json run = to_json(facts);
  run["tflops_is_derived"] = known.is_tflops_derived;
  if (!diagnosis.facts) {
    for (const char* key : {"status", "num_steps"}) run[key] = nullptr;
  }
  const auto fill = [&](const std::string& key, const json& value) {
    if (!run.contains(key) || run[key].is_null()) run[key] = value;
  };
  for (const auto& [key, value] : of_traces.items()) fill(key, value);
  run["parallel_by_traces"] = json::array();
  for (const ParallelSizeRow& row : parallel_sizes()) {
    if (diagnosis.traced_sizes.*row.size) run["parallel_by_traces"].push_back(row.name);
  }
  // Sizes that the log's own configuration does not say.
  if (!diagnosis.config) return run;
  const std::string model = model_words(*diagnosis.config);
  if (!model.empty()) fill("model", model);
  if (!diagnosis.config->model.empty()) fill("model_sizes", diagnosis.config->model);
  return run;
}

std::vector<std::string> size_words(const ParallelSizes& sizes) {
  std::vector<std::string> words;
  for (const ParallelSizeRow& row : parallel_sizes()) {
    if (sizes.*row.size) words.push_back(fmt::format("{} {}", row.name, *(sizes.*row.size)));
  }
  return words;
}

std::vector<std::pair<std::string, std::string>> fact_lines(const RunDiagnosis& diagnosis) {
  std::vector<std::pair<std::string, std::string>> lines;
  if (!diagnosis.facts && !diagnosis.config) return lines;
  const KnownRun known = known_run(diagnosis);
  const RunFacts& facts = known.facts;
  const bool has_log = diagnosis.facts.has_value();
  const auto add_line = [&](const char* name, std::string value) {
    if (!value.empty()) lines.emplace_back(name, std::move(value));
  };
  std::string run(spec::name_of(facts.framework));
  if (has_log) run += fmt::format(", {} steps", facts.num_steps);
  if (facts.world_size) run += fmt::format(", {} ranks", *facts.world_size);
  if (!facts.device_name.empty()) run += " on " + facts.device_name;
  add_line("run", one_line(run));
  if (has_log) {
    const std::string status(spec::name_of(facts.status));
    add_line("status",
             one_line(facts.reason.empty() ? status : fmt::format("{}: {}", status, facts.reason)));
  }
  add_line("layout", sizes_text(facts));
  add_line("model", one_line(model_text(facts)));
  add_line("config", one_line(config_text(facts)));
  std::vector<std::string> speed;
  if (facts.step_time) {
    speed.push_back(fmt::format("{} a step ({} to {})", seconds_text(facts.step_time->median_s),
                                seconds_text(facts.step_time->min_s),
                                seconds_text(facts.step_time->max_s)));
  }
  if (known.traced_s) {
    speed.push_back(fmt::format("{} a step in the traces", seconds_text(*known.traced_s)));
  }
  if (facts.tokens_per_s_per_gpu) {
    speed.push_back(fmt::format("{:.0f} tokens/s a GPU", *facts.tokens_per_s_per_gpu));
  }
  if (facts.tflops_per_gpu) {
    speed.push_back(
        known.is_tflops_derived
            ? fmt::format("{:.3g} TFLOP/s a GPU by the model's sizes", *facts.tflops_per_gpu)
            : fmt::format("{:.1f} TFLOP/s a GPU as logged", *facts.tflops_per_gpu));
  }
  add_line("speed", fmt::format("{}", fmt::join(speed, ", ")));
  add_line("memory", rank_memory_text(facts));
  if (facts.loss || facts.num_skipped_steps > 0) {
    std::string loss =
        facts.loss ? fmt::format("{:.4f} at the end", *facts.loss) : std::string("none was logged");
    if (facts.num_skipped_steps > 0) loss += fmt::format(", {} skipped", facts.num_skipped_steps);
    if (facts.num_nan_steps > 0) {
      loss += fmt::format(", {} step{} of NaN", facts.num_nan_steps,
                          facts.num_nan_steps == 1 ? "" : "s");
    }
    add_line("loss", loss);
  }
  // The first is the status' reason.
  for (size_t i = 1; i < facts.failures.size(); ++i) {
    add_line("then", one_line(facts.failures[i].sentence));
  }
  for (const std::string& note : facts.notes) add_line("note", one_line(note));
  return lines;
}

std::string facts_text(const RunDiagnosis& diagnosis, std::optional<size_t> width) {
  constexpr size_t kUsualWidth = 100;
  std::string text;
  for (const auto& [name, value] : fact_lines(diagnosis)) {
    const bool is_long = name == "config";
    text += fmt::format("{:<9}{}\n", name,
                        is_long ? broken(value, width.value_or(kUsualWidth)) : value);
  }
  return text;
}

}  // namespace moetune::sweeps
