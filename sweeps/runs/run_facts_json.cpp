// The facts of a run as JSON: the keys that scripts read.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/spec/dialects/run_config.h"
#include "sweeps/runs/echoed_config.h"
#include "sweeps/runs/run_facts.h"
#include "sweeps/runs/text_scan.h"

namespace moetune::sweeps {
namespace {

using nlohmann::json;

template <class T>
json value_or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

/// JSON has no NaN: what is none is null there, and counted in nan_steps.
json number_or_null(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? json(*value) : json();
}

json size_or_null(int64_t bytes) { return bytes > 0 ? json(bytes) : json(); }

json words_or_null(const std::string& text) {
  return text.empty() ? json() : json(log_text::printable(text, 4096));
}

json json_of(const LogPlace& place) {
  if (place.line == 0) return json();
  return {{"file", log_text::printable(place.file, 4096)}, {"line", place.line}};
}

struct MemoryKey {
  MemoryKind kind;
  bool is_peak;
  const char* key;
};
constexpr MemoryKey kMemoryKeys[] = {
    {MemoryKind::allocated, true, "max_allocated_bytes"},
    {MemoryKind::allocated, false, "allocated_bytes"},
    {MemoryKind::reserved, true, "max_reserved_bytes"},
    {MemoryKind::reserved, false, "reserved_bytes"},
    {MemoryKind::device, true, "max_device_bytes"},
    {MemoryKind::device, false, "device_bytes"},
};

const char* key_of_memory(const MemoryReading& reading) {
  for (const MemoryKey& row : kMemoryKeys) {
    if (row.kind == reading.kind && row.is_peak == reading.is_peak) return row.key;
  }
  return "bytes";
}

json memory_by_rank(const std::vector<MemoryReading>& memory) {
  std::map<int, json> ranks;
  for (const MemoryReading& reading : memory) {
    json& entry = ranks[reading.rank];
    entry["rank"] = reading.rank >= 0 ? json(reading.rank) : json();
    entry[key_of_memory(reading)] = reading.bytes;
    // The latest: peaks since the start have the optimizer in them from the second step on.
    const int64_t step = entry.value("read_after_step", int64_t{-1});
    if (reading.step >= 0) entry["read_after_step"] = std::max(step, reading.step);
  }
  json list = json::array();
  for (auto& [rank, entry] : ranks) list.push_back(std::move(entry));
  return list;
}

json json_of(const OutOfMemoryFacts& memory) {
  return {{"asked_bytes", size_or_null(memory.asked_bytes)},
          {"capacity_bytes", size_or_null(memory.capacity_bytes)},
          {"free_bytes", value_or_null(memory.free_bytes)},
          {"in_use_bytes", size_or_null(memory.in_use_bytes)},
          {"others_bytes", size_or_null(memory.others_bytes)},
          {"allocated_bytes", size_or_null(memory.allocated_bytes)},
          {"reserved_unallocated_bytes", memory.reserved_unallocated_bytes},
          {"graph_pool_bytes", memory.graph_pool_bytes}};
}

json json_of(const CollectiveTimeout& timeout) {
  return {{"operation", words_or_null(timeout.operation)},
          {"sequence", timeout.sequence >= 0 ? json(timeout.sequence) : json()},
          {"group", words_or_null(timeout.group)},
          {"num_elements", timeout.num_elements >= 0 ? json(timeout.num_elements) : json()},
          {"waited_s",
           timeout.waited_ms >= 0 ? json(static_cast<double>(timeout.waited_ms) / 1e3) : json()}};
}

json json_of(const RunFailure& failure) {
  json result = {
      {"kind", failure.kind},
      {"status", spec::name_of(failure.status)},
      {"sentence", failure.sentence},
      {"rank", failure.rank >= 0 ? json(failure.rank) : json()},
      {"reporting_rank", failure.reporting_rank >= 0 ? json(failure.reporting_rank) : json()},
      {"ranks", failure.ranks},
      {"iteration", failure.iteration > 0 ? json(failure.iteration) : json()},
      {"at", json_of(failure.place)},
      {"times", failure.times},
      {"survived", failure.is_survived},
      {"exit_code", value_or_null(failure.exit_code)}};
  if (failure.memory) result["memory"] = json_of(*failure.memory);
  if (failure.timeout) {
    result["collective"] = json_of(*failure.timeout);
    result["waiting_ranks"] = failure.waiting_ranks;
  }
  if (failure.timeout || !failure.missing_ranks.empty()) {
    result["missing_ranks"] = failure.missing_ranks;
  }
  return result;
}

/// Pairs of step and loss: of many lines evenly chosen ones, the last always.
json loss_curve(const std::vector<StepLine>& steps) {
  constexpr size_t kMostPoints = 500;
  std::vector<const StepLine*> with_loss;
  for (const StepLine& step : steps) {
    if (step.loss) with_loss.push_back(&step);
  }
  json curve = json::array();
  const size_t count = std::min(with_loss.size(), kMostPoints);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = count == 1 ? 0 : i * (with_loss.size() - 1) / (count - 1);
    curve.push_back({with_loss[at]->step, number_or_null(with_loss[at]->loss)});
  }
  return curve;
}

json json_of_config(const RunFacts& facts) {
  if (!facts.config && facts.echoed.settings.empty()) return json();
  json result = {{"at", json_of(facts.echoed.place)},
                 {"source", words_or_null(facts.config_source)},
                 {"num_settings", facts.echoed.settings.size()}};
  if (facts.config) {
    const auto dialect = facts.config->dialect;
    result["dialect"] = spec::name_of(dialect);
    result["flags"] = spec::dialects::export_run(*facts.config, dialect);
    result["environment"] = facts.config->environment;
    result["notes"] = facts.config->notes;
  }
  return result;
}

/// A size of the model by the first of these keys of a config.json that it has; 0: by none.
int64_t model_size(const json& model, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = model.find(key);
    if (found != model.end() && found->is_number_integer()) return found->get<int64_t>();
  }
  return 0;
}

}  // namespace

std::string model_words(const spec::dialects::RunConfig& config) {
  if (!config.model_name.empty()) return config.model_name;
  const json& model = config.model;
  std::vector<std::string> words;
  const auto add = [&](std::initializer_list<const char*> keys, const char* text) {
    const int64_t size = model_size(model, keys);
    if (size > 0) words.push_back(fmt::format(fmt::runtime(text), size));
  };
  add({"num_hidden_layers", "n_layer"}, "{} layers");
  add({"hidden_size", "n_embd"}, "hidden size {}");
  add({"num_attention_heads", "n_head"}, "{} heads");
  const int64_t experts =
      model_size(model, {"num_experts", "n_routed_experts", "num_local_experts"});
  if (experts > 0) {
    std::string text = fmt::format("{} experts", experts);
    // Where experts are the only wide layers, their width has the plain name.
    const int64_t width = model_size(model, {"moe_intermediate_size", "intermediate_size"});
    const int64_t per_token = model_size(model, {"num_experts_per_tok"});
    if (width > 0) text += fmt::format(" of {}", width);
    if (per_token > 0) text += fmt::format(" ({} for each token)", per_token);
    words.push_back(std::move(text));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

nlohmann::json to_json(const RunFacts& facts) {
  json run;
  run["framework"] = facts.framework == Framework::unknown
                         ? json()
                         : json(std::string(spec::name_of(facts.framework)));
  run["known_by"] = {{"words", words_or_null(facts.known_by)}, {"at", json_of(facts.known_at)}};
  run["status"] = spec::name_of(facts.status);
  run["reason"] = words_or_null(facts.reason);
  run["num_steps"] = facts.num_steps;
  run["first_step"] = value_or_null(facts.first_step);
  run["last_step"] = value_or_null(facts.last_step);
  run["total_steps"] = value_or_null(facts.total_steps);
  run["num_attempts"] = facts.num_attempts;
  run["world_size"] = value_or_null(facts.world_size);
  for (const ParallelSizeRow& row : parallel_sizes()) {
    run["parallel"][row.name] = value_or_null(facts.parallel.*row.size);
  }
  run["micro_batch_size"] = value_or_null(facts.micro_batch_size);
  run["global_batch_size"] = value_or_null(facts.global_batch_size);
  run["seq_length"] = value_or_null(facts.seq_length);
  run["step_time_s"] = facts.step_time ? json(facts.step_time->median_s) : json();
  run["step_time"] = json();
  if (const auto& time = facts.step_time) {
    run["step_time"] = {{"median_s", time->median_s},    {"min_s", time->min_s},
                        {"max_s", time->max_s},          {"num_lines", time->num_lines},
                        {"interval", time->interval},    {"has_warmup", time->has_warmup},
                        {"is_derived", time->is_derived}};
  }
  run["tokens_per_s_per_gpu"] = value_or_null(facts.tokens_per_s_per_gpu);
  run["tokens_per_s_is_derived"] = facts.are_tokens_derived;
  run["tflops_per_gpu"] = value_or_null(facts.tflops_per_gpu);
  run["peak_memory_bytes"] = facts.peak_memory ? json(facts.peak_memory->bytes) : json();
  run["peak_memory"] = json();
  if (const auto& peak = facts.peak_memory) {
    run["peak_memory"] = {{"bytes", peak->bytes},
                          {"kind", key_of_memory(*peak)},
                          {"rank", peak->rank >= 0 ? json(peak->rank) : json()},
                          {"read_after_step", peak->step >= 0 ? json(peak->step) : json()},
                          {"at", json_of(peak->place)}};
  }
  run["memory_by_rank"] = memory_by_rank(facts.memory);
  run["loss"] = number_or_null(facts.loss);
  run["loss_curve"] = loss_curve(facts.steps);
  run["grad_norm"] = number_or_null(facts.grad_norm);
  run["skipped_steps"] = facts.num_skipped_steps;
  run["nan_steps"] = facts.num_nan_steps;
  run["first_nan_step"] = value_or_null(facts.first_nan_step);
  run["model"] = words_or_null(facts.model_name.empty() && facts.config ? model_words(*facts.config)
                                                                        : facts.model_name);
  const bool has_sizes = facts.config && !facts.config->model.empty();
  run["model_sizes"] = has_sizes ? facts.config->model : json();
  run["num_parameters"] = value_or_null(facts.num_parameters);
  run["device"] = words_or_null(facts.device_name);
  run["device_bytes"] = value_or_null(facts.device_bytes);
  run["allocator_retries"] = facts.num_allocator_retries;
  run["checkpoints"] = facts.num_checkpoints;
  run["command"] = words_or_null(facts.command);
  run["configuration"] = json_of_config(facts);
  run["failures"] = json::array();
  for (const RunFailure& failure : facts.failures) run["failures"].push_back(json_of(failure));
  json files = json::array();
  for (const std::string& file : facts.files) files.push_back(log_text::printable(file, 4096));
  run["files"] = files;
  run["notes"] = json::array();
  for (const std::string& note : facts.notes)
    run["notes"].push_back(log_text::printable(note, 500));
  return run;
}

}  // namespace moetune::sweeps
